"""IPC messages as record batches; their buffers are the memory in which the bodies are."""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import pyarrow

from .metadata import ArrowProtocolError, MessageKind

if TYPE_CHECKING:
    from .metadata import BufferLayout

__all__ = ["StreamDecoder", "check_values"]

_PREFIX: Final = struct.Struct("<II")
_UNCOMPRESSED: Final = struct.Struct("<q")


class StreamDecoder:
    """Reads the messages of one stream with pyarrow, without a copy.

    ``max_body``: bytes of the longest body, and of the buffers of a compressed one when they are expanded.
    """

    def __init__(self, *, max_body: int) -> None:
        self._max_body = max_body
        self._source = _Source()
        self._reader: Any = None

    @property
    def schema(self) -> pyarrow.Schema | None:
        """None before the first message."""
        return None if self._reader is None else self._reader.schema

    def decode(self, metadata: bytes, layout: BufferLayout, body: pyarrow.Buffer | None) -> pyarrow.RecordBatch | None:
        """The next message of the stream; a record batch if it is one. The batch keeps ``body``.

        Raises:
            ArrowProtocolError: pyarrow cannot read the message, or it expands to more than ``max_body`` bytes.
        """
        if (layout.kind == MessageKind.SCHEMA) != (self._reader is None):
            raise ArrowProtocolError(f"a {layout.kind.name} in place of the schema, or a second schema")
        if layout.compressed and body is not None:
            self._check_expanded(layout, body)
        padding = -len(metadata) % 8
        self._source.add(_PREFIX.pack(0xFFFF_FFFF, len(metadata) + padding) + metadata + bytes(padding))
        if layout.body_length:
            self._source.add(body)
        try:
            if layout.kind == MessageKind.SCHEMA:
                self._reader = pyarrow.ipc.open_stream(self._source)
            elif layout.kind == MessageKind.RECORD_BATCH:
                batch = self._reader.read_next_batch()
                batch.validate()  # each column has the buffers that its length needs
                return batch
        except (pyarrow.ArrowException, OSError, MemoryError, StopIteration) as error:
            raise ArrowProtocolError(f"pyarrow cannot read a message of {layout.body_length} bytes: {error}") from error
        return None

    def _check_expanded(self, layout: BufferLayout, body: pyarrow.Buffer) -> None:
        view = memoryview(body).cast("B")
        total = 0
        for offset, length in layout.buffers:
            if not length:
                continue
            if length < _UNCOMPRESSED.size:
                raise ArrowProtocolError(f"a compressed buffer of {length} bytes is shorter than its prefix")
            (size,) = _UNCOMPRESSED.unpack_from(view, offset)
            total += max(size, 0)  # -1: this buffer is not compressed
        if total > self._max_body:
            raise ArrowProtocolError(f"a body that expands to {total} bytes; at most {self._max_body} are accepted")


def check_values(batch: pyarrow.RecordBatch) -> None:
    """Check all values of a batch.

    Raises: ArrowProtocolError: one is invalid, such as an offset outside of its text.
    """
    try:
        batch.validate(full=True)
    except pyarrow.ArrowException as error:
        raise ArrowProtocolError(f"the peer sent an invalid batch: {error}") from error


class _Source:
    """A file that pyarrow reads: it gets the memory that was added, not a copy."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[pyarrow.Buffer] = deque()

    def add(self, part: Any) -> None:
        self._parts.append(pyarrow.py_buffer(part))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._parts.clear()

    def read(self, size: int = -1) -> pyarrow.Buffer | bytes:
        """``size`` bytes of the first part; fewer at the end of what was added."""
        if not self._parts or not size:
            return b""
        part = self._parts.popleft()
        if size < len(part):
            self._parts.appendleft(part[size:])
            return part[:size]
        return part

    read_buffer = read
