"""Promise: over a tcp connection, a send of up to 32 KiB does not wait for its completion (asyncio, uvloop).

The message is a copy, or `bytes`, so the caller may change its buffer at once. The copies are bounded.
"""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiofabric import Hints, MessageEndpoint, TxAttr
from tests.fixtures.internals import handle_of
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


async def test_so_much_is_copied_at_most_if_sizes_differ(pair: Pair) -> None:
    async def send_ever_less(endpoint: MessageEndpoint) -> None:
        for _ in range(SOCKETS // LONGEST):
            for number in range(64):
                await endpoint.send(bytes(min(LONGEST, MOST // (number + 1))))

    async with pair(recv_count=4) as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(send_ever_less, active)
        await anyio.wait_all_tasks_blocked()
        waiting = sum(operation.length for operation in handle_of(active).tx.posted)
        assert 0 < waiting <= MOST + LONGEST
        tasks.cancel_scope.cancel()
        passive.abort()


async def test_an_endpoint_with_selective_completion_gets_one_for_each_send(pair: Pair) -> None:
    """Hazard: without one, the send stayed posted for ever, and an orderly end waited for it."""
    async with pair(selective=True) as (active, passive):
        for _ in range(8):
            await active.send(bytes(2000))
            assert len(await passive.recv()) == 2000
        assert active.statistics().sends == 0
        with anyio.fail_after(10):
            await active.shutdown()


async def test_queued_sends_go_on_behind_sends_that_do_not_wait(pair: Pair) -> None:
    """Hazard: the poll of another task read their completions, and no pass posted the queued ones."""
    sizes = [1000] * 40 + [100_000]
    hints = Hints(tx_attr=TxAttr(size=4))
    receives: dict[str, Any] = {"recv_count": 2, "recv_size": 1 << 17}
    async with pair(hints=hints, accepting=receives, **receives) as (active, passive):
        async with anyio.create_task_group() as tasks:
            for size in sizes * 8:
                tasks.start_soon(active.send, bytes(size))
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(20):
                received = []
                for _ in sizes * 8:
                    received.append(len(await passive.recv()))
                    await passive.send(bytes(1000))
                    assert len(await active.recv()) == 1000
        assert sorted(received) == sorted(sizes * 8)


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
