"""Frames: kinds, flags and the header that all of them begin with.

A fabric message holds one or more frames without padding. Every integer is little-endian ::

    byte  0      kind; bit 7: a receiver that does not know the kind ignores the frame
    byte  1      flags
    bytes 2-3    field: its meaning depends on the kind
    bytes 4-7    length of the payload
    bytes 8-15   id of the call, or another number
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import Final

__all__ = ["FRAME_COST", "HEADER", "HEADER_SIZE", "IGNORABLE", "NO_INDEX", "NO_TIMEOUT", "Flag", "Kind", "frame"]


class Kind(IntEnum):
    """Kinds of frames. C is the client, S the server."""

    PREFACE = 1
    """C, S: the first frame of each side: limits and features."""
    DEFINE = 2
    """C, S: gives a name of a method or of a metadata key an index (field). Flags: the table."""
    START = 3
    """C: begins the call ``id``. Field: index of the method."""
    HEADERS = 4
    """S: initial metadata."""
    MESSAGE = 5
    """C, S: a message, or a piece of one."""
    END = 6
    """C: no more messages come from the client."""
    STATUS = 7
    """S: ends the call in both directions. Field: the status code."""
    CANCEL = 8
    """C: ends the call. Field: the code that the client reports."""
    CREDIT = 9
    """C, S: the receiver of the messages of a call grants bytes."""
    PROCEED = 10
    """C, S: the announced message was reserved; its other pieces may be sent."""
    GOAWAY = 11
    """C, S: no call above ``id`` is handled. Field: the reason."""
    PING = 12
    """C, S: asks for PONG with the same id."""
    PONG = 13
    REGION = 14
    """C, S: offers registered memory for RMA (feature BULK)."""
    RELEASE = 15
    """C, S: the offered memory is not used any more (feature BULK)."""


class Flag(IntFlag):
    """Flags of START, MESSAGE and STATUS."""

    END = 0x01
    """START, MESSAGE: the client sends no more messages."""
    MESSAGE = 0x02
    """START, STATUS: the payload ends with one whole message."""
    METADATA = 0x04
    """START, STATUS: the payload contains metadata."""
    DETAILS = 0x08
    """STATUS: the payload begins with the status text."""
    FIRST = 0x10
    """MESSAGE: the first of several pieces; the payload begins with the size of the whole message."""
    MORE = 0x20
    """MESSAGE: more pieces of the same message follow."""
    RENDEZVOUS = 0x40
    """MESSAGE with FIRST: the other pieces wait for PROCEED, and need no credits."""
    REFUSED = 0x80
    """STATUS: no handler has seen the call."""
    EARLY = 0x80
    """START: the client had not read the server's preface, and has the credits of `MINIMUM`."""


HEADER: Final = struct.Struct("<BBHIQ")
HEADER_SIZE: Final = HEADER.size

IGNORABLE: Final = 0x80

NO_TIMEOUT: Final = (1 << 64) - 1
"""In place of the microseconds that a call may take."""

NO_INDEX: Final = 0xFFFF
"""In place of an index: the name itself follows."""

FRAME_COST: Final = 64
"""Credits that a frame costs besides its payload: about what an empty message takes in the receiver's memory."""


def frame(kind: int, id: int, payload: bytes = b"", *, flags: int = 0, field: int = 0) -> bytes:
    """One frame as bytes."""
    return HEADER.pack(kind, flags, field, len(payload), id) + payload
