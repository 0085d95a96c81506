"""The metadata of Arrow's IPC messages (flatbuffers): which kind a message is, and where its buffers are in its body.

pyarrow reads the rest. The metadata is checked here before a byte of the body is received: each position that is read
must be inside the metadata, and each buffer inside the body.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ArrowProtocolError", "BufferLayout", "MessageKind", "decode_metadata", "with_offsets"]

_U16: Final = struct.Struct("<H")
_I16: Final = struct.Struct("<h")
_I32: Final = struct.Struct("<i")
_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_BUFFER: Final = struct.Struct("<qq")

# Fields of the tables, in the order of Arrow's schema of them (Message.fbs).
_VERSION, _HEADER_KIND, _HEADER, _BODY_LENGTH = 0, 1, 2, 3
_BUFFERS, _COMPRESSION = 2, 3  # of RecordBatch
_DICTIONARY_DATA = 1  # of DictionaryBatch
_VERSIONS: Final = (3, 4)  # V4 and V5: earlier ones have buffers of another size


class ArrowProtocolError(Exception):
    """The peer has sent what the protocol, or Arrow's format, does not have; or more than this side accepts."""


class MessageKind(IntEnum):
    """The kinds of IPC messages that a stream consists of."""

    SCHEMA = 1
    DICTIONARY_BATCH = 2
    RECORD_BATCH = 3


class BufferLayout(NamedTuple):
    """The body of a message: its length, and the offset and length of each buffer in it, in bytes."""

    kind: MessageKind
    body_length: int
    buffers: tuple[tuple[int, int], ...]
    compressed: bool
    body_length_at: int
    """Where the metadata has the length of the body; 0 if it has none."""
    buffers_at: int
    """Where the metadata has the first of the buffers."""


def decode_metadata(metadata: bytes | memoryview, *, most: int) -> BufferLayout:
    """The layout of the body that belongs to ``metadata``; ``most``: the longest body that is accepted, in bytes.

    Raises:
        ArrowProtocolError: the metadata is malformed, or the body would be longer.
    """
    data = memoryview(metadata)
    message = _Table(data, _read(data, _U32, 0))
    version_at = message.field(_VERSION)
    version = _read(data, _I16, version_at) if version_at else 0
    if version not in _VERSIONS:
        raise ArrowProtocolError(f"metadata of version {version}; {_VERSIONS[0]} and {_VERSIONS[1]} are known")
    kind_at = message.field(_HEADER_KIND)
    kind = _byte(data, kind_at) if kind_at else 0
    if kind not in set(MessageKind):
        raise ArrowProtocolError(f"a message of the kind {kind} does not belong to a stream of record batches")
    length_at = message.field(_BODY_LENGTH)
    length = _read(data, _I64, length_at) if length_at else 0
    if length < 0:
        raise ArrowProtocolError(f"a body of {length} bytes")
    if length > most:
        raise ArrowProtocolError(f"a body of {length} bytes; at most {most} are accepted")
    header = message.table(_HEADER)
    if kind == MessageKind.SCHEMA:
        if length:
            raise ArrowProtocolError(f"a schema with a body of {length} bytes")
        return BufferLayout(MessageKind.SCHEMA, 0, (), False, length_at, 0)
    batch = header.table(_DICTIONARY_DATA) if kind == MessageKind.DICTIONARY_BATCH else header
    at, count = batch.vector(_BUFFERS, _BUFFER.size)
    buffers = tuple(_BUFFER.iter_unpack(data[at : at + count * _BUFFER.size]))
    for offset, size in buffers:
        if offset < 0 or size < 0 or offset + size > length:
            raise ArrowProtocolError(f"a buffer of {size} bytes at {offset} is not in a body of {length} bytes")
    compressed = bool(batch.field(_COMPRESSION))
    return BufferLayout(MessageKind(kind), length, buffers, compressed, length_at, at)


def with_offsets(metadata: bytes, layout: BufferLayout, offsets: Sequence[int], body_length: int) -> bytes:
    """The same metadata for a body in which the buffers are at other ``offsets``."""
    changed = bytearray(metadata)
    if layout.body_length_at:
        _I64.pack_into(changed, layout.body_length_at, body_length)
    for index, offset in enumerate(offsets):
        _I64.pack_into(changed, layout.buffers_at + index * _BUFFER.size, offset)
    return bytes(changed)


class _Table:
    """A table of a flatbuffer: positions of its fields, by number."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - _read(data, _I32, at)
        self._size = _read(data, _U16, self._vtable)

    def field(self, number: int) -> int:
        """Where the field is; 0 if the table does not have it."""
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        offset = _read(self._data, _U16, self._vtable + entry)
        return self._at + offset if offset else 0

    def table(self, number: int) -> _Table:
        """The table that a field refers to."""
        return _Table(self._data, self._reference(number))

    def vector(self, number: int, size: int) -> tuple[int, int]:
        """Where the first element of a vector is, and the number of its elements of ``size`` bytes."""
        if not self.field(number):
            return 0, 0
        at = self._reference(number)
        count = _read(self._data, _U32, at)
        if at + 4 + count * size > len(self._data):
            raise ArrowProtocolError(f"metadata of {len(self._data)} bytes ends inside {count} buffers")
        return at + 4, count

    def _reference(self, number: int) -> int:
        at = self.field(number)
        if not at:
            raise ArrowProtocolError("the metadata lacks a part that its kind of message has")
        return at + _read(self._data, _U32, at)


def _byte(data: memoryview, at: int) -> int:
    if not 0 <= at < len(data):
        raise ArrowProtocolError(f"metadata of {len(data)} bytes refers to the byte {at}")
    return data[at]


def _read(data: memoryview, form: struct.Struct, at: int) -> int:
    if not 0 <= at <= len(data) - form.size:
        raise ArrowProtocolError(f"metadata of {len(data)} bytes refers to the byte {at}")
    number: int = form.unpack_from(data, at)[0]
    return number
