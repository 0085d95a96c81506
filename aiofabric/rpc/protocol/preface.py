"""Preface: what each side announces in its first frame.

The client may send calls before the server's preface has arrived. Until then the server's `MINIMUM` is valid. The
server always has the client's preface before its first call.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from .frames import HEADER, Kind, frame
from .status import GoAwayReason, ProtocolError

__all__ = ["MINIMUM", "VERSION", "Preface"]

VERSION: Final = 1
_MAGIC: Final = b"aioR"
_BODY: Final = struct.Struct("<4sBBHIIIIIQIH")
MOST_CREDENTIALS: Final = 16384
MOST_TABLE: Final = 65536
MOST_METADATA: Final = 32768
LEAST_RECV_SIZE: Final = 65536
LEAST_WINDOW: Final = 65536


@dataclass(frozen=True, slots=True)
class Preface:
    """The limits of one side as a receiver.

    ``recv_size``: bytes of the largest fabric message. ``window``: credits of each call at its start. ``table``: bytes
    that interned names may take (each takes its length and 32). ``max_metadata``: bytes of the metadata of a frame, as
    `metadata_size` counts them. ``max_message``: bytes of the largest message. ``max_calls``: calls at the same time.
    ``features``: bits; unknown ones are ignored. ``credentials``: at most 16 KiB, for the server to check.
    """

    recv_size: int = LEAST_RECV_SIZE
    window: int = LEAST_WINDOW
    table: int = 0
    max_metadata: int = 8192
    max_message: int = LEAST_WINDOW
    max_calls: int = 100
    features: int = 0
    credentials: bytes = b""
    lowest: int = VERSION
    highest: int = VERSION

    def pack(self) -> bytes:
        """The preface as a frame."""
        body = _BODY.pack(
            _MAGIC,
            self.lowest,
            self.highest,
            0,
            self.features,
            self.recv_size,
            self.window,
            self.table,
            self.max_metadata,
            self.max_message,
            self.max_calls,
            len(self.credentials),
        )
        return frame(Kind.PREFACE, 0, body + self.credentials)

    @classmethod
    def unpack(cls, payload: memoryview) -> Preface:
        """Decode the payload; bytes behind the credentials are for later versions."""
        if len(payload) < _BODY.size:
            raise ProtocolError(f"A preface of {len(payload)} bytes is too short", GoAwayReason.VERSION)
        magic, lowest, highest, _, features, recv_size, window, table, metadata, message, calls, size = (
            _BODY.unpack_from(payload)
        )
        if magic != _MAGIC:
            raise ProtocolError("The peer does not speak this protocol", GoAwayReason.VERSION)
        if not lowest <= VERSION <= highest:
            text = f"The peer has versions {lowest} to {highest} of the protocol; this side has {VERSION}"
            raise ProtocolError(text, GoAwayReason.VERSION)
        credentials = bytes(payload[_BODY.size : _BODY.size + size])
        if len(credentials) < size:
            raise ProtocolError("The credentials of the preface are incomplete")
        if recv_size < LEAST_RECV_SIZE or window < LEAST_WINDOW or metadata > MOST_METADATA or table > MOST_TABLE:
            raise ProtocolError("The preface announces limits that are not allowed")
        return cls(recv_size, window, table, metadata, message, calls, features, credentials, lowest, highest)


MINIMUM: Final = Preface()
"""Limits of a server whose preface has not arrived: any server accepts this much."""

assert HEADER.size + _BODY.size <= 64
