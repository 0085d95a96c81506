"""Record batches as the items of a pipeline.

An item's first part is the metadata of its messages, one after the other as Arrow's stream format has them: the schema,
the dictionaries, the batch. The other parts, each filled up to a multiple of 64 bytes, are the bodies of these messages
one after the other. So an item is complete: any consumer can read it, also after it was delivered again.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow
from anyio import ClosedResourceError

from .decoding import StreamDecoder, check_values
from .encoding import StreamEncoder
from .metadata import ArrowProtocolError, decode_metadata, with_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aiofabric.pipeline import Item, Push

    from .encoding import EncodedMessage

__all__ = ["EncodedBatch", "decode_batch", "encode_batch", "push_batch"]

_HEADER: Final = struct.Struct("<8sQ")
_MAGIC: Final = b"arrow-1\0"
_PREFIX: Final = struct.Struct("<II")
_CONTINUATION: Final = 0xFFFF_FFFF

_INLINE: Final = 60_000
"""Bytes of buffers of a batch that travels in a fabric message, which copies it. A pipeline's limit is 64 KiB."""
JOINED: Final = 16384
"""Buffers of up to this many bytes are copied together: a read of its own costs more."""
_APART: Final = 4160
"""Bytes of the smallest part that the consumer reads. A pipeline puts smaller ones elsewhere in memory."""
_MOST_APART: Final = 240
_ALIGNMENT: Final = 64


class EncodedBatch(NamedTuple):
    """A batch as an item: ``await push.push(encoded.parts, header=encoded.header)``.

    ``parts`` refer to the batch's own buffers: do not change these before `Push.drain` has returned.
    """

    header: bytes
    parts: list[Any]


def encode_batch(batch: pyarrow.RecordBatch, *, compression: str | None = None) -> EncodedBatch:
    """A record batch as the header and the parts of an item.

    Buffers of more than 16 KiB are parts of the item, and are not copied. Smaller ones are copied together. If a batch
    has more than 240 large buffers, the smallest of these are copied, too. The schema and all dictionaries are in each
    item.

    ``compression``: of the buffers, ``"lz4"`` or ``"zstd"``. pyarrow then makes new buffers.

    Raises: TypeError: not a record batch.
    """
    if not isinstance(batch, pyarrow.RecordBatch):
        raise TypeError(f"a record batch is required, not {type(batch).__name__}: a Table has to_batches()")
    messages = StreamEncoder(batch.schema, compression).encode(batch)
    total = sum(message.layout.body_length for message in messages)
    metadata: list[bytes] = []
    parts: list[Any] = []
    if total <= _INLINE:
        parts = [b"".join(memoryview(piece) for message in messages for piece in message.pieces)] if total else []
        metadata = [message.metadata for message in messages]
    else:
        sizes = sorted((len(each) for message in messages for each in message.buffers() if each), reverse=True)
        least = max(JOINED, *sizes[_MOST_APART:]) if len(sizes) > _MOST_APART else JOINED
        for message in messages:
            changed, body = _arranged(message, least, is_last=message is messages[-1])
            metadata.append(changed)
            parts += body
    first = b"".join(_PREFIX.pack(_CONTINUATION, len(each)) + each for each in metadata)
    return EncodedBatch(_HEADER.pack(_MAGIC, _places(parts)[1]), [first, *parts])


def _arranged(message: EncodedMessage, least: int, is_last: bool) -> tuple[bytes, list[Any]]:
    """The metadata and the parts of a message: small buffers together, then each of the others."""
    buffers = list(message.buffers())
    offsets = [0] * len(buffers)
    joined = bytearray()
    for index, buffer in enumerate(buffers):
        if buffer is not None and len(buffer) <= least:
            offsets[index] = len(joined)
            joined += memoryview(buffer).cast("B")
            joined += bytes(-len(buffer) % _ALIGNMENT)
    parts: list[Any] = [bytes(joined).ljust(_APART, b"\0")] if joined else []
    end = len(parts[0]) if joined else 0
    for index, buffer in enumerate(buffers):
        if buffer is not None and len(buffer) > least:
            offsets[index] = start = _aligned(end)
            end = start + len(buffer)
            parts.append(buffer)
    return with_offsets(message.metadata, message.layout, offsets, end if is_last else _aligned(end)), parts


