"""Arrow's Dissociated IPC protocol, without I/O: frames, tags, and what each side may send when.

The metadata stream is made of untagged messages: a byte (the kind), the sequence number (four bytes), then the
metadata of one IPC message. A body is a tagged message. Its tag has the sequence number in the lower four bytes, and
the type of the body in the highest byte. All numbers are little-endian.

The protocol leaves flow control to the transport. Here the client says how many messages it has taken, and the server
sends at most ``window`` messages more.

Over a provider where a large message may not arrive before its receive is posted (rxm), the client also says how many
bodies it has posted receives for, and the server sends no others.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .metadata import ArrowProtocolError, BufferLayout, MessageKind, decode_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ADDRESSES",
    "ANY_TYPE",
    "MOST_FREED",
    "PACKED",
    "Announcement",
    "IncomingStream",
    "OutgoingStream",
    "body_tag",
    "decode_addresses",
    "decode_freed",
    "decode_progress",
    "encode_addresses",
    "encode_asked",
    "encode_freed",
    "encode_taken",
    "record_size",
    "split_tag",
]

END_OF_STREAM: Final = 0
METADATA: Final = 1
PREFIX: Final = struct.Struct("<BI")

PACKED: Final = 0
"""The body is the bytes of the buffers, as Arrow's IPC format packs them."""
ADDRESSES: Final = 1
"""The body is a record of addresses, from which the client reads the buffers."""
SEQUENCE: Final = 0xFFFF_FFFF
ANY_TYPE: Final = 0xFFFF_FFFF << 32
"""The bits of a tag that a receive for a sequence number ignores."""
_TYPE_SHIFT: Final = 56
_RESERVED: Final = ((1 << _TYPE_SHIFT) - 1) & ~SEQUENCE

MOST_FREED: Final = 4096
"""Addresses of one message that frees memory. A longer message ends the connection."""
MOST_WAITING: Final = 256
"""Messages that may arrive before the one that is next in sequence."""

assert array("Q").itemsize == 8


def body_tag(sequence: int, body_type: int) -> int:
    """The tag of a body."""
    return sequence | body_type << _TYPE_SHIFT


def split_tag(tag: int) -> tuple[int, int]:
    """The sequence number and the type of the body.

    Raises:
        ArrowProtocolError: an unknown type, or reserved bits are set.
    """
    if tag & _RESERVED:
        raise ArrowProtocolError(f"reserved bits of the tag {tag:#x} are set")
    body_type = tag >> _TYPE_SHIFT
    if body_type not in (PACKED, ADDRESSES):
        raise ArrowProtocolError(f"a body of the type {body_type}; 0 and 1 are known")
    return tag & SEQUENCE, body_type


def record_size(buffers: int) -> int:
    """Bytes of a record of addresses."""
    return 16 + 16 * buffers


def encode_addresses(pairs: Sequence[tuple[int, int]]) -> bytes:
    """The record of addresses: the total size, the number of buffers, and of each buffer its address and length."""
    numbers = [sum(length for _, length in pairs), len(pairs)]
    return array("Q", numbers + [each for pair in pairs for each in pair]).tobytes()


def decode_addresses(record: bytes | memoryview, layout: BufferLayout) -> list[tuple[int, int]]:
    """The address and the length of each buffer that ``layout`` announces.

    Raises:
        ArrowProtocolError: the record does not agree with the metadata, which was checked before.
    """
    count = len(layout.buffers)
    if len(record) != record_size(count):
        raise ArrowProtocolError(f"a record of {len(record)} bytes for {count} buffers")
    numbers = array("Q", bytes(record))
    pairs = list(zip(numbers[2::2], numbers[3::2], strict=True))
    if numbers[1] != count or numbers[0] != sum(length for _, length in pairs):
        raise ArrowProtocolError(f"a record of {numbers[1]} buffers and {numbers[0]} bytes disagrees with its buffers")
    for (_, length), (_, announced) in zip(pairs, layout.buffers, strict=True):
        if length != announced:
            raise ArrowProtocolError(f"a buffer of {length} bytes, for which the metadata announced {announced}")
    return pairs


def encode_freed(addresses: Sequence[int]) -> bytes:
    """A message that frees memory: addresses that the client does not need any more."""
    return array("Q", addresses).tobytes()


def decode_freed(message: bytes | memoryview) -> list[int]:
    """Raises: ArrowProtocolError: no address, or not whole ones."""
    if not message or len(message) % 8 or len(message) > 8 * MOST_FREED:
        raise ArrowProtocolError(f"a message of {len(message)} bytes frees no addresses of eight bytes each")
    return array("Q", bytes(message)).tolist()


_COUNT: Final = struct.Struct("<Q")
_ASKED: Final = 1 << 63


def encode_taken(count: int) -> bytes:
    """How many messages of the stream the client has taken since its begin."""
    return _COUNT.pack(count)


def encode_asked(count: int) -> bytes:
    """For the bodies of how many messages of the stream the client has posted receives, since its begin."""
    return _COUNT.pack(count | _ASKED)


def decode_progress(message: bytes | memoryview) -> tuple[int, bool]:
    """The count of the client, and whether it counts messages that it has asked for; otherwise they are taken.

    Raises: ArrowProtocolError: not such a message.
    """
    if len(message) != _COUNT.size:
        raise ArrowProtocolError(f"a message of {len(message)} bytes where the number of taken messages belongs")
    count: int = _COUNT.unpack(message)[0]
    return count & ~_ASKED, bool(count & _ASKED)


class Announcement(NamedTuple):
    """A message of the stream, before its body."""

    sequence: int
    metadata: bytes
    layout: BufferLayout


