"""Hazard: a message arrives before its receive is posted.

tcp of libfabric 1.17 matches the two only in a later read of the queue. Until then its descriptor is not readable, and
fi_trywait fails. One side loses a wake-up, and the loop of the other spins.
"""

import anyio
import pytest

from aiofabric import MessageEndpoint
from aiofabric.cq.reactor import Reactor
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

SIZES = [0, 1, 5000, 9001, 1 << 20]


async def leave_unexpected(active: MessageEndpoint, data: bytes) -> None:
    """Send, and run the loop until nothing changes while no task receives."""
    active.send_nowait(data)
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("size", SIZES)
async def test_receive_that_is_posted_later_is_answered(pair: Pair, size: int) -> None:
    data = bytes(size)
    async with pair(recv_size=None) as (active, passive):
        for _ in range(5):
            await leave_unexpected(active, data)
            with anyio.fail_after(2):
                assert await passive.recv(max(1, size)) == data


@pytest.mark.parametrize("size", SIZES)
async def test_two_unexpected_messages_and_two_receives(pair: Pair, size: int) -> None:
    async with pair(recv_size=None) as (active, passive):
        for byte in b"ab":
            await leave_unexpected(active, bytes([byte]) * size)
        got: list[bytes] = []

        async def receive() -> None:
            got.append(await passive.recv(max(1, size)))

        with anyio.fail_after(2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                tasks.start_soon(receive)
        assert sorted(got) == [b"a" * size, b"b" * size]


async def turns_of_a_while() -> int:
    """The number of passes in 0.1 s. Only time can show passes of an idle endpoint."""
    (source,) = [s for s in Reactor.current().sources if s.queue is not None]
    await anyio.sleep(0.05)  # delays grow
    before = source.statistics().passes
    await anyio.sleep(0.1)
    return source.statistics().passes - before


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", [0, 5000, 1 << 20])
async def test_waiting_for_the_receive_does_not_spin(pair: Pair, size: int, count: int) -> None:
    async with pair(recv_size=None) as (active, passive):
        for _ in range(count):
            active.send_nowait(bytes(size))
        assert await turns_of_a_while() <= 200
        for _ in range(count):
            assert await passive.recv(max(1, size)) == bytes(size)
        assert await turns_of_a_while() <= 15


@pytest.mark.parametrize("size", [1, 5000])
async def test_exhausted_pool_does_not_spin(pair: Pair, size: int) -> None:
    async with pair(recv_count=4) as (active, passive):
        for _ in range(100):
            active.send_nowait(bytes(size))
        assert await turns_of_a_while() <= 200
        for _ in range(100):
            assert await passive.recv() == bytes(size)
        assert await turns_of_a_while() <= 15


async def test_exhausted_pool_goes_on(pair: Pair) -> None:
    """When every pooled receive is used, the next message is unexpected, too."""
    async with pair(accepting={"recv_count": 2, "recv_size": 6000}) as (active, passive):
        for n in range(40):
            active.send_nowait(n.to_bytes(1, "big") * 5000)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(5):
            assert [(await passive.recv())[0] for _ in range(40)] == list(range(40))
