"""Frames: one fabric message each, little-endian. All begin with a header of 16 bytes::

    byte 0       kind: ITEMS, ITEM, ROW, FULL, DRAINING, END from the producer; ACK, READ from the consumer
    byte 1       flags: REDELIVERED, NUMBERED
    bytes 2-3    count
    bytes 4-7    size
    bytes 8-15   number

ITEMS carries ``count`` small items: their lengths (four bytes each), with NUMBERED also their numbers (eight bytes
each), then the items. Without NUMBERED they have ``number`` and those that follow it.

ITEM carries one item of ``count`` parts behind a header of ``size`` bytes: the size of each part (eight bytes), the
header, then the parts, with zeros before each up to a multiple of 64 bytes. So the memory of a receive can be lent to
the consumer: an array over it has aligned values. A part whose size has the bit EXPOSED stays in the producer's
memory; two bytes of length and the description of that memory come in its place, and the consumer reads it (RMA). When
it has read all of them it says READ, with the item's place among those of the connection as ``number``.

ROW carries ``count`` items of one part and no header, whose sizes are multiples of 64 bytes: their sizes and their
numbers (eight bytes each), zeros up to a multiple of 64 bytes, then the items.

ACK gives back the credits of items: ``count`` ranges of places, each as its start and end (eight bytes each). FULL says
that the producer has waited for a while for acknowledgements, also of this consumer: nothing else comes before.
DRAINING says that the producer has no new items, and waits for acknowledgements; items of a consumer that has left may
still come. END says that all were acknowledged.
"""

from __future__ import annotations

import struct
from array import array
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ACK",
    "DRAINING",
    "END",
    "EXPOSED",
    "FULL",
    "HEADER",
    "ITEM",
    "ITEMS",
    "ITEM_COST",
    "MOST_IN_ROW",
    "MOST_ITEMS",
    "MOST_PARTS",
    "PART_ALIGNMENT",
    "READ",
    "REDELIVERED",
    "ROW",
    "LargeItem",
    "ProtocolError",
    "SmallItems",
    "aligned",
    "array_in",
    "decode_ack",
    "decode_item",
    "decode_items",
    "decode_one_part",
    "decode_row",
    "encode_ack",
    "encode_item",
    "encode_items",
    "encode_row",
    "encode_signal",
]

ITEMS: Final = 0
ITEM: Final = 1
END: Final = 2
ACK: Final = 3
READ: Final = 4
DRAINING: Final = 9  # 5 to 8: see `topics`
FULL: Final = 10
ROW: Final = 11

REDELIVERED: Final = 1
NUMBERED: Final = 2

HEADER: Final = struct.Struct("<BBHIQ")
EXPOSED: Final = 1 << 63
_ONE_ITEM: Final = struct.Struct("<BBHIQI")  # a header, and the length of the only item
_ONE_PART: Final = struct.Struct("<BBHIQQ")  # a header, and the size of the only part
_ONE_RANGE: Final = struct.Struct("<BBHIQQQ")  # a header, and the start and end of the only range
_PLAIN_PART: Final = struct.Struct("<BBHIQQ40x")  # the same, and zeros up to the part: the item has no header

MOST_ITEMS: Final = 65535
"""Items of one frame."""
MOST_PARTS: Final = 256
"""Parts of one item."""
MOST_IN_ROW: Final = 3
"""Items of one row. With the start of its frame they are four pieces: as many as most providers send without a copy."""
MOST_RANGES: Final = 2048
"""Ranges of one ACK."""

PART_ALIGNMENT: Final = 64
"""Bytes: the first part of an item begins at a multiple of it in the frame, and each part in lent memory."""

ITEM_COST: Final = 64
"""Bytes that an item takes at the consumer in addition to its data; they count as its data does."""

_ROW_START: Final = {
    count: struct.Struct(f"<BBHIQ{2 * count}Q{-(HEADER.size + 16 * count) % PART_ALIGNMENT}x")
    for count in range(1, MOST_IN_ROW + 1)
}
"""By the number of items: what comes before them."""

_DESCRIBED: Final = struct.Struct("<H")
_JOINED: Final = 4096
"""Bytes up to which a part is copied: a piece of its own costs more."""

assert array("I").itemsize == 4
assert array("Q").itemsize == 8


class ProtocolError(Exception):
    """The peer has sent bytes that the protocol does not have."""


class SmallItems(NamedTuple):
    """Items of one frame, in order. ``numbers`` are a range, or a list where they do not follow each other."""

    items: list[bytes]
    numbers: Sequence[int]
    redelivered: bool


