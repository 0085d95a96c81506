"""Promise: over a connection, a send of up to 32 KiB does not wait for its completion.

The message is a copy, or `bytes`, so the caller may change its buffer at once. The copies are bounded.
"""

import anyio
import anyio.lowlevel
import pytest

from aiofabric import MessageEndpoint
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import Pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]
provider = over(["tcp"])

LONGEST = 32 << 10
MOST = 256 << 10  # bytes of copies
SOCKETS = 16 << 20  # bytes, more than those of a connection hold


async def send_all(endpoint: MessageEndpoint, size: int) -> None:
    buffer = bytearray(size)
    for number in range(SOCKETS // size):
        buffer[:4] = number.to_bytes(4, "big")
        await endpoint.send(buffer)
        buffer[:4] = b"\xff" * 4


@pytest.mark.parametrize("size", [1000, 4096, LONGEST])
async def test_a_buffer_is_the_callers_at_once_while_the_peer_does_not_receive(pair: Pair, size: int) -> None:
    async with pair(recv_count=4) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(send_all, active, size)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(20):
            for number in range(SOCKETS // size):
                message = await passive.recv()
                assert (int.from_bytes(message[:4], "big"), len(message)) == (number, size)


@pytest.mark.parametrize("size", [4096, LONGEST])
async def test_so_much_is_copied_at_most(pair: Pair, size: int) -> None:
    async with pair(recv_count=4) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(send_all, active, size)
        await anyio.wait_all_tasks_blocked()
        statistics = active.statistics()
        assert 0 < statistics.sends <= MOST // size + 1  # the last one is posted from its place, and waits
        assert not statistics.queued
        with anyio.fail_after(20):
            for _ in range(SOCKETS // size):
                await passive.recv()


async def test_other_tasks_have_their_turns(pair: Pair) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async def receive_all(passive: MessageEndpoint) -> None:
        async for _ in passive:
            pass

    async with pair(recv_count=512) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(receive_all, passive)
        tasks.start_soon(take_turns)
        for _ in range(4096):
            await active.send(bytes(1000))
        tasks.cancel_scope.cancel()
    assert turns > 8
