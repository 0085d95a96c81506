"""Push and pull: what producers push arrives, in order, once, in memory that is lent for as long as it was said."""

from __future__ import annotations

import gc
import logging
import random
import tracemalloc
import weakref
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import numpy
import pytest
from anyio import ClosedResourceError, EndOfStream

from aiofabric.pipeline import Deduplicate, Item, Pull, Push
from aiofabric.testing import live_resources
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

LARGE = 2 << 20  # bytes of an item that is read out of the memory of its producer
INLINE = 3 << 16  # bytes of the largest item that comes in a message, on every connection
LONG = 1 << 20  # and over tcp, if it has one part or two, and the consumer has the memory
LENT = [1 << 14, LARGE]  # bytes of the smallest item in lent memory, which comes in a message, and of one that is read


class _LeaveNowError(Exception):
    """Ends the blocks of a pipeline without the wait for acknowledgements."""


@asynccontextmanager
async def joined(provider: str, pull: dict[str, Any] | None = None, **push: Any) -> AsyncIterator[tuple[Push, Pull]]:
    """A producer that is connected to a consumer."""
    async with (
        Pull(listen=(HOST, 0), provider=provider, **pull or {}) as consumer,
        Push(consumer.address, provider=provider, **push) as producer,
    ):
        yield producer, consumer


@asynccontextmanager
async def joined_to(pull: Pull, provider: str) -> AsyncIterator[Push]:
    async with Push(pull.address, provider=provider) as push:
        yield push


async def all_of(pull: Pull) -> list[bytes]:
    return [bytes(item.data) async for item in pull]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_items_arrive_in_order_and_the_stream_ends(provider: str, delivery: str) -> None:
    sent = [str(number).encode() for number in range(3000)]
    async with Pull(listen=(HOST, 0), provider=provider) as pull, anyio.create_task_group() as tasks:

        async def produce() -> None:
            async with Push(pull.address, provider=provider, delivery=delivery) as push:  # type: ignore[arg-type]
                for item in sent[:1000]:
                    await push.push(item)
                await push.push_many(sent[1000:])
            statistics = push.statistics()
            assert (statistics.pushed, statistics.acknowledged, statistics.lost) == (3000, 3000, 0)

        tasks.start_soon(produce)
        assert await all_of(pull) == sent
        with pytest.raises(EndOfStream):
            await pull.pull()