def _aligned(size: int) -> int:
    """Where the next part begins: a consumer puts each large part at a multiple of 64 bytes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _places(parts: Sequence[Any]) -> tuple[list[int], int]:
    """Where each part begins, and where the last one ends."""
    starts = list(accumulate((_aligned(len(part)) for part in parts[:-1]), initial=0))
    return starts, starts[-1] + len(parts[-1]) if parts else 0


async def push_batch(push: Push, batch: pyarrow.RecordBatch, *, compression: str | None = None) -> None:
    """Push a record batch as one item; see `encode_batch` and `Push.push`, also for errors and cancels."""
    encoded = encode_batch(batch, compression=compression)
    await push.push(encoded.parts, header=encoded.header)


def decode_batch(
    item: Item, *, copy: bool = False, validate: bool = False, max_batch_bytes: int = 1 << 30
) -> pyarrow.RecordBatch:
    """The record batch of an item.

    The batch's buffers are the memory of the item, which is lent until the item's scope ends. A batch that is kept
    longer stays valid and keeps this memory: the pipeline takes other memory for later items, and the limits of `Pull`
    do not count it any more. So delete the batch before the scope ends, or choose ``copy``.

    Args:
        item: from `Pull`, in its scope.
        copy: copy the buffers once, into memory of pyarrow. Keep such a batch as long as you like.
        validate: check all values, which takes time; without it only the lengths are checked. Choose it if you do not
            trust the producer.
        max_batch_bytes: bytes of a compressed batch at most, when it is expanded. `Pull` limits the item itself.

    Raises:
        TypeError: not an item.
        ArrowProtocolError: the item is no batch, or a malformed one.
        ClosedResourceError: the scope of the item has ended.
    """
    if not (hasattr(item, "header") and hasattr(item, "parts")):
        raise TypeError(f"an item of Pull.pull() is required, not {type(item).__name__}")
    if item.scope_ended:
        raise ClosedResourceError("the scope of this item has ended")
    header = bytes(item.header)
    if len(header) != _HEADER.size or not header.startswith(_MAGIC):
        raise ArrowProtocolError(f"an item with the header {header[:20]!r} is no record batch")
    body = _body_of(item.parts[1:], copy=copy)
    size = 0 if body is None else body.size
    if _HEADER.unpack(header)[1] != size:
        raise ArrowProtocolError(f"a batch of {size} bytes, whose header announces {_HEADER.unpack(header)[1]}")
    decoder = StreamDecoder(max_body=max(max_batch_bytes, size))
    batch: pyarrow.RecordBatch | None = None
    at = 0
    for metadata in _split(bytes(item.parts[0])):
        if batch is not None:
            raise ArrowProtocolError("an item goes on after its record batch")
        layout = decode_metadata(metadata, most=size - at)
        part = None if body is None else body.slice(at, layout.body_length)
        batch = decoder.decode(metadata, layout, part)
        at += layout.body_length
    if batch is None:
        raise ArrowProtocolError("an item without a record batch")
    if validate:
        check_values(batch)
    return batch


def _body_of(parts: Sequence[Any], *, copy: bool) -> pyarrow.Buffer | None:
    """The parts as one piece of memory: the memory in which they are, if each is at its place in it."""
    if not parts:
        return None
    starts, size = _places(parts)
    if not copy:
        buffers = [pyarrow.py_buffer(part) for part in parts]
        first = buffers[0].address
        if all(buffer.address - first == start for buffer, start in zip(buffers, starts, strict=True)):
            return pyarrow.foreign_buffer(first, size, base=buffers)
    memory = pyarrow.allocate_buffer(size)
    view = memoryview(memory).cast("B")
    for part, start in zip(parts, starts, strict=True):
        view[start : start + len(part)] = part
    return memory


def _split(first: bytes) -> Iterator[bytes]:
    """The metadata of each message."""
    at = 0
    while at < len(first):
        if at + _PREFIX.size > len(first):
            raise ArrowProtocolError(f"the metadata of an item ends after {len(first)} bytes, inside a message")
        mark, size = _PREFIX.unpack_from(first, at)
        at += _PREFIX.size
        if mark != _CONTINUATION or at + size > len(first):
            raise ArrowProtocolError(f"the metadata of an item has no message of {size} bytes at {at}")
        yield first[at : at + size]
        at += size
