"""Memory of a producer's pool: read in place by the consumers, and used again when nothing refers to it any more."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import numpy
import pytest
from anyio import ClosedResourceError

from aiofabric import WrongThreadError
from aiofabric.pipeline import Pull, Push
from aiofabric.testing import live_resources
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

SIZES = [1 << 16, 3 << 16, 1 << 20, 2 << 20]  # bytes of items that are not copied
LARGE = 2 << 20  # bytes of an item that is read out of the memory of its producer


@asynccontextmanager
async def joined(provider: str, consumers: int = 1) -> AsyncIterator[tuple[Push, list[Pull]]]:
    """A producer and its consumers."""
    async with Push(listen=(HOST, 0), provider=provider) as push, anyio.create_task_group() as tasks:
        pulls = [Pull(push.address, provider=provider) for _ in range(consumers)]
        over = anyio.Event()

        async def open_until_the_end(pull: Pull, started: anyio.Event) -> None:
            async with pull:
                started.set()
                await over.wait()

        for pull in pulls:
            started = anyio.Event()
            tasks.start_soon(open_until_the_end, pull, started)
            await started.wait()
        yield push, pulls
        await push.drain()
        over.set()


async def test_an_array_over_the_pools_memory_is_an_item(provider: str) -> None:
    async with joined(provider) as (push, [pull]):
        for number in range(5):
            values = numpy.frombuffer(push.pool.take(LARGE), dtype="u4")
            values[:] = numpy.arange(len(values)) + number
            await push.push([values[: LARGE // 8], values[LARGE // 8 :]], header=b"two parts")
            with await pull.pull() as item:
                first, second = (numpy.frombuffer(part, dtype="u4") for part in item.parts)
                assert (first == numpy.arange(LARGE // 8) + number).all()
                assert (second == numpy.arange(LARGE // 8, LARGE // 4) + number).all()
                del first, second


async def test_memory_is_used_again_when_the_item_is_acknowledged(provider: str) -> None:
    async with joined(provider) as (push, [pull]):
        addresses = set()
        for _ in range(20):
            memory = push.pool.take(LARGE)
            addresses.add(numpy.frombuffer(memory, dtype="u1").ctypes.data)
            await push.push(memory)
            del memory
            with await pull.pull():
                pass
            await push.drain()
        assert len(addresses) == 1
        assert push.statistics().pool_bytes == LARGE


@pytest.mark.parametrize("size", SIZES)
async def test_memory_is_not_used_again_while_the_item_is_kept(provider: str, size: int) -> None:
    async with joined(provider) as (push, [pull]):
        for number in range(8):
            memory = push.pool.take(size)
            memory[:] = bytes([number]) * size
            await push.push(memory)
            del memory
        assert push.statistics().pool_bytes == 8 * size
        for number in range(8):
            with await pull.pull() as item:
                assert item.data == bytes([number]) * size


async def test_memory_is_not_used_again_while_the_program_refers_to_it(provider: str) -> None:
    async with joined(provider) as (push, [pull]):
        kept = push.pool.take(LARGE)
        kept[:1] = b"a"
        await push.push(kept)
        part = kept[:10]
        del kept
        with await pull.pull():
            pass
        await push.drain()
        other = push.pool.take(LARGE)
        other[:1] = b"b"
        assert bytes(part[:1]) == b"a"


@pytest.mark.parametrize("size", SIZES)
async def test_an_item_of_a_consumer_that_left_is_read_by_the_next(provider: str, size: int) -> None:
    async with Push(listen=(HOST, 0), provider=provider) as push:
        async with Pull(push.address, provider=provider) as first:
            memory = push.pool.take(size)
            memory[:] = b"x" * size
            await push.push(memory)
            del memory
            (await first.pull()).give_back()
        again = push.pool.take(size)
        again[:] = b"y" * size
        async with Pull(push.address, provider=provider) as second:
            with await second.pull() as item:
                assert item.redelivered
                assert item.data == b"x" * size


async def test_the_memory_of_a_pool_is_bounded(provider: str) -> None:
    """Above what is taken, 64 MiB stay for reuse."""
    async with joined(provider) as (push, [_]):
        taken = [push.pool.take(16 << 20) for _ in range(16)]
        assert push.statistics().pool_bytes == 256 << 20
        while taken:
            taken.pop()
            left = len(taken) << 24
            assert push.statistics().pool_bytes <= left + max(left, 64 << 20)
        assert push.statistics().pool_bytes == 64 << 20


async def test_memory_that_another_thread_drops_returns(provider: str) -> None:
    async with joined(provider) as (push, [_]):
        kept = [push.pool.take(LARGE)]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        again = push.pool.take(LARGE)
        assert push.statistics().pool_bytes == len(again) == LARGE


async def test_small_items_in_the_pools_memory_are_copied(provider: str) -> None:
    async with joined(provider) as (push, [pull]):
        memory = push.pool.take(100)
        memory[:] = b"a" * 100
        await push.push(memory)
        memory[:] = b"b" * 100
        with await pull.pull() as item:
            assert item.data == b"a" * 100


async def test_several_consumers_read_from_one_pool(provider: str) -> None:
    async with joined(provider, consumers=3) as (push, pulls):
        found: list[int] = []

        async def take(pull: Pull) -> None:
            async for item in pull:
                assert item.data == bytes(item.data[:1]) * LARGE
                found.append(item.data[0])

        async with anyio.create_task_group() as tasks:
            for pull in pulls:
                tasks.start_soon(take, pull)
            for number in range(60):
                memory = push.pool.take(LARGE)
                memory[:] = bytes([number]) * LARGE
                await push.push(memory)
                del memory
            await push.drain()
            tasks.cancel_scope.cancel()
        assert sorted(found) == list(range(60))


async def test_the_pool_ends_with_the_block(provider: str) -> None:
    before = len(live_resources())
    async with joined(provider) as (push, [pull]):
        memory = push.pool.take(LARGE)
        memory[:1] = b"a"
        await push.push(memory)
        with await pull.pull():
            pass
    assert bytes(memory[:1]) == b"a"
    with pytest.raises(ClosedResourceError):
        push.pool.take(1)
    del memory
    assert push.statistics().pool_bytes == 0
    assert len(live_resources()) == before


async def test_mistakes_with_the_pool_have_errors(provider: str) -> None:
    outside = Push(listen=(HOST, 0), provider=provider)
    with pytest.raises(RuntimeError, match="enter it first"):
        outside.pool.take(1)
    async with joined(provider) as (push, [_]):
        for wrong, error in (
            (0, ValueError),
            (-1, ValueError),
            (1 << 50, ValueError),
            ("1", TypeError),
            (1.5, TypeError),
        ):
            with pytest.raises(error, match="size"):
                push.pool.take(wrong)  # type: ignore[arg-type]
        errors: list[BaseException] = []

        def take() -> None:
            try:
                push.pool.take(1)
            except WrongThreadError as raised:
                errors.append(raised)

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        assert len(errors) == 1


async def test_the_age_of_the_oldest_item_that_is_not_acknowledged(provider: str) -> None:
    async with joined(provider) as (push, [pull]):
        assert push.statistics().oldest_seconds == 0
        before = monotonic()
        await push.push(b"one")
        after = monotonic()
        one = await pull.pull()
        await anyio.sleep(0.05)
        await push.push(b"two")
        assert monotonic() - after - 0.001 <= push.statistics().oldest_seconds <= monotonic() - before
        one.ack()
        two = await pull.pull()
        await until(lambda: push.statistics().acknowledged == 1)
        assert 0 < push.statistics().oldest_seconds < monotonic() - before - 0.04
        two.ack()
        await push.drain()
        assert push.statistics().oldest_seconds == 0
