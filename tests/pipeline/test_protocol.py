"""The protocol of pipelines without a fabric: which consumer gets which item, and what comes back."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from aiofabric.pipeline.protocol.frames import (
    HEADER,
    ITEM_COST,
    ROW,
    ProtocolError,
    decode_ack,
    decode_item,
    decode_items,
    decode_row,
    encode_ack,
    encode_item,
    encode_items,
    encode_row,
)
from aiofabric.pipeline.protocol.groups import Large, cost_of
from aiofabric.pipeline.protocol.hello import Hello, HelloError, Role
from aiofabric.pipeline.protocol.receipts import Receipts
from aiofabric.pipeline.protocol.sharing import Outgoing, Sharing

if TYPE_CHECKING:
    from aiofabric.pipeline.protocol.groups import ItemGroup

pytestmark = pytest.mark.once

PUSH = Hello(Role.PUSH, b"p" * 16, 65536, at_least_once=True)
PULL = Hello(Role.PULL, b"c" * 16, 65536, 8, 4096, 1 << 20)


def sharing(*, at_least_once: bool = True, most: int = 100, most_bytes: int = 1 << 20) -> Sharing:
    return Sharing(at_least_once=at_least_once, most=most, most_bytes=most_bytes)


def room_for(window: int, window_bytes: int) -> Hello:
    return Hello(Role.PULL, b"c" * 16, 65536, window, window_bytes, 1 << 20)


def consumer(window: int = 4, window_bytes: int = 1 << 20) -> tuple[Outgoing, list[ItemGroup]]:
    sent: list[ItemGroup] = []
    return Outgoing(room_for(window, window_bytes), sent.append), sent


def push(producer: Sharing, *items: bytes) -> list[bool]:
    return [producer.push(item, ITEM_COST + len(item)) >= 0 for item in items]


def items_of(sent: list[ItemGroup]) -> list[bytes]:
    return [item for sent in sent for item in sent.items]


# -- hellos


def test_each_side_gets_what_the_other_announced() -> None:
    assert PULL.check_other(PUSH.pack()) == PUSH
    assert PUSH.check_other(PULL.pack()) == PULL


def test_two_ends_of_the_same_role_do_not_meet() -> None:
    with pytest.raises(HelloError, match="a Push connects with a Pull, not with a "):
        PUSH.check_other(PUSH.pack())


@pytest.mark.parametrize("param", [b"", b"aioF" + bytes(44), PULL.pack() + b"x", PULL.pack()[:-1]])
def test_another_protocol_is_named(param: bytes) -> None:
    with pytest.raises(HelloError, match="is not"):
        PUSH.check_other(param)


def test_another_version_is_named() -> None:
    param = bytearray(PULL.pack())
    param[4] = 9
    with pytest.raises(HelloError, match="version 9"):
        PUSH.check_other(bytes(param))


def test_a_consumer_without_room_is_refused() -> None:
    with pytest.raises(HelloError, match="room"):
        PUSH.check_other(room_for(0, 4096).pack())


# -- frames


@pytest.mark.parametrize("numbers", [range(7, 10), [1, 5, 6]])
def test_small_items_come_out_as_they_went_in(numbers: range | list[int]) -> None:
    found = decode_items(memoryview(encode_items([b"a", b"", b"ccc"], numbers, redelivered=True)))
    assert (found.items, list(found.numbers), found.redelivered) == ([b"a", b"", b"ccc"], list(numbers), True)


@pytest.mark.parametrize("item", [b"", b"item"])
@pytest.mark.parametrize("redelivered", [False, True])
def test_a_small_item_alone_comes_out_as_it_went_in(item: bytes, redelivered: bool) -> None:
    frame = memoryview(encode_items([item], [1 << 40], redelivered))
    found = decode_items(frame)
    assert (found.items, list(found.numbers), found.redelivered) == ([item], [1 << 40], redelivered)
    for wrong in (frame[:-1], memoryview(bytes(frame) + b"x")):
        with pytest.raises(ProtocolError, match="a frame of"):
            decode_items(wrong)


def test_a_large_item_comes_out_as_it_went_in() -> None:
    frame = b"".join(encode_item(b"head", [b"part", (1 << 20, b"where"), b""], 3))
    found = decode_item(memoryview(frame))
    assert found.parts == [b"part", (1 << 20, b"where"), b""]
    assert (found.header, found.number, found.redelivered) == (b"head", 3, False)
    assert found.size == 4 + 4 + (1 << 20)


@pytest.mark.parametrize("sizes", [(64,), (64, 128), (4160, 64, 65536)], ids=len)
def test_a_row_comes_out_as_it_went_in(sizes: tuple[int, ...]) -> None:
    items = [bytes([at]) * size for at, size in enumerate(sizes)]
    frame = b"".join(encode_row(items, range(5, 5 + len(sizes))))
    start, found, numbers = decode_row(memoryview(frame))
    assert start % 64 == 0
    assert (tuple(found), list(numbers)) == (sizes, [*range(5, 5 + len(sizes))])
    assert frame[start:] == b"".join(items)


@pytest.mark.parametrize(
    ("count", "sizes", "length"),
    [(0, (), 64), (4, (64,) * 4, 64 + 80 + 256), (1, (63,), 64 + 63), (2, (64, 128), 64 + 191), (2, (1 << 63, 0), 64)],
)
def test_a_row_of_another_size_is_an_error(count: int, sizes: tuple[int, ...], length: int) -> None:
    start = HEADER.pack(ROW, 0, count, 0, 0) + struct.pack(f"<{2 * count}Q", *sizes, *range(count))
    with pytest.raises(ProtocolError, match="for a row of"):
        decode_row(memoryview(start.ljust(length, b"\0")))


def test_ranges_come_out_as_they_went_in() -> None:
    assert decode_ack(memoryview(encode_ack([(0, 3), (9, 10)]))) == [(0, 3), (9, 10)]


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_a_frame_that_was_cut_is_an_error(cut: int) -> None:
    frames = (
        (decode_items, encode_items([b"abc", b"defgh"], [1, 4])),
        (decode_item, b"".join(encode_item(b"h", [b"part", (9, b"where")], 1))),
        (decode_row, b"".join(encode_row([bytes(64), bytes(128)], [1, 4]))),
        (decode_ack, encode_ack([(0, 3)])),
    )
    for decode, frame in frames:
        with pytest.raises(ProtocolError):
            decode(memoryview(frame[:-cut]))
        with pytest.raises(ProtocolError):
            decode(memoryview(frame + b"x" * cut))


# -- sharing


def test_items_wait_for_a_consumer() -> None:
    producer = sharing()
    assert push(producer, b"a") == [False]
    one, sent = consumer()
    producer.join(one)
    assert push(producer, b"a") == [True]
    assert items_of(sent) == [b"a"]


def test_consumers_take_turns_and_a_full_one_is_left_out() -> None:
    producer = sharing()
    (one, first), (two, second) = consumer(window=1), consumer(window=3)
    producer.join(one)
    producer.join(two)
    assert push(producer, b"a", b"b", b"c", b"d", b"e") == [True] * 4 + [False]
    assert (items_of(first), items_of(second)) == ([b"a"], [b"b", b"c", b"d"])


def test_an_acknowledgement_gives_room() -> None:
    producer = sharing()
    one, sent = consumer(window=2)
    producer.join(one)
    asked: list[str] = []
    producer.room = lambda: asked.append("room")
    producer.idle = lambda: asked.append("idle")
    push(producer, b"a", b"b")
    producer.acked(one, 0, 1)
    assert asked == ["room"]
    assert push(producer, b"c", b"d") == [True, False]
    producer.acked(one, 1, 3)
    assert asked == ["room", "idle", "room"]
    assert (producer.kept, producer.kept_bytes, producer.acknowledged) == (0, 0, 3)
    assert items_of(sent) == [b"a", b"b", b"c"]


def test_a_large_item_refers_to_no_memory_when_its_number_is_told() -> None:
    """A stage lends the memory to another item then."""
    producer, (one, _) = sharing(), consumer()
    producer.join(one)
    large, parts = Large(b"", (b"large",), 5), []
    producer.each_acked = lambda _: parts.append(large.parts)
    producer.push(large, cost_of(large))
    producer.acked(one, 0, 1)
    assert parts == [()]


def test_what_a_consumer_had_not_acknowledged_goes_to_another() -> None:
    producer = sharing()
    (one, _), (two, second) = consumer(), consumer()
    producer.join(one)
    push(producer, b"a", b"b", b"c")
    producer.acked(one, 1, 2)
    producer.join(two)
    producer.leave(one)
    assert [(sent.items, list(sent.numbers), sent.redelivered) for sent in second] == [
        ([b"a"], [0], True),
        ([b"c"], [2], True),
    ]
    assert (producer.redelivered, producer.kept) == (2, 2)
    producer.acked(two, 0, 2)
    assert producer.kept == 0


def test_what_comes_back_goes_before_new_items() -> None:
    producer = sharing()
    one, _ = consumer()
    producer.join(one)
    push(producer, b"a", b"b")
    producer.leave(one)
    two, sent = consumer(window=1)
    producer.join(two)
    assert push(producer, b"new") == [False]
    producer.acked(two, 0, 1)
    assert push(producer, b"new") == [False]
    producer.acked(two, 1, 2)
    assert push(producer, b"new") == [True]
    assert items_of(sent) == [b"a", b"b", b"new"]


def test_at_most_once_counts_what_is_lost() -> None:
    producer = sharing(at_least_once=False)
    (one, _), (two, second) = consumer(), consumer()
    producer.join(one)
    push(producer, b"a", b"b", b"c")
    producer.acked(one, 0, 1)
    producer.join(two)
    producer.leave(one)
    assert (producer.lost, producer.kept, second) == (2, 0, [])


def test_memory_is_bounded_and_a_larger_item_goes_alone() -> None:
    producer = sharing(most_bytes=1000)
    one, _ = consumer(window=100)
    producer.join(one)
    assert push(producer, b"x" * 5000, b"y") == [True, False]
    producer.acked(one, 0, 1)
    assert push(producer, b"y" * 500, b"z" * 500) == [True, False]


def test_an_item_larger_than_the_window_of_a_consumer_goes_alone() -> None:
    producer = sharing()
    one, _ = consumer(window=10, window_bytes=1000)
    producer.join(one)
    assert push(producer, b"a", b"x" * 5000) == [True, False]
    producer.acked(one, 0, 1)
    assert push(producer, b"x" * 5000, b"a") == [True, False]


def test_an_item_larger_than_a_consumer_takes_is_not_sent_to_it() -> None:
    producer = sharing(most_bytes=1 << 30)
    one, _ = consumer()
    producer.join(one)
    assert push(producer, bytes((1 << 20) + 1), bytes(1 << 20)) == [False, True]
    receipts = Receipts(room_for(2, 1000))
    with pytest.raises(ProtocolError, match="max_item_size here is 1048576"):
        receipts.arrived(1, (1 << 20) + 1 + ITEM_COST, (1 << 20) + 1)


def test_many_items_fill_frames_and_windows() -> None:
    producer = sharing(most=10_000)
    one, sent = consumer(window=3000)
    producer.join(one)
    items = [bytes(100)] * 5000
    at = 0
    while count := producer.push_some(items[at:]):
        at += count
    assert at == 3000
    frames = [encode_items(sent.items, sent.numbers) for sent in sent]
    assert all(len(frame) <= 65536 for frame in frames)
    assert len(frames) < 7


def test_an_open_row_takes_three_items_of_its_kind() -> None:
    producer = sharing()
    one, sent = consumer(window=20)
    producer.join(one)

    def push_large(*sizes: int, in_row: bool = True) -> None:
        for size in sizes:
            assert producer.push(Large(b"", (bytes(size),), size, in_row), ITEM_COST + size) >= 0

    push_large(64)
    one.leave_open(sent[-1])
    push_large(64, in_row=False)
    assert push(producer, b"small") == [True]
    push_large(64, 64, 64)
    assert [len(group.items) for group in sent] == [3, 1, 1, 1]
    push_large(30_000)
    one.leave_open(sent[-1])
    push_large(30_000, 30_000)  # the receive has 65,536 bytes
    assert [len(group.items) for group in sent[4:]] == [2, 1]
    one.leave_open(sent[2])
    push_large(64)
    assert [len(group.items) for group in sent[6:]] == [1]


def test_others_join_the_only_item_of_a_list() -> None:
    producer = sharing()
    one, sent = consumer()
    producer.join(one)
    assert producer.push_some([b"a"]) == 1
    one.leave_open(sent[-1])
    assert push(producer, b"b") == [True]
    assert [(list(group.items), list(group.numbers)) for group in sent] == [([b"a", b"b"], [0, 1])]


def test_lists_of_one_item_go_to_consumers_in_turn() -> None:
    producer = sharing()
    consumers = [consumer(), consumer()]
    for each, _ in consumers:
        producer.join(each)
    for number in range(4):
        assert producer.push_some([str(number).encode()]) == 1
    assert [items_of(sent) for _, sent in consumers] == [[b"0", b"2"], [b"1", b"3"]]


@pytest.mark.parametrize("places", [(0, 2), (1, 1), (-1, 1), (5, 9)])
def test_an_acknowledgement_of_what_was_not_sent_is_an_error(places: tuple[int, int]) -> None:
    producer = sharing()
    one, _ = consumer()
    producer.join(one)
    push(producer, b"a")
    with pytest.raises(ProtocolError, match="were sent"):
        producer.acked(one, *places)


def test_a_second_acknowledgement_gives_no_second_credit() -> None:
    producer = sharing()
    one, _ = consumer(window=2)
    producer.join(one)
    producer.push_some([b"a", b"b"])
    producer.acked(one, 0, 1)
    producer.acked(one, 0, 1)
    assert (one.items_left, producer.kept) == (1, 1)


# -- receipts


def test_places_are_acknowledged_as_ranges() -> None:
    receipts = Receipts(room_for(100, 1 << 20))
    assert receipts.arrived(10, 640, 0) == 0
    for place in (0, 1, 2, 9, 4, 3):
        receipts.ack(place, 64)
    assert receipts.unsent == 6
    assert receipts.take() == [(0, 5), (9, 10)]
    assert receipts.take() == []


def test_more_items_than_there_was_room_for_are_an_error() -> None:
    receipts = Receipts(room_for(2, 1000))
    receipts.arrived(2, 200, 36)
    with pytest.raises(ProtocolError, match="there was room for 0"):
        receipts.arrived(1, 100, 36)


def test_more_bytes_than_there_was_room_for_are_an_error_unless_they_come_alone() -> None:
    receipts = Receipts(room_for(10, 1000))
    assert receipts.arrived(1, 5000, 4936) == 0
    with pytest.raises(ProtocolError, match="bytes"):
        receipts.arrived(1, 100, 36)
    receipts.ack(0, 5000)
    assert receipts.arrived(1, 100, 36) == 1
