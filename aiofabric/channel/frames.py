"""Frames: the protocol between two byte channels, without I/O.

A connection begins with a `Hello` from each side, in the private data of the request and of its acceptance. After that,
each message is a frame: a header of four bytes; in data frames, bytes of the stream follow it ::

    byte 0     kind: DATA, GRANT, END, CLOSE, READ
    bytes 1-3  credits granted with this frame, in any kind; little-endian

A credit is the right to send one byte that the other side may have to store. A data frame costs the size of its data
and `FRAME_COST` for storing it, so that many tiny frames are bounded, too. The other kinds cost nothing: they are
handled when they arrive.

READ says that its sender has read the oldest memory that the other side exposes (`rma`).

END announces that no more data comes, so that an orderly end differs from a lost peer. CLOSE announces that its sender
also receives nothing more. It is answered with CLOSE. A side that has both sent and received CLOSE may end the
connection. Without this exchange, the last frames of one side could arrive at a closed socket. The resulting reset
would destroy data that the other side has not read yet.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import Final

from aiofabric.errors import FabricConnectionAbortedError

__all__ = [
    "BYTES",
    "CLOSE",
    "DATA",
    "END",
    "FRAME_COST",
    "GRANT",
    "HEADER_SIZE",
    "MESSAGES",
    "PLAIN",
    "READ",
    "Hello",
    "header",
    "protocol_error",
]

DATA: Final = 0
GRANT: Final = 1
END: Final = 2
CLOSE: Final = 3
READ: Final = 4

HEADER_SIZE: Final = 4

FRAME_COST: Final = 64
"""Bytes that a queued frame takes in addition to its data: an object's header and its place in a queue."""

BYTES: Final = 0
MESSAGES: Final = 1

_KINDS: Final = {
    BYTES: "a stream of bytes (connect_stream, listen_stream, aio)",
    MESSAGES: "a stream of messages (connect_messages, listen_messages)",
}

PLAIN: Final = bytes(HEADER_SIZE)
"""The header of a data frame without credits: most frames have it."""

_HELLO = struct.Struct("<4sBB?xIII")
_MAGIC = b"aioF"
_VERSION = 1
_MOST_CREDITS = (1 << 24) - 1


def header(kind: int, credits: int) -> bytes:
    """The header of a frame that grants ``credits``."""
    return (kind | credits << 8).to_bytes(HEADER_SIZE, "little")


def protocol_error(detail: str, peer: object = None) -> FabricConnectionAbortedError:
    """The error for data that no byte channel sends."""
    error = FabricConnectionAbortedError(errno.EPROTO, "byte channel", peer=peer, detail=detail)
    error.cure = ""  # a second attempt would fail, too
    return error


@dataclass(frozen=True, slots=True)
class Hello:
    """How one side receives, and which kind of stream it expects.

    ``recv_size``: bytes of its receive buffers. ``window``: bytes that it can store, which are the other side's credits
    at the start. ``kind``: `BYTES`, or `MESSAGES` on top of them. If one side opens a stream of messages and the other
    one a stream of bytes, the connection is refused. The other fields are for messages: whether small ones may share a
    frame, and the bytes of the longest one.
    """

    recv_size: int
    window: int
    kind: int = BYTES
    packing: bool = False
    max_message_size: int = 0

    @property
    def payload(self) -> int:
        """Bytes of the stream that one frame to this side may carry."""
        return min(self.recv_size - HEADER_SIZE, self.window - FRAME_COST)

    def pack(self) -> bytes:
        """The hello as private data."""
        sizes = (self.recv_size, self.window, self.max_message_size)
        return _HELLO.pack(_MAGIC, _VERSION, self.kind, self.packing, *sizes)

    @classmethod
    def unpack(cls, param: bytes, *, kind: int) -> Hello:
        """Decode the other side's hello; an invalid one raises a FabricConnectionAbortedError with the reason."""
        if len(param) != _HELLO.size or not param.startswith(_MAGIC):
            raise protocol_error(f"One side opened {_KINDS[kind]}, the other one a plain connection (connect, listen)")
        _, version, theirs, packing, *sizes = _HELLO.unpack(param)
        if version != _VERSION:
            raise protocol_error(f"The peer has version {version} of the byte channel; this side has {_VERSION}")
        if theirs != kind:
            raise protocol_error(f"One side opened {_KINDS[BYTES]}, the other one {_KINDS[MESSAGES]}")
        recv_size, window, max_message_size = sizes
        hello = cls(recv_size, window, theirs, packing, max_message_size)
        if hello.payload < 1 or window > _MOST_CREDITS:
            raise protocol_error(f"The peer offers receive buffers of {recv_size} bytes, {window} in all")
        return hello
