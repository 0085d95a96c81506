"""Protocol: the tags of virtual connections on the fabric, and the frames on the OOB socket beside it.

A tag has 47 bits, because some providers have only 48 (cxi):

    id       24   the receiver's number of the connection
    credits   8   messages that the sender of this one has taken: it can receive as many more
    sequence  8   number of the message: large ones may complete after small ones that left later (rxm)
    pool      4   which of the peer's receive pools it is for, by size
    kind      2   a message, credits alone, a ping or a pong (route.py); in the last pool, a query or a reply
                  (address_query.py)
    direct    1   for a receive into the caller's memory, which asks for exactly this tag: id and this bit, the rest 0
                  (shm 1.17 does not apply a receive's ignore mask if the message came first)
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Self

__all__ = [
    "ANSWERS_PINGS",
    "CREDITS",
    "DIRECT",
    "QUERY_REPLY",
    "QUERY_POOL",
    "QUERY",
    "ID",
    "KIND",
    "KIND_CREDITS",
    "KIND_PING",
    "KIND_PONG",
    "MASK",
    "NOBODY",
    "POOL",
    "SEQUENCE",
    "TAG_BITS",
    "FrameKind",
    "Hello",
    "host_mark",
]

ID = (1 << 24) - 1
NOBODY = ID
"""An id that no connection has: of messages between the multiplexers themselves (notices.py)."""
CREDITS = 24  # shifts
SEQUENCE = 32
POOL = 40
KIND = 3 << 44
KIND_CREDITS = 1 << 44
KIND_PING = 2 << 44
KIND_PONG = 3 << 44
DIRECT = 1 << 46
QUERY_POOL = 15
QUERY = QUERY_POOL << POOL
QUERY_REPLY = QUERY | 1 << 44
TAG_BITS = 47
MASK = (1 << TAG_BITS) - 1 & ~(DIRECT | QUERY_POOL << POOL)  # the bits that a pool's receives ignore

ANSWERS_PINGS = 2
"""As the host of an ACCEPT: this side answers pings. It is never the mark of a host, which is odd. Peers of earlier
builds ignore the host of an ACCEPT, and send their own mark or 0."""

_VERSION = 2
_HELLO = struct.Struct("!BIIQIBQHIHH")  # version, the eight numbers of a Hello, two lengths


class FrameKind(IntEnum):
    """The kind of a frame on the OOB socket."""

    CONNECT = 1
    """A `Hello`: the client asks for a connection."""
    ACCEPT = 2
    """A `Hello`: the listener accepts."""
    REJECT = 3
    """Private data: the listener rejects the request."""
    MISMATCH = 4
    """A text with the reason: the two sides have different providers or protocols."""
    END = 5
    """The total number of messages sent: no message follows after them."""
    ASLEEP = 6
    """The number of messages received: the sender stops polling, and wants RING for later ones (doorbell.py)."""
    RING = 7
    """A message was sent to a side that stopped polling."""
    WILL_RING = 8
    """The answer to an ASLEEP that needs no RING: from now on, a message makes the sender of this frame ring. Peers of
    earlier builds do not answer, and are polled for."""


class Hello(NamedTuple):
    """The parameters of one side of a connection. The fields go over the OOB socket in this order."""

    protocol: int
    protocol_version: int
    host: int
    """In a CONNECT: a mark of the host, if the provider does not reach other hosts; 0 otherwise. In an ACCEPT: the
    same, or `ANSWERS_PINGS`."""
    connection: int
    """The id for the tags of messages to this side."""
    pool: int
    """The pool for the tags of messages to this side; 0 for receives into the caller's memory."""
    room: int
    """Bytes of the longest message; 0: the posted receive limits it."""
    credits: int
    """Messages that may be in flight to this side."""
    heartbeat: int
    """Milliseconds in which the end of a host must be noticed; 0 if this side does not ask for it."""
    address: bytes
    param: bytes

    def pack(self) -> bytes:
        """The body of a frame."""
        return _HELLO.pack(_VERSION, *self[:8], len(self.address), len(self.param)) + self.address + self.param

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Decode a peer's hello.

        Raises:
            ValueError: it has another version, or invalid values.
        """
        if len(body) < _HELLO.size:
            raise ValueError("too short for a hello")
        version, *numbers, address, param = _HELLO.unpack_from(body)
        if version != _VERSION:
            raise ValueError(f"the peer has version {version} of this handshake, not {_VERSION}")
        rest = body[_HELLO.size :]
        names = (rest[:address], rest[address:])
        hello = cls._make((*numbers, *names))
        if len(rest) != address + param or not address or not 0 < hello.credits < 256:
            raise ValueError("a hello with invalid lengths or credits")
        if hello.connection > ID or hello.pool > 15:
            raise ValueError("a hello whose connection or pool number is too large for a tag")
        return hello


def host_mark() -> int:
    """A number that is the same for all processes of one running host."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = b""
    return int.from_bytes(hashlib.blake2b(boot, digest_size=8).digest(), "big") | 1