class LargeItem(NamedTuple):
    """One item. A part is its bytes, or its size and the description of the producer's memory."""

    header: bytes
    parts: list[memoryview | tuple[int, bytes]]
    number: int
    redelivered: bool
    size: int  # bytes of the header and the parts


def encode_items(items: Sequence[bytes], numbers: Sequence[int], redelivered: bool = False) -> bytes:
    """A frame of small items."""
    if len(items) == 1:  # 0.3 us instead of 0.8
        item = items[0]
        return _ONE_ITEM.pack(ITEMS, REDELIVERED * redelivered, 1, 0, numbers[0], len(item)) + item
    flags = REDELIVERED * redelivered
    lengths = array("I", map(len, items)).tobytes()
    if numbers[-1] - numbers[0] == len(numbers) - 1:  # they grow, so they follow each other
        return b"".join((HEADER.pack(ITEMS, flags, len(items), 0, numbers[0]), lengths, *items))
    each = array("Q", numbers).tobytes()
    return b"".join((HEADER.pack(ITEMS, flags | NUMBERED, len(items), 0, 0), lengths, each, *items))


def decode_items(frame: memoryview) -> SmallItems:
    """The items of a frame, copied."""
    start = _ONE_ITEM.size
    if len(frame) >= start:  # the usual case of an idle pipeline: 1.3 us instead of 1.9
        _, flags, count, _, first, size = _ONE_ITEM.unpack_from(frame)
        if count == 1 and not flags & NUMBERED and len(frame) == start + size:
            return SmallItems([bytes(frame[start:])], range(first, first + 1), flags & REDELIVERED != 0)
    _, flags, count, _, first = HEADER.unpack_from(frame)
    data = bytes(frame)
    lengths = array_in("I", data, HEADER.size, count)
    at = HEADER.size + 4 * count
    numbers: Sequence[int] = range(first, first + count)
    if flags & NUMBERED:
        numbers = array_in("Q", data, at, count).tolist()
        at += 8 * count
    ends = list(accumulate(lengths, initial=at))
    if not count or ends[-1] != len(data):
        raise ProtocolError(f"a frame of {len(data)} bytes for {count} items of {sum(lengths)} bytes")
    return SmallItems([data[start:end] for start, end in pairwise(ends)], numbers, bool(flags & REDELIVERED))


def encode_item(header: bytes, parts: Sequence[Any], number: int, redelivered: bool = False) -> list[Any]:
    """A frame of one item, as the pieces of a fabric message; a part ``(size, description)`` is read by the peer."""
    if len(parts) == 1 and type(part := parts[0]) is bytes:  # 0.3 us instead of 1
        flags = REDELIVERED * redelivered
        if not header:
            return [_PLAIN_PART.pack(ITEM, flags, 1, 0, number, len(part)), part]
        return [_padded(_ONE_PART.pack(ITEM, flags, 1, len(header), number, len(part)) + header), part]
    sizes = array("Q", [part[0] | EXPOSED if isinstance(part, tuple) else len(part) for part in parts])
    start = HEADER.pack(ITEM, REDELIVERED * redelivered, len(parts), len(header), number)
    pieces: list[Any] = []
    joined = bytearray(start + sizes.tobytes() + header)  # what comes before the next large part
    at = len(joined)
    for part in parts:
        joined += bytes(-at % PART_ALIGNMENT)
        piece = _DESCRIBED.pack(len(part[1])) + part[1] if isinstance(part, tuple) else part
        at = aligned(at) + len(piece)
        if len(piece) <= _JOINED:
            joined += piece
        else:
            if joined:
                pieces.append(bytes(joined))
                joined = bytearray()
            pieces.append(piece)
    if joined:
        pieces.append(bytes(joined))
    return pieces


def _padded(start: bytes) -> bytes:
    return start.ljust(aligned(len(start)), b"\0")


