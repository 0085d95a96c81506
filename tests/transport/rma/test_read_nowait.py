"""Promise: `read_nowait` calls a function when the data is there, or with the reason why it will not be."""

import random
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

from aiofabric import Access, RemoteAccessError
from tests.fixtures.providers import CARRIERS, LONGEST, Pair, over

pytestmark = pytest.mark.anyio

MIB = 1 << 20

provider = over(CARRIERS)


class Done:
    """The function; ``await done.called()`` returns its argument."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self.calls: list[BaseException | None] = []

    def __call__(self, error: BaseException | None) -> None:
        self.calls.append(error)
        self._event.set()

    async def called(self) -> BaseException | None:
        with anyio.fail_after(30):
            await self._event.wait()
        return self.calls[0]


@pytest.mark.parametrize("size", [1, 4096, MIB + 1, min(8 * MIB, LONGEST)])
async def test_the_data_is_there_when_it_is_called(pair: Pair, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with pair() as (active, passive), passive.domain.register(data, access=Access.REMOTE_READ) as region:
        memory, done = bytearray(size), Done()
        active.read_nowait(memory, region.remote, done)
        assert not done.calls  # never before the method returns
        assert await done.called() is None
        assert memory == data


async def test_many_at_once(pair: Pair) -> None:
    data = random.Random(1).randbytes(1 << 16)
    async with pair() as (active, passive), passive.domain.register(data, access=Access.REMOTE_READ) as region:
        reads = [(bytearray(1 << 16), Done()) for _ in range(500)]
        for memory, done in reads:
            active.read_nowait(memory, region.remote, done)
        for memory, done in reads:
            assert await done.called() is None
            assert memory == data
            assert len(done.calls) == 1


async def test_nothing_is_read_into_an_empty_buffer(pair: Pair) -> None:
    async with pair() as (active, passive), passive.domain.register(b"data", access=Access.REMOTE_READ) as region:
        done = Done()
        active.read_nowait(bytearray(), region.remote, done)
        assert done.calls == [None]


async def test_a_close_ends_reads_under_way_with_an_error(pair: Pair) -> None:
    size = min(32 * MIB, LONGEST)
    async with pair() as (active, passive), passive.domain.register(bytes(size), access=Access.REMOTE_READ) as region:
        reads = [(bytearray(size), Done()) for _ in range(4)]
        for memory, done in reads:
            active.read_nowait(memory, region.remote, done)
        active.close()
        for _, done in reads:
            assert isinstance(await done.called(), ClosedResourceError)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (lambda region: (bytearray(9), region.remote, Done()), IndexError, "9 bytes do not fit"),
        (lambda region: (b"readonly", region.remote, Done()), BufferError, "read-only"),
        (lambda region: (bytearray(8), region.remote.pack(), Done()), TypeError, "remote must be a RemoteRegion"),
        (lambda region: (bytearray(8), region.remote, None), TypeError, "done must be a function"),
    ],
    ids=["longer", "read-only", "packed", "no function"],
)
async def test_a_mistake_is_named_and_nothing_is_called(pair: Pair, arguments: Any, error: Any, text: str) -> None:
    async with pair() as (active, passive), passive.domain.register(bytes(8), access=Access.REMOTE_READ) as region:
        memory, remote, done = arguments(region)
        with pytest.raises(error, match=text):
            active.read_nowait(memory, remote, done)
        assert not (done and done.calls)


async def test_memory_that_may_only_be_written_is_refused(pair: Pair) -> None:
    async with pair() as (active, passive), passive.domain.register(bytearray(8), access=Access.REMOTE_WRITE) as region:
        with pytest.raises(RemoteAccessError):
            active.read_nowait(bytearray(8), region.remote, Done())
