"""Topics: the frames of publish and subscribe, beside those of `frames`. They begin with the same header.

PUBLISHED carries ``count`` small publications: the lengths of their heads (four bytes each), of their data (four bytes
each), their numbers (eight bytes each), then the heads, then the data. A larger publication, or one of several parts,
travels as an ITEM, whose header is the head. A head is the lengths of topic and key (two bytes each), topic and key in
UTF-8, and the program's header.

SUBSCRIBE is the subscriber's, its first frame, and sent again when its topics change: ``count`` prefixes (the length in
two bytes, then UTF-8); the flag LAST_VALUES asks for the last value of each key, and ``size`` is the policy.

DROPPED tells the subscriber how many publications were dropped for it so far (``number``); TOO_SLOW, that the publisher
ends the connection for that reason.
"""

from __future__ import annotations

import struct
from array import array
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from .frames import HEADER, ProtocolError, array_in

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DROPPED",
    "MOST_NAME",
    "PUBLICATION_COST",
    "PUBLISHED",
    "SUBSCRIBE",
    "TOO_SLOW",
    "Publications",
    "Subscribed",
    "WhenSlow",
    "decode_head",
    "decode_published",
    "decode_subscribe",
    "encode_head",
    "encode_published",
    "encode_subscribe",
]

PUBLISHED: Final = 5
SUBSCRIBE: Final = 6
DROPPED: Final = 7
TOO_SLOW: Final = 8

LAST_VALUES: Final = 1

PUBLICATION_COST: Final = 16
"""Bytes of a small publication's lengths and number in a frame."""
MOST_NAME: Final = 1024
"""Bytes of a topic or a key."""

_HEAD: Final = struct.Struct("<HH")
_LENGTH: Final = struct.Struct("<H")


class WhenSlow(IntEnum):
    """The action of a publisher when a subscriber has no room, and its queue for that subscriber is full."""

    HOLD = 0
    DROP_OLDEST = 1
    KEEP_LAST = 2
    DISCONNECT = 3


class Publications(NamedTuple):
    """Small publications of one frame, in order."""

    heads: list[bytes]
    items: list[bytes]
    numbers: list[int]


class Subscribed(NamedTuple):
    """A subscriber's wishes."""

    topics: tuple[str, ...]
    when_slow: WhenSlow
    last_values: bool


def encode_head(topic: bytes, key: bytes, header: bytes) -> bytes:
    """The head of a publication."""
    return _HEAD.pack(len(topic), len(key)) + topic + key + header


def decode_head(head: bytes) -> tuple[str, str, bytes]:
    """Topic, key and header."""
    if len(head) < _HEAD.size:
        raise ProtocolError(f"a publication's head has {len(head)} bytes")
    topic_size, key_size = _HEAD.unpack_from(head)
    start = _HEAD.size + topic_size
    end = start + key_size
    if end > len(head):
        raise ProtocolError(f"a publication's head of {len(head)} bytes ends inside its topic or key")
    try:
        return head[_HEAD.size : start].decode(), head[start:end].decode(), head[end:]
    except UnicodeDecodeError:
        raise ProtocolError("a topic or a key is not UTF-8") from None


def encode_published(heads: Sequence[bytes], items: Sequence[bytes], numbers: Sequence[int]) -> bytes:
    """A frame of small publications."""
    return b"".join(
        (
            HEADER.pack(PUBLISHED, 0, len(items), 0, 0),
            array("I", map(len, heads)).tobytes(),
            array("I", map(len, items)).tobytes(),
            array("Q", numbers).tobytes(),
            *heads,
            *items,
        )
    )


def decode_published(frame: memoryview) -> Publications:
    """The publications of a frame, copied."""
    count = HEADER.unpack_from(frame)[2]
    data = bytes(frame)
    lengths = array_in("I", data, HEADER.size, 2 * count)
    start = HEADER.size + 8 * count
    numbers = array_in("Q", data, start, count).tolist()
    ends = list(accumulate(lengths, initial=start + 8 * count))
    if not count or ends[-1] != len(data):
        raise ProtocolError(f"a frame of {len(data)} bytes for {count} publications of {sum(lengths)} bytes")
    pieces = [data[start:end] for start, end in pairwise(ends)]
    return Publications(pieces[:count], pieces[count:], numbers)


def encode_subscribe(wishes: Subscribed) -> bytes:
    """A subscriber's wishes."""
    flags = LAST_VALUES * wishes.last_values
    names = [topic.encode() for topic in wishes.topics]
    pieces = [piece for name in names for piece in (_LENGTH.pack(len(name)), name)]
    return HEADER.pack(SUBSCRIBE, flags, len(names), wishes.when_slow, 0) + b"".join(pieces)


def decode_subscribe(frame: memoryview) -> Subscribed:
    """The wishes of a subscriber."""
    _, flags, count, when_slow, _ = HEADER.unpack_from(frame)
    if when_slow not in WhenSlow.__members__.values():
        raise ProtocolError(f"a subscriber asks for the policy {when_slow}")
    data, at = bytes(frame), HEADER.size
    topics: list[str] = []
    for _ in range(count):
        start = at + _LENGTH.size
        if start > len(data):
            break
        at = start + _LENGTH.unpack_from(data, at)[0]
        try:
            topics.append(data[start:at].decode())
        except UnicodeDecodeError:
            raise ProtocolError("a topic is not UTF-8") from None
    if len(topics) != count or at != len(data):
        raise ProtocolError(f"a frame of {len(data)} bytes for {count} topics")
    return Subscribed(tuple(topics), WhenSlow(when_slow), bool(flags & LAST_VALUES))