def aligned(size: int) -> int:
    """The next multiple of `PART_ALIGNMENT`."""
    return -(-size // PART_ALIGNMENT) * PART_ALIGNMENT


def decode_one_part(frame: memoryview) -> tuple[bytes, int, int, bool] | None:
    """An item whose only part is in the frame, the usual case: its header, where the part starts, its number, and
    whether it is redelivered. None: use `decode_item`, which took 1 us more.
    """
    if len(frame) < _ONE_PART.size:
        return None
    _, flags, count, header_size, number, size = _ONE_PART.unpack_from(frame)
    end = _ONE_PART.size + header_size
    start = aligned(end)
    if count != 1 or start + size != len(frame):  # a part that is exposed has another size
        return None
    header = bytes(frame[_ONE_PART.size : end]) if header_size else b""
    return header, start, number, flags & REDELIVERED != 0


def decode_item(frame: memoryview) -> LargeItem:
    """The item of a frame; its parts are slices of the frame."""
    whole = len(frame)
    _, flags, count, header_size, number = HEADER.unpack_from(frame)
    sizes = array_in("Q", frame, HEADER.size, count)
    at = HEADER.size + 8 * count
    start = aligned(at + header_size)
    if not 0 < count <= MOST_PARTS or whole < start:
        raise ProtocolError(f"a frame of {whole} bytes for an item of {count} parts")
    header = bytes(frame[at : at + header_size])
    end = at + header_size
    total = header_size
    parts: list[memoryview | tuple[int, bytes]] = []
    for each in sizes:
        at = aligned(end)
        size = each & ~EXPOSED
        total += size
        if each & EXPOSED:
            described = at + _DESCRIBED.size
            if described > whole:
                raise ProtocolError("a frame ends inside the description of memory")
            end = described + _DESCRIBED.unpack_from(frame, at)[0]
            parts.append((size, bytes(frame[described:end])))
        else:
            end = at + size
            parts.append(frame[at:end])
        if end > whole:
            raise ProtocolError(f"a frame of {whole} bytes ends inside a part of {size} bytes")
    if end != whole:
        raise ProtocolError(f"a frame of {whole} bytes for an item of {end} bytes")
    return LargeItem(header, parts, number, bool(flags & REDELIVERED), total)


def encode_row(items: Sequence[bytes], numbers: Sequence[int]) -> list[bytes]:
    """A frame of items whose sizes are multiples of `PART_ALIGNMENT`, as the pieces of a fabric message."""
    count = len(items)
    return [_ROW_START[count].pack(ROW, 0, count, 0, 0, *map(len, items), *numbers), *items]


def decode_row(frame: memoryview) -> tuple[int, Sequence[int], Sequence[int]]:
    """Where the first item of a row starts, the sizes of the items, and their numbers."""
    count = HEADER.unpack_from(frame)[2]
    layout = _ROW_START.get(count)
    if layout is None or len(frame) < layout.size:
        raise ProtocolError(f"a frame of {len(frame)} bytes for a row of {count} items")
    found = layout.unpack_from(frame)
    sizes = found[5 : 5 + count]
    end, bits = layout.size, 0
    for size in sizes:
        end += size
        bits |= size
    if end != len(frame) or bits % PART_ALIGNMENT:
        raise ProtocolError(f"a frame of {len(frame)} bytes for a row of items of {sizes} bytes")
    return layout.size, sizes, found[5 + count :]


def encode_ack(ranges: Sequence[tuple[int, int]]) -> bytes:
    """A frame that acknowledges ranges of places."""
    if len(ranges) == 1:  # 0.3 us instead of 0.8
        return _ONE_RANGE.pack(ACK, 0, 1, 0, 0, *ranges[0])
    return HEADER.pack(ACK, 0, len(ranges), 0, 0) + array("Q", [each for pair in ranges for each in pair]).tobytes()


def decode_ack(frame: memoryview) -> list[tuple[int, int]]:
    """The ranges of a frame, each as start and end."""
    if len(frame) == _ONE_RANGE.size:  # 0.3 us instead of 1.1
        _, _, count, _, _, start, end = _ONE_RANGE.unpack_from(frame)
        if count == 1:
            return [(start, end)]
    count = HEADER.unpack_from(frame)[2]
    if len(frame) != HEADER.size + 16 * count or count > MOST_RANGES:
        raise ProtocolError(f"an acknowledgement of {len(frame)} bytes for {count} ranges")
    places = array("Q", bytes(frame[HEADER.size :]))
    return list(zip(places[::2], places[1::2], strict=True))


def array_in(kind: str, data: bytes | memoryview, start: int, count: int) -> array[int]:
    """``count`` numbers of a frame."""
    found = array(kind)
    end = start + count * found.itemsize
    if end > len(data):
        raise ProtocolError(f"a frame of {len(data)} bytes ends inside {count} numbers")
    found.frombytes(data[start:end])
    return found


def encode_signal(kind: int, number: int = 0) -> bytes:
    """END, DRAINING or READ."""
    return HEADER.pack(kind, 0, 0, 0, number)
