"""Hazard: a peer over shared memory ends before it has received a large message, and its sender is blocked.

shm of 1.17 completes sends of more than 4 KiB in order, and never completes those to a process that has ended.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionResetError, MessageEndpoint, Quirk
from tests.fixtures.children import Child, Parent
from tests.fixtures.peers import quirks_of
from tests.fixtures.providers import require
from tests.transport.workarounds.test_killed_in_the_middle_of_a_send import memory_of, with_a_lock

pytestmark = pytest.mark.anyio

MIB = 1 << 20
LARGE: dict[str, Any] = {"recv_size": 4 * MIB, "recv_count": 4}


async def does_not_look(parent: Parent, port: int) -> None:
    """Connects, and receives nothing until the test says how to end: closed, or killed while it holds its lock."""
    endpoint = await aiofabric.connect("127.0.0.1", port, provider="shm", **LARGE)
    assert await endpoint.recv() == b"welcome"  # the first message needs polls of both sides
    parent.tell("connected")
    if parent.receive() == "lock":  # the loop does not run meanwhile
        for path in memory_of(os.getpid()):
            with_a_lock(path)
        os.kill(os.getpid(), signal.SIGKILL)
    endpoint.close()


async def echo(parent: Parent, port: int) -> None:
    async with await aiofabric.connect("127.0.0.1", port, provider="shm", **LARGE) as endpoint:
        async for message in endpoint:
            await endpoint.send(message)


async def answers(endpoint: MessageEndpoint) -> None:
    with anyio.fail_after(10):
        for size in (100, MIB, 3 * MIB):
            await endpoint.send(bytes(size))
            assert await endpoint.recv() == bytes(size)


async def send_on(endpoint: MessageEndpoint, size: int) -> None:
    while True:
        await endpoint.send(bytes(size))


async def send_until_it_is_gone(endpoint: MessageEndpoint, size: int) -> None:
    async with endpoint:
        with pytest.raises(FabricConnectionResetError):
            await send_on(endpoint, size)


async def under_way(endpoint: MessageEndpoint) -> None:
    while not endpoint.statistics().sends:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("end", ["kill", "close", "lock"])
async def test_others_are_served(child: Callable[..., Child], end: str) -> None:
    require("shm")
    if end == "lock" and Quirk.LOCKS_OUTLIVE_PROCESSES not in quirks_of("shm"):
        pytest.skip("the locks of this libfabric's shm end with their process")
    async with aiofabric.listen("127.0.0.1", 0, provider="shm", **LARGE) as listener:
        port = listener.address.port
        living = child(echo, port)
        async with await (await listener.accept_request()).accept() as other, anyio.create_task_group() as tasks:
            await answers(other)
            doomed = []
            for _ in range(2):
                doomed.append(child(does_not_look, port))
                endpoint = await (await listener.accept_request()).accept()
                await endpoint.send(b"welcome")
                assert await doomed[-1].areceive() == "connected"
                tasks.start_soon(send_until_it_is_gone, endpoint, MIB)
                await under_way(endpoint)
            for each in doomed:
                if end == "kill":
                    os.kill(each.pid, signal.SIGKILL)
                else:
                    each.tell(end)
            await answers(other)
            newcomer = child(echo, port)
            async with await (await listener.accept_request()).accept() as other_one:
                await answers(other_one)
            newcomer.result()
        living.result()