class IncomingStream:
    """The client's side: puts messages in the order of their sequence numbers, and checks them.

    ``max_body``: the longest body that is accepted, in bytes. At most 256 messages wait for an earlier one. ``first``
    is for tests; a stream begins at 0.
    """

    def __init__(self, *, max_body: int, first: int = 0) -> None:
        self.taken = 0
        self._max_body = max_body
        self._next = first
        self._waiting: dict[int, Announcement] = {}
        self._end: int | None = None

    @property
    def ended(self) -> bool:
        """Whether every message was taken, and no more will come."""
        return self._end == self._next

    def received(self, frame: bytes | memoryview) -> None:
        """A message of the metadata stream has arrived.

        Raises:
            ArrowProtocolError: it is malformed, or does not belong here.
        """
        if len(frame) < PREFIX.size:
            raise ArrowProtocolError(f"a metadata message of {len(frame)} bytes is shorter than its prefix")
        kind, sequence = PREFIX.unpack_from(frame)
        ahead = (sequence - self._next) & SEQUENCE
        if ahead >= MOST_WAITING or sequence in self._waiting:
            raise ArrowProtocolError(f"the message {sequence} came twice or too early; {self._next} is the next")
        if self._end is not None and (kind == END_OF_STREAM or ahead >= (self._end - self._next) & SEQUENCE):
            raise ArrowProtocolError(f"the message {sequence} came after the end of the stream at {self._end}")
        if kind == END_OF_STREAM:
            self._ends(frame, sequence, ahead)
        elif kind == METADATA:
            metadata = bytes(frame[PREFIX.size :])
            layout = decode_metadata(metadata, most=self._max_body)
            is_first = ahead == self.taken == 0
            if (layout.kind == MessageKind.SCHEMA) != is_first:
                raise ArrowProtocolError(f"the message {sequence} is a {layout.kind.name}; the first one is the schema")
            self._waiting[sequence] = Announcement(sequence, metadata, layout)
        else:
            raise ArrowProtocolError(f"a metadata message of the kind {kind}; 0 and 1 are known")

    def _ends(self, frame: bytes | memoryview, sequence: int, ahead: int) -> None:
        if len(frame) != PREFIX.size:
            raise ArrowProtocolError(f"an end of the stream of {len(frame)} bytes; it has {PREFIX.size}")
        if any((each - self._next) & SEQUENCE > ahead for each in self._waiting):
            raise ArrowProtocolError(f"the stream ends at {sequence}, before messages that came")
        if ahead == self.taken == 0:
            raise ArrowProtocolError("the stream ends without a schema")
        self._end = sequence

    def first(self) -> Announcement | None:
        """The next message in sequence, if it has come."""
        return self._waiting.get(self._next)

    def take(self) -> Announcement:
        """Take the next message, which has come."""
        message = self._waiting.pop(self._next)
        self._next = (self._next + 1) & SEQUENCE
        self.taken += 1
        return message


class OutgoingStream:
    """The server's side: numbers messages, and counts what the client has taken and what it may read.

    ``window``: messages that may be sent and not taken. ``first`` is for tests; a stream begins at 0.
    """

    def __init__(self, *, window: int, first: int = 0) -> None:
        self.sent = 0
        self.asked = 0
        self.taken = 0
        self.shown_bytes = 0
        self._window = window
        self._next = first
        self._shown: dict[int, list[tuple[int, Any]]] = {}  # by address: lengths and what to release
        self._freed: dict[int, int] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more message may be sent."""
        return self.sent - self.taken < self._window

    def metadata(self, metadata: bytes) -> tuple[int, list[bytes]]:
        """The sequence number of the next message, and the pieces of its frame."""
        sequence = self._next
        self._next = (sequence + 1) & SEQUENCE
        self.sent += 1
        return sequence, [PREFIX.pack(METADATA, sequence), metadata]

    def end(self) -> bytes:
        """The frame that ends the stream."""
        return PREFIX.pack(END_OF_STREAM, self._next)

    def was_asked(self, count: int) -> None:
        """Raises: ArrowProtocolError: the client asks for fewer messages than before, or for more than were sent."""
        if not self.asked <= count <= self.sent:
            raise ArrowProtocolError(f"the client asks for {count} of {self.sent} messages, and {self.asked} before")
        self.asked = count

    def was_taken(self, count: int) -> None:
        """Raises: ArrowProtocolError: the client says that it has taken fewer than before, or more than were sent."""
        if not self.taken <= count <= self.sent:
            raise ArrowProtocolError(f"the client has taken {count} of {self.sent} messages, and {self.taken} before")
        self.taken = count

    def show(self, address: int, length: int, token: Any) -> None:
        """The client may read memory until it frees the address; `freed` then returns ``token``."""
        self._shown.setdefault(address, []).append((length, token))
        self.shown_bytes += length

    def freed(self, addresses: Sequence[int]) -> list[Any]:
        """The tokens of the memory that no peer reads any more. An address that was shown several times is released
        when it was freed as often.

        Raises:
            ArrowProtocolError: an address that is not shown.
        """
        tokens: list[Any] = []
        for address in addresses:
            entries = self._shown.get(address)
            if entries is None:
                raise ArrowProtocolError(f"the client frees the address {address:#x}, which it was not shown")
            count = self._freed.get(address, 0) + 1
            if count < len(entries):
                self._freed[address] = count
                continue
            self._freed.pop(address, None)
            del self._shown[address]
            self.shown_bytes -= sum(length for length, _ in entries)
            tokens += [token for _, token in entries]
        return tokens

    def release(self) -> list[Any]:
        """The tokens of all memory that is still shown: the client has gone."""
        entries = [token for shown in self._shown.values() for _, token in shown]
        self._shown.clear()
        self._freed.clear()
        self.shown_bytes = 0
        return entries
