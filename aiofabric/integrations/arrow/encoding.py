"""Record batches as IPC messages whose bodies are still the batches' own buffers."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow

from .metadata import BufferLayout, decode_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EncodedMessage", "StreamEncoder", "write_options"]

_CONTINUATION: Final = b"\xff\xff\xff\xff"
_ANY_LENGTH: Final = (1 << 63) - 1


def write_options(compression: str | None) -> pyarrow.ipc.IpcWriteOptions:
    """pyarrow's options: dictionaries grow by deltas, and arrays may have more than 2^31 rows."""
    return pyarrow.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True, allow_64bit=True)


class EncodedMessage(NamedTuple):
    """One IPC message: its metadata, and the pieces of its body in order. A piece that is long is a column's own."""

    metadata: bytes
    layout: BufferLayout
    pieces: list[Any]

    def buffers(self) -> Iterator[Any]:
        """Each buffer that the metadata names, in its order; an empty one is None."""
        starts = {}
        at = 0
        for piece in self.pieces:
            starts[at] = piece
            at += len(piece)
        for offset, length in self.layout.buffers:
            if not length:
                yield None
                continue
            piece = starts[offset]
            yield piece if len(piece) == length else piece[:length]


class StreamEncoder:
    """The messages of one stream. pyarrow writes them; the buffers of the batches are not copied.

    pyarrow makes new buffers for some columns of a sliced batch (bits, offsets), and for compressed ones.
    """

    def __init__(self, schema: pyarrow.Schema, compression: str | None = None) -> None:
        self._sink = _Pieces()
        self._writer = pyarrow.ipc.new_stream(self._sink, schema, options=write_options(compression))

    def encode(self, batch: pyarrow.RecordBatch) -> list[EncodedMessage]:
        """The messages of a batch: first the dictionaries that are new, at the first call the schema before them."""
        self._writer.write_batch(batch)
        return self._messages()

    def schema(self) -> list[EncodedMessage]:
        """The schema, if no batch came."""
        self._writer.close()
        return self._messages()

    def _messages(self) -> list[EncodedMessage]:
        pieces, self._sink.pieces = self._sink.pieces, []
        pieces.reverse()  # the first is at the end
        found = []
        while pieces:
            assert bytes(pieces.pop()) == _CONTINUATION, "pyarrow writes each part of a message by itself"
            size = int.from_bytes(pieces.pop(), "little")
            if not size:  # the end of pyarrow's stream
                break
            metadata = b""
            while len(metadata) < size:
                metadata += bytes(pieces.pop())
            layout = decode_metadata(metadata, most=_ANY_LENGTH)
            body: list[Any] = []
            left = layout.body_length
            while left > 0:
                body.append(pieces.pop())
                left -= len(body[-1])
            found.append(EncodedMessage(metadata, layout, body))
        return found


class _Pieces(io.RawIOBase):
    """Keeps what pyarrow writes: a column's buffer as itself, the rest as bytes."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        if len(piece):
            self.pieces.append(piece)
        return len(piece)