async def test_a_producer_that_waits_between_two_items_does_not_yield_for_the_second_one(provider: str) -> None:
    """A checkpoint after each wait made an item of an idle pipeline twice as late."""
    async with joined(provider) as (push, pull):
        await push.push(b"first")
        for number in range(1, 4):
            with await pull.pull():
                await anyio.sleep(0.001)  # longer than a burst of items may take
            with pytest.raises(StopIteration) as returned:
                push.push(b"next").send(None)
            assert returned.value.value == number
        with await pull.pull():
            pass


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 65536, 65537, INLINE, INLINE + 1, LONG, LONG + 1, LARGE])
async def test_an_item_of_any_size_arrives_with_its_header(provider: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    async with joined(provider) as (push, pull):
        await push.push(bytearray(data[:size]), header=b"what it is")
        with await pull.pull() as item:
            assert (bytes(item.data), item.header, item.number) == (data[:size], b"what it is", 0)
            assert (item.producer, item.redelivered) == (push.id, False)


async def test_what_was_taken_at_most_once_is_acknowledged_while_others_of_its_frame_wait(provider: str) -> None:
    numbers: list[int] = []
    async with Push(listen=(HOST, 0), provider=provider, delivery="at_most_once", acknowledged=numbers.append) as push:
        async with Pull(push.address, provider=provider) as pull:
            await push.push_many([bytes([number]) for number in range(10)])
            taken = [bytes((await pull.pull()).data), bytes((await pull.pull()).data)]
            taken += await pull.pull_many(3)
            assert pull.statistics().acknowledged == 5
            await until(lambda: len(numbers) >= 5)
            taken.append(bytes((await pull.pull()).data))
        await until(lambda: push.statistics().lost > 0)
        assert (push.statistics().acknowledged, push.statistics().lost) == (6, 4)
    assert numbers == [*range(6)]
    assert taken == [bytes([number]) for number in range(6)]


async def test_a_consumer_that_holds_items_back_learns_that_no_new_ones_come(provider: str) -> None:
    numbers: list[int] = []
    async with Pull(listen=(HOST, 0), provider=provider) as pull, anyio.create_task_group() as tasks:

        async def produce() -> None:
            async with Push(pull.address, provider=provider, acknowledged=numbers.append) as push:
                for number in range(5):
                    assert await push.push(str(number).encode()) == number

        tasks.start_soon(produce)
        held = []
        while (item := await pull.pull_or_none()) is not None:
            held.append(item)
        assert [bytes(item.data) for item in held] == [b"0", b"1", b"2", b"3", b"4"]
        assert await pull.pull_or_none() is None
        for item in held:
            item.ack()
        with pytest.raises(EndOfStream):
            await pull.pull()
    assert numbers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("pull", "push", "size"),
    [
        ({"window": 4}, {}, 5),
        ({"window_bytes": 4000}, {}, 900),
        ({}, {"max_unacknowledged": 4}, 5),
        ({}, {"max_unacknowledged_bytes": 4 << 20}, LARGE),
    ],
    ids=["window", "window_bytes", "max_unacknowledged", "max_unacknowledged_bytes"],
)
async def test_a_consumer_that_holds_items_back_learns_that_the_next_one_waits_for_them(
    provider: str, pull: dict[str, Any], push: dict[str, Any], size: int
) -> None:
    """A batch of more items than fit waited for ever: the producer for room, and the consumer for items."""
    got: list[int] = []
    held: list[Item] = []
    async with Pull(listen=(HOST, 0), provider=provider, **pull) as consumer, anyio.create_task_group() as tasks:

        async def produce() -> None:
            async with Push(consumer.address, provider=provider, **push) as producer:
                for number in range(10):
                    await producer.push(bytes([number]) * size)

        tasks.start_soon(produce)
        while len(got) < 10:
            item = await consumer.pull_or_none()
            if item is not None:
                held.append(item)
                continue
            for each in held:
                got.append(each.data[0])
                each.ack()
            held.clear()
    assert got == [*range(10)]


async def test_a_consumer_that_holds_items_back_learns_that_their_producer_waits_for_them(provider: str) -> None:
    """A producer that changes its memory drains before; both waited for ever."""
    taken: list[int] = []
    async with joined(provider) as (push, pull), anyio.create_task_group() as tasks:

        async def produce() -> None:
            for number in range(0, 9, 3):
                for each in range(number, number + 3):
                    await push.push(str(each).encode())
                await push.drain()
            tasks.cancel_scope.cancel()

        tasks.start_soon(produce)
        held: list[Item] = []
        while True:
            if (item := await pull.pull_or_none()) is not None:
                held.append(item)
                continue
            each = held.pop(0)  # one at a time: what is left waits for another word of the producer
            taken.append(int(each.data))
            each.ack()
    assert taken == [*range(9)]


async def test_items_that_wait_when_the_block_ends_raise(provider: str) -> None:
    ended: list[str] = []

    async def push_one(push: Push) -> None:
        try:
            await push.push(b"never")
        except ClosedResourceError:
            ended.append("closed")

    async def leave_early() -> None:
        async with joined(provider, {"window": 1}) as (push, _):
            await push.push(b"0")
            for _ in range(3):
                tasks.start_soon(push_one, push)
            await until(lambda: push.statistics().waiting == 3)
            raise KeyError

    async with anyio.create_task_group() as tasks:
        with pytest.raises(KeyError):
            await leave_early()
    assert ended == ["closed"] * 3


async def test_producers_that_come_and_go_for_ever_are_only_counted(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider, producers=None) as pull:
        for number in range(100_000):
            pull.note_end(number.to_bytes(16, "little"))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100_000, 110_000):
            pull.note_end(number.to_bytes(16, "little"))
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert (pull.statistics().ended, grown < 100_000) == (110_000, True)


async def test_the_program_may_tell_a_consumer_of_a_producers_end(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider, producers=2) as pull:
        pull.note_end(b"a" * 16)
        pull.note_end(b"a" * 16)
        async with joined_to(pull, provider) as push:
            await push.push(b"one")
            with await pull.pull():
                pass
        with pytest.raises(EndOfStream):
            await pull.pull()


