"""Queues are found in the memory of an endpoint only if everything about them fits: other memory is never written."""

from typing import Any

import pytest

from aiofabric._ffi import ffi
from aiofabric.transport.workarounds.shm_orphaned_entries import EMPTY_AT, queues_of

pytestmark = pytest.mark.once

VERSION, PARTS, COUNT, HEAD = 8, 80, 7, 192
OFFSET, SIZE, STRIDE = 512, 4, 576
END = OFFSET + HEAD + SIZE * STRIDE
WHOLE = END + 64


def memory(
    *, version: int = VERSION, size: int = SIZE, offset: int = OFFSET, end: int = END, length: int = WHOLE
) -> Any:
    """The memory of an endpoint of 2.0 to 2.4, with one queue; ``end`` is where the next part begins."""
    start = ffi.new("char[]", length)
    ffi.cast("uint8_t *", start)[0] = version
    parts = ffi.cast("int64_t *", start + PARTS)
    for number in range(COUNT):
        parts[number] = end + number - 1
    parts[0] = offset
    if 0 < offset < length - HEAD:
        ffi.cast("int32_t *", start + offset + 128)[0] = size
    return start


def test_a_queue_is_found_where_the_table_says() -> None:
    start = memory()
    ((offset, queue),) = queues_of(start)
    assert (offset, queue.size, queue.start) == (OFFSET, SIZE, start + OFFSET)
    assert len(list(queues_of(memory(length=END)))) == 1  # at the end of the memory


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 7},
        {"version": 9},
        {"size": 0},
        {"size": -4},
        {"size": 3},
        {"size": 8},
        {"size": 2},
        {"offset": 0},
        {"offset": -64},
        {"offset": WHOLE + 1},
        {"end": END + 1},
        {"end": END - 1},
        {"end": WHOLE + 1},
    ],
    ids=str,
)
def test_a_queue_that_does_not_fit_is_left_alone(wrong: dict[str, int]) -> None:
    assert list(queues_of(memory(**wrong))) == []


def word(queue: Any, position: int) -> Any:
    return ffi.cast("int64_t *", queue.place(position))


def test_claimed_entries_are_those_between_both_positions_that_nobody_published() -> None:
    start = memory()
    ((_, queue),) = queues_of(start)
    written, read = ffi.cast("int64_t *", queue.start), ffi.cast("int64_t *", queue.start + 64)
    for position in range(SIZE):
        word(queue, position)[0] = position  # free in the first round
    assert list(queue.unpublished()) == []
    written[0] = 3
    word(queue, 1)[0] = 2  # published
    assert list(queue.unpublished()) == [0, 2]
    read[0] = 2
    assert list(queue.unpublished()) == [2]
    read[0], written[0] = 4, 100  # no more than the queue has
    for position in range(4, 8):
        word(queue, position)[0] = position
    assert list(queue.unpublished()) == [4, 5, 6, 7]
    assert queue.plausible
    word(queue, 6)[0] = 8
    assert not queue.plausible


@pytest.mark.parametrize("position", [2, 6])
def test_an_entry_is_published_as_empty_in_its_place(position: int) -> None:
    start = memory()
    ((_, queue),) = queues_of(start)
    for number in range(SIZE):
        word(queue, number)[0] = 4 + number if number < 2 else number
    before = bytes(ffi.buffer(queue.start, HEAD + SIZE * STRIDE))
    queue.publish_empty(position)
    place = queue.place(position)
    assert place == queue.start + HEAD + 2 * STRIDE
    assert (word(queue, position)[0], place[EMPTY_AT]) == (position + 1, b"\1")
    after = bytes(ffi.buffer(queue.start, HEAD + SIZE * STRIDE))
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    first = HEAD + 2 * STRIDE
    assert set(changed) <= {*range(first, first + 8), first + EMPTY_AT}
