"""Protocol: how virtual connections look to the fabric (tags) and on the OOB socket beside it (frames).

A tag has 47 bits, because there are providers with 48 (cxi):

    id       24   the receiver's number of the connection
    credits   8   messages that the sender of this one has taken meanwhile: so many more may come
    sequence  8   of the connection's messages: large ones may complete after small ones that left later (rxm)
    pool      4   which receives of the peer it is for, by size
    kind      2   a message, or credits alone; in the last pool, a question or an answer (see address_query.py)
    direct    1   for a receive into the caller's memory, which asks for exactly this tag: id and this bit, the rest 0
                  (shm 1.17 does not see what a receive says to ignore when the message was there first)
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Self

__all__ = [
    "CREDITS",
    "DIRECT",
    "QUERY_REPLY",
    "QUERY_POOL",
    "QUERY",
    "ID",
    "KIND",
    "KIND_CREDITS",
    "MASK",
    "POOL",
    "SEQUENCE",
    "TAG_BITS",
    "FrameKind",
    "Hello",
    "host_mark",
]

ID = (1 << 24) - 1
CREDITS = 24  # shifts
SEQUENCE = 32
POOL = 40
KIND = 3 << 44
KIND_CREDITS = 1 << 44
DIRECT = 1 << 46
QUERY_POOL = 15
QUERY = QUERY_POOL << POOL
QUERY_REPLY = QUERY | 1 << 44
TAG_BITS = 47
MASK = (1 << TAG_BITS) - 1 & ~(DIRECT | QUERY_POOL << POOL)  # what a pool's receives ignore

_VERSION = 2
_HELLO = struct.Struct("!BIIQIBQHIHH")  # version, the eight numbers of a Hello, two lengths


class FrameKind(IntEnum):
    """What a frame of the OOB socket says."""

    CONNECT = 1
    """A `Hello`: somebody wants to connect."""
    ACCEPT = 2
    """A `Hello`: welcome."""
    REJECT = 3
    """Private data: not now."""
    MISMATCH = 4
    """A text: we have no common language, and why."""
    END = 5
    """How many messages were sent in all: after them comes nothing."""
    ASLEEP = 6
    """How many messages have come: for the next one, ring (see doorbell.py)."""
    RING = 7
    """There is something to look for."""


class Hello(NamedTuple):
    """How one side of a connection wants to be talked to. The fields go over the OOB socket in this order."""

    protocol: int
    protocol_version: int
    host: int
    """A mark of the host, where the provider does not reach others; 0 elsewhere."""
    connection: int
    """The id that the peer puts into its tags."""
    pool: int
    """And the pool; 0 for receives into the caller's memory."""
    room: int
    """Bytes that a message may have; 0: as many as the receive of the moment takes."""
    credits: int
    """Messages that may be under way."""
    heartbeat: int
    """Milliseconds in which a silent host is to be noticed; 0 if the sender does not ask for it."""
    address: bytes
    param: bytes

    def pack(self) -> bytes:
        """The body of a frame."""
        return _HELLO.pack(_VERSION, *self[:8], len(self.address), len(self.param)) + self.address + self.param

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """What a peer sent.

        Raises:
            ValueError: it is of another version, or makes no sense.
        """
        if len(body) < _HELLO.size:
            raise ValueError("too short for a hello")
        version, *numbers, address, param = _HELLO.unpack_from(body)
        if version != _VERSION:
            raise ValueError(f"the peer speaks version {version} of this handshake, not {_VERSION}")
        rest = body[_HELLO.size :]
        names = (rest[:address], rest[address:])
        hello = cls._make((*numbers, *names))
        if len(rest) != address + param or not address or not 0 < hello.credits < 256:
            raise ValueError("a hello that makes no sense")
        if hello.connection > ID or hello.pool > 15:
            raise ValueError("a hello that fits no tag")
        return hello


def host_mark() -> int:
    """A number that processes of one running host have in common."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = b""
    return int.from_bytes(hashlib.blake2b(boot, digest_size=8).digest(), "big") | 1