async def test_places_may_be_an_async_iterator(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:

        async def places() -> AsyncIterator[list[Any]]:
            yield []
            yield [pull.address]
            await anyio.sleep_forever()

        async with Push(places(), provider=provider) as push:
            await push.push(b"one")
            with await pull.pull() as item:
                assert bytes(item.data) == b"one"


async def test_a_cancelled_push_has_pushed_nothing(provider: str) -> None:
    async with joined(provider, {"window": 1000}) as (push, pull):
        await until(lambda: bool(push.statistics().consumers))
        done = 0
        with anyio.CancelScope() as scope:
            while True:
                await push.push(b"item")
                done += 1
                if done == 200:
                    scope.cancel()
        assert push.statistics().pushed == done
        for _ in range(done):
            (await pull.pull()).ack()


@pytest.mark.parametrize("sizes", [(10, 0, 20), (100, LARGE, 5), (LARGE, LARGE), (4000,) * 40, (256,) * 256])
async def test_the_parts_of_an_item_stay_apart(provider: str, sizes: tuple[int, ...]) -> None:
    parts = [bytes([at % 255 + 1]) * size for at, size in enumerate(sizes)]
    async with joined(provider) as (push, pull):
        await push.push(parts)
        with await pull.pull() as item:
            assert [bytes(part) for part in item.parts] == parts
            assert len(item) == sum(sizes)


async def test_parts_that_are_read_are_aligned_in_one_piece_of_memory(provider: str) -> None:
    sizes = LARGE + 1, 5000, LARGE - 3, 70_001
    async with joined(provider) as (push, pull):
        await push.push([bytes([at]) * size for at, size in enumerate(sizes)])
        with await pull.pull() as item:
            starts = [numpy.frombuffer(part, "u1").ctypes.data for part in item.parts]
            for at, size in enumerate(sizes):
                assert bytes(item.parts[at]) == bytes([at]) * size
                assert starts[at] - starts[0] == sum(-(-each // 64) * 64 for each in sizes[:at])


async def test_large_and_small_items_keep_their_order(provider: str) -> None:
    sizes = [10, LARGE, 20, 3 * LARGE, LARGE, 30, 50_000]
    async with joined(provider) as (push, pull), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: push.push_many([bytes(size) for size in sizes]))
        found = []
        for _ in sizes:
            with await pull.pull() as item:
                found.append(len(item))
        assert found == sizes


async def test_items_of_all_sizes_keep_their_order_and_their_bytes(provider: str) -> None:
    """Several in one message, alone, or read: a random choice, pushed without a wait."""
    choice = random.Random(1)
    borders = [64, 4096, 4097, 4160, LENT[0] - 64, LENT[0], LENT[0] + 64, 40_000, 65536, 1 << 17, INLINE - 1, INLINE]
    sizes = (
        choice.choices(borders, k=300) + [INLINE + 64, LENT[0], LENT[0]] * 5 + choice.choices([LONG, LARGE, 64], k=30)
    )
    async with joined(provider) as (push, pull), anyio.create_task_group() as tasks:

        async def produce() -> None:
            for number, size in enumerate(sizes):
                header = b"h" if choice.random() < 0.1 else b""
                await push.push(bytes([number % 251]) * size, header=header)

        tasks.start_soon(produce)
        held: list[Item] = []
        for number, size in enumerate(sizes):
            item = await pull.pull()
            assert (item.number, len(item.data)) == (number, size)
            held.append(item)
            if len(held) > 20:  # in any order: the others of its message stay as they are
                each = held.pop(choice.randrange(len(held)))
                assert bytes(each.data) == bytes([each.number % 251]) * len(each.data)
                each.ack()
        for each in held:
            assert bytes(each.data) == bytes([each.number % 251]) * len(each.data)
            each.ack()
        await push.drain()
        assert pull.statistics().lent_bytes == 0


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_what_is_left_of_a_message_with_several_items_goes_to_another_consumer(
    provider: str, delivery: str
) -> None:
    async with Push(listen=(HOST, 0), delivery=delivery, provider=provider) as push:  # type: ignore[arg-type]
        async with Pull(push.address, provider=provider) as first:
            await until(lambda: bool(push.statistics().consumers))
            for number in range(7):
                await push.push(bytes([number]) * LENT[0])
            items = [await first.pull() for _ in range(7)]
            for at in (2, 5):
                items[at].ack()
            items[0].give_back()
        left = [0, 1, 3, 4, 6] if delivery == "at_least_once" else []
        async with Pull(push.address, provider=provider) as second:
            for number in left:
                with await second.pull() as item:
                    assert (item.number, item.redelivered, item.data[0]) == (number, True, number)
            await push.drain()
        assert push.statistics().lost == 4 * (not left)  # 0 was given back: taken


async def test_push_and_push_many_of_one_item_take_turns(provider: str) -> None:
    """An item of `push` joined one that `push_many` had left alone, and neither could be sent."""
    async with joined(provider) as (push, pull):
        await until(lambda: bool(push.statistics().consumers))
        for number in range(0, 400, 4):
            await push.push_many([str(number).encode()])
            await push.push(str(number + 1).encode())
            await push.push_many([str(number + 2).encode()])
            await push.push(bytes(LENT[0]))
        for number in range(400):
            with await pull.pull() as item:
                assert (item.number, item.data) == (number, str(number).encode() if number % 4 < 3 else bytes(LENT[0]))
        await push.drain()


@pytest.mark.parametrize("size", [300, 5000])
async def test_an_empty_part_among_many(provider: str, size: int) -> None:
    parts = [bytes([number]) * size for number in range(255)]
    async with joined(provider) as (push, pull), anyio.create_task_group() as tasks:
        tasks.start_soon(push.push, [*parts, b""])
        with await pull.pull() as item:
            assert [bytes(part) for part in item.parts] == [*parts, b""]
        await push.drain()


async def test_frames_that_wait_for_the_endpoint_leave_in_order(provider: str) -> None:
    count = 300  # more than an endpoint is given at once
    async with joined(provider) as (push, pull), anyio.create_task_group() as tasks:

        async def produce() -> None:
            for number in range(count):
                await push.push([bytes([number % 251]) * 30_000, b"second"], header=b"h")
                await push.push(b"small")

        tasks.start_soon(produce)
        await until(lambda: push.statistics().pushed == 2 * count)  # meanwhile nothing is pulled
        for number in range(count):
            with await pull.pull() as item:
                assert (item.number, item.parts[0][29_999]) == (2 * number, number % 251)
            with await pull.pull() as item:
                assert (item.number, item.data) == (2 * number + 1, b"small")
        await push.drain()


async def test_pull_many_gets_what_came_together(provider: str) -> None:
    sent = [str(number).encode() for number in range(500)]
    async with joined(provider) as (push, pull):
        await push.push_many(sent)
        await push.push(bytes(LARGE), header=b"h")
        found: list[bytes] = []
        while len(found) < 501:
            with await pull.pull_many(most=64) as items:
                assert len(items) <= 64
                assert list(items.numbers) == list(range(len(found), len(found) + len(items)))
                found += items
        assert found == [*sent, bytes(LARGE)]
        await push.drain()


@pytest.mark.parametrize("size", LENT)
async def test_lent_memory_cannot_be_used_after_the_scope(provider: str, size: int) -> None:
    async with joined(provider) as (push, pull):
        await push.push(bytes(size))
        with await pull.pull() as item:
            view = item.data
            assert pull.statistics().lent_bytes == size
        with pytest.raises(ValueError, match="released"):
            view[0]
        with pytest.raises(ClosedResourceError, match="scope"):
            item.ack()
        assert pull.statistics().lent_bytes == 0


async def test_an_item_below_16_kib_is_bytes_that_the_program_keeps(provider: str) -> None:
    async with joined(provider) as (push, pull):
        await push.push(b"a" * (LENT[0] - 1))
        with await pull.pull() as item:
            data = item.data
            assert pull.statistics().lent_bytes == 0
        assert data == b"a" * (LENT[0] - 1)


@pytest.mark.parametrize("size", LENT)
async def test_a_view_that_is_kept_keeps_its_bytes(provider: str, size: int) -> None:
    """An array over the memory of an item stays valid: the memory is not used for another item."""
    async with joined(provider) as (push, pull):
        await push.push(b"a" * size)
        with await pull.pull() as item:
            kept = memoryview(item.data)[:10]
        await push.push(b"b" * size)
        with await pull.pull() as item:
            assert bytes(item.data[:1]) == b"b"
            assert bytes(kept) == b"a" * 10


@pytest.mark.parametrize("size", LENT)
async def test_the_memory_of_an_array_is_used_again_when_the_array_is_gone(provider: str, size: int) -> None:
    """A stage drops its arrays after the scope: fresh memory for each cost half of its rate."""
    found = set()
    async with joined(provider) as (push, pull):
        for _ in range(200):
            await push.push(bytes(size))
            with await pull.pull() as item:
                array = numpy.frombuffer(item.data, "u1")
            found.add(array.ctypes.data)
            del array, item
    assert len(found) <= 100  # at most the receives of a process, and a few


@pytest.mark.parametrize("header", [b"", b"h", b"h" * 41, b"h" * 1024], ids=len)
@pytest.mark.parametrize("size", [*LENT, 50_000, LONG])
async def test_an_array_over_an_item_has_aligned_values(provider: str, size: int, header: bytes) -> None:
    async with joined(provider) as (push, pull):
        for number in range(3):
            await push.push(bytes([number]) * size, header=header)
        for number in range(3):
            with await pull.pull() as item:
                assert item.header == header
                array = numpy.frombuffer(item.data, "u1")
                assert array.ctypes.data % (64 if size < LONG else 16) == 0
                assert len(array) == size
                assert (array == number).all()
                assert not array.flags.writeable
                del array


@pytest.mark.parametrize("whole", [20_000, INLINE, LONG, LARGE])
@pytest.mark.parametrize("first", [0, 100, 4097])
async def test_arrays_over_the_parts_of_an_item_have_aligned_values(provider: str, whole: int, first: int) -> None:
    parts = [b"a" * first, b"b" * (whole - first - 101), b"c" * 101]
    async with joined(provider) as (push, pull):
        for count in (1, 2, 3):
            await push.push(parts[:count], header=b"h")
        for count in (1, 2, 3):
            with await pull.pull() as item:
                assert item.header == b"h"
                assert [bytes(part) for part in item.parts] == parts[:count]
                for part in item.parts:
                    if isinstance(part, memoryview) and len(part):
                        assert numpy.frombuffer(part, "u1").ctypes.data % (64 if whole == 20_000 else 16) == 0
                        assert part.readonly
        assert pull.statistics().lent_bytes == 0


@pytest.mark.parametrize("most", [1, 4])
async def test_a_producer_that_may_keep_few_large_items_goes_on(provider: str, most: int) -> None:
    """Hazard: acknowledgements of large items wait for more items, which wait for acknowledgements."""
    async with joined(provider, max_unacknowledged=most) as (push, pull), anyio.create_task_group() as tasks:

        async def produce() -> None:
            for _ in range(100):
                await push.push(bytes(INLINE))
            await push.drain()

        tasks.start_soon(produce)
        with anyio.fail_after(20):
            for _ in range(100):
                with await pull.pull() as item:
                    assert len(item) == INLINE


async def test_what_is_kept_of_an_item_in_a_message_outlives_its_ends(provider: str) -> None:
    """Hazard: the item is in a receive of the connection."""
    async with joined(provider) as (push, pull):
        for number in range(100):  # more than there are receives
            await push.push(bytes([number]) * 50_000)
        kept = []
        for _ in range(100):
            with await pull.pull() as item:
                kept.append(item.data[1000:1010])
        assert pull.statistics().lent_bytes == 0
        await push.push(b"and more")
        with await pull.pull() as item:
            assert item.data == b"and more"
        del item
    gc.collect()
    assert [bytes(each) for each in kept] == [bytes([number]) * 10 for number in range(100)]


async def test_items_that_are_dropped_in_their_scope_leave_their_memory(provider: str) -> None:
    """Each round drops as many items in messages as the connection has receives, without an acknowledgement."""
    with suppress(_LeaveNowError):
        async with joined(provider) as (push, pull):
            for _ in range(5):
                for number in range(40):
                    await push.push(bytes([number]) * 50_000)
                for number in range(40):
                    item = await pull.pull()
                    assert bytes(item.data[:2]) == bytes([number]) * 2
                    with pytest.warns(ResourceWarning, match="dropped without an acknowledgement"):
                        del item
            raise _LeaveNowError  # its producer would wait for acknowledgements


async def test_a_consumer_that_is_left_with_items_in_messages_is_collected(provider: str) -> None:
    """Hazard: an item refers to its receive, which refers to the connection, which refers to the item."""

    async def left() -> weakref.ref[Pull]:
        with suppress(_LeaveNowError):
            async with joined(provider) as (push, pull):
                for _ in range(20):
                    await push.push(bytes(50_000))
                await until(lambda: pull.statistics().queued == 20)
                raise _LeaveNowError
        return weakref.ref(pull)

    gone = await left()
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
        gc.collect()
    assert gone() is None


@pytest.mark.parametrize("size", [50_000, LARGE])
async def test_the_window_bounds_the_memory_of_items_that_nobody_pulls(provider: str, size: int) -> None:
    window = 4 * LARGE
    async with joined(provider, {"window_bytes": window}) as (push, pull), anyio.create_task_group() as tasks:
        count = 2 * window // size

        async def produce() -> None:
            for _ in range(count):
                await push.push(bytes(size))

        tasks.start_soon(produce)
        sent = window // (size + 64)
        await until(lambda: push.statistics().waiting == 1 and pull.statistics().queued == sent)
        assert sent * size <= pull.statistics().lent_bytes <= 1.25 * window
        for _ in range(count):
            (await pull.pull()).ack()
        assert pull.statistics().lent_bytes == 0


async def test_little_memory_is_kept_when_many_large_items_have_been_finished(provider: str) -> None:
    """64 MiB stay for reuse, however much was lent before."""
    async with joined(provider, {"window_bytes": 300 * LARGE}) as (push, pull):
        tracemalloc.start()
        try:
            large = bytes(LARGE)
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(120):
                await push.push(large)
            for item in [await pull.pull() for _ in range(120)]:
                item.ack()
            del item
            assert pull.statistics().lent_bytes == 0
            assert tracemalloc.get_traced_memory()[0] - before < 70 << 20
        finally:
            tracemalloc.stop()


async def test_an_exception_in_the_scope_gives_the_item_to_another_consumer(provider: str) -> None:
    async with Push(listen=(HOST, 0), provider=provider) as push:
        async with Pull(push.address, provider=provider) as first:
            await push.push(b"first")
            with pytest.raises(ZeroDivisionError), await first.pull():
                raise ZeroDivisionError
        async with Pull(push.address, provider=provider) as second:
            with await second.pull() as item:
                assert (bytes(item.data), item.redelivered, item.number) == (b"first", True, 0)
            await push.drain()
        assert push.statistics().redelivered == 1


async def test_items_that_were_not_pulled_go_back(provider: str) -> None:
    async with Push(listen=(HOST, 0), provider=provider) as push:
        async with Pull(push.address, provider=provider):
            await push.push_many([b"x"] * 100)
            await push.push(bytes(LARGE))
        assert push.statistics().not_acknowledged == 101
        async with Pull(push.address, provider=provider, producers=None) as pull:
            seen = Deduplicate()
            for _ in range(101):
                with await pull.pull() as item:
                    assert item.redelivered
                    assert not seen.seen(item)
            await push.drain()


async def test_a_full_consumer_holds_the_producer(provider: str) -> None:
    async with joined(provider, {"window": 10}) as (push, pull):
        for _ in range(10):
            await push.push(b"x")
        with anyio.move_on_after(0.1) as scope:
            await push.push(b"y")
        assert scope.cancelled_caught
        assert push.statistics().pushed == 10  # the cancelled one is not among them
        (await pull.pull()).ack()
        await push.push(b"z")
        items = [await pull.pull() for _ in range(10)]
        assert [bytes(item.data) for item in items] == [b"x"] * 9 + [b"z"]
        for item in items:
            item.ack()


async def test_the_bytes_of_a_producer_are_bounded(provider: str) -> None:
    async with joined(provider, {"window_bytes": 100 * LARGE}, max_unacknowledged_bytes=3 * LARGE) as (push, pull):
        with anyio.move_on_after(0.2) as scope:
            for _ in range(10):
                await push.push(bytes(LARGE))
        assert scope.cancelled_caught
        assert push.statistics().bytes_kept <= 3 * LARGE
        for _ in range(push.statistics().pushed):
            with await pull.pull():
                pass


async def test_no_item_is_larger_than_its_consumer_takes(provider: str) -> None:
    async with joined(provider, {"max_item_size": 1000}) as (push, pull):
        await push.push_many([b"a", b"b" * 1000])
        for items in ([bytes(2000)], [b"a", bytes(2000)], [b"a", bytes(1 << 20)]):
            with pytest.raises(ValueError, match="the most is 1000"):
                await push.push_many(items)
        assert push.statistics().pushed == 4
        for size in (1, 1000, 1, 1):
            with await pull.pull() as item:
                assert len(item) == size


async def test_items_are_shared_out_by_speed(provider: str) -> None:
    taken = {"fast": 0, "slow": 0}
    async with Push(listen=(HOST, 0), provider=provider) as push, anyio.create_task_group() as tasks:

        async def consume(name: str, seconds: float) -> None:
            async with Pull(push.address, provider=provider, window=4) as pull:
                async for _ in pull:
                    taken[name] += 1
                    if seconds:
                        await anyio.sleep(seconds)

        tasks.start_soon(consume, "fast", 0.0)
        tasks.start_soon(consume, "slow", 0.05)
        await until(lambda: len(push.statistics().consumers) == 2)
        for _ in range(200):
            await push.push(b"x")
        await push.drain()
        tasks.cancel_scope.cancel()
    assert taken["fast"] + taken["slow"] == 200
    assert taken["slow"] < 50


async def test_the_stream_ends_when_all_producers_have_ended(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider, producers=3) as pull, anyio.create_task_group() as tasks:

        async def produce(name: bytes) -> None:
            async with Push(pull.address, provider=provider) as push:
                await push.push_many([name] * 50)

        for name in (b"a", b"b", b"c"):
            tasks.start_soon(produce, name)
        found = await all_of(pull)
        assert {name: found.count(name) for name in (b"a", b"b", b"c")} == {b"a": 50, b"b": 50, b"c": 50}


async def test_either_side_may_start_first(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="aiofabric.pipeline")
    async with Pull(listen=(HOST, 0), provider=provider) as once:
        port = once.address.port
    assert port is not None
    async with anyio.create_task_group() as tasks:

        async def produce() -> None:
            async with Push((HOST, port), provider=provider) as push:
                await push.push(b"early")

        tasks.start_soon(produce)
        await until(lambda: "no connection with" in caplog.text)
        assert all(record.levelno < logging.ERROR for record in caplog.records)  # it is no mistake yet
        async with Pull(listen=(HOST, port), provider=provider) as pull:
            assert await all_of(pull) == [b"early"]


async def test_a_break_does_not_acknowledge(provider: str) -> None:
    async with joined(provider) as (push, pull):
        await push.push(b"one")
        async for item in pull:
            last = item
            break
        assert push.statistics().not_acknowledged == 1
        last.ack()
        await push.drain()


async def test_many_tasks_pull_from_one_consumer(provider: str) -> None:
    found: list[int] = []
    async with Pull(listen=(HOST, 0), provider=provider) as pull, anyio.create_task_group() as tasks:

        async def consume() -> None:
            async for item in pull:
                found.append(item.number)
                await anyio.lowlevel.checkpoint()

        for _ in range(5):
            tasks.start_soon(consume)
        async with Push(pull.address, provider=provider) as push:
            await push.push_many([b"x"] * 1000)
    assert sorted(found) == list(range(1000))


async def test_a_cancelled_pull_loses_nothing(provider: str) -> None:
    async with joined(provider) as (push, pull):
        for number in range(20):
            with anyio.move_on_after(0.001):
                await pull.pull()
            await push.push(str(number).encode())
            with await pull.pull() as item:
                assert bytes(item.data) == str(number).encode()


async def test_an_exception_in_the_block_is_not_wrapped(provider: str) -> None:
    async def fail() -> None:
        async with joined(provider) as (push, _):
            await push.push(b"never acknowledged")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_tasks_that_wait_are_told_of_the_end(provider: str) -> None:
    told: list[str] = []

    async def wait(name: str, waiting: Any) -> None:
        with pytest.raises(ClosedResourceError):
            await waiting()
        told.append(name)

    async def fail(tasks: Any) -> None:
        async with joined(provider, {"window": 1}) as (push, pull):
            await push.push(b"one")
            item = await pull.pull()
            for name, waiting in (("drain", push.drain), ("push", lambda: push.push(b"two")), ("pull", pull.pull)):
                tasks.start_soon(wait, name, waiting)
            await until(lambda: push.statistics().waiting == 1)
            raise ZeroDivisionError(item)

    async with anyio.create_task_group() as tasks:
        with pytest.raises(ZeroDivisionError):
            await fail(tasks)
    assert sorted(told) == ["drain", "pull", "push"]


LEAVES = """
    import sys
    from contextlib import suppress
    import anyio
    from aiofabric.pipeline import Pull

    _, host, port, provider, backend = sys.argv

    async def main():
        with suppress(KeyError):
            async with Pull((host, int(port)), provider=provider) as pull:
                async for _ in pull:
                    raise KeyError

    anyio.run(main, backend=backend)
"""


AFTER_A_CLOSED_LOOP = """
    import asyncio
    import os
    import sys
    from aiofabric.pipeline import Pull, Push

    _, provider = sys.argv

    async def begin():
        pull = await Pull(listen="127.0.0.1:0", provider=provider).__aenter__()
        push = await Push(pull.address, provider=provider).__aenter__()
        for _ in range(3):
            await push.push(b"item")  # all but the first one wait for the end of an iteration
        return pull, push

    async def go_on():
        async with Pull(listen="127.0.0.1:0", provider=provider) as pull, Push(pull.address, provider=provider) as push:
            for _ in range(100):
                await push.push_many([b"one", b"two"])
                await push.push(b"three")
                for _ in range(3):
                    with await pull.pull():
                        pass
        return push.statistics().acknowledged

    loop = asyncio.new_event_loop()
    left = loop.run_until_complete(begin())
    loop.close()
    print(asyncio.run(go_on()), flush=True)
    os._exit(0)  # what is left belongs to no loop
"""


async def test_items_that_wait_in_a_loop_that_has_ended_harm_no_other_loop(provider: str) -> None:
    ended = await anyio.to_thread.run_sync(run_in_child, AFTER_A_CLOSED_LOOP, provider)
    assert (ended.status, ended.out.strip(), ended.err) == (0, "300", "")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_process_that_leaves_while_large_items_are_read_ends_in_order(provider: str, backend: str) -> None:
    with anyio.CancelScope() as scope:
        async with Push(listen=(HOST, 0), provider=provider) as push, anyio.create_task_group() as tasks:

            async def produce() -> None:
                while True:
                    await push.push(bytearray(LARGE))

            tasks.start_soon(produce)
            arguments = HOST, str(push.address.port), provider, backend
            ended = await anyio.to_thread.run_sync(run_in_child, LEAVES, *arguments)
            scope.cancel()  # no consumer acknowledges the rest
    assert (ended.status, ended.err) == (0, "")


async def test_pipelines_leave_nothing_behind(provider: str) -> None:
    before = len(live_resources())
    for _ in range(3):
        async with Pull(listen=(HOST, 0), provider=provider) as pull, anyio.create_task_group() as tasks:
            tasks.start_soon(all_of, pull)
            async with Push(pull.address, provider=provider) as push:
                await push.push_many([bytes(LARGE), b"small", bytes(LARGE)])
    assert len(live_resources()) == before


def item(number: int) -> Item:
    return SimpleNamespace(producer=b"p", number=number)  # type: ignore[return-value]


def test_deduplicate_takes_the_memory_that_it_states() -> None:
    seen, numbers = Deduplicate(most=20_000), [1_000_000 + number for number in range(40_000)]
    tracemalloc.start()
    for number in numbers:
        seen.seen(item(number))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 20_000 * 250


def test_deduplicate_forgets_the_oldest() -> None:
    seen = Deduplicate(most=2)
    assert [seen.seen(item(number)) for number in (1, 2, 1, 3, 1, 3)] == [False, False, True, False, False, True]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 2)])
async def test_an_empty_array_of_any_shape_is_an_item_of_0_bytes(provider: str, shape: tuple[int, ...]) -> None:
    async with joined(provider) as (push, pull):
        await push.push(numpy.zeros(shape))
        await push.push([b"part", numpy.zeros(shape)])
        with await pull.pull() as item:
            assert bytes(item.data) == b""
        with await pull.pull() as item:
            assert [bytes(part) for part in item.parts] == [b"part", b""]
