"""Preface: data that one aiofabric endpoint sends another while they connect (man page: fi_cm, private data).

The preface follows the program's own private data in FI_CONNREQ and FI_CONNECTED. The receiver recognises it by its
last bytes, removes it, and gives the program the rest. A peer that does not use aiofabric ignores the bytes, and sends
none. docs/reference/connection-preface.md describes the format and what each side does with it.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Self

__all__ = ["MAX_PARAM", "MOST_REDIRECTIONS", "Preface", "new_end_mark", "redirected_port", "redirection"]

MAX_PARAM = 256
"""Bytes of private data; the tcp providers assert it, or overflow."""

MOST_REDIRECTIONS = 4
"""Of one `connect`: two listeners may name each other."""

_VERSION = 1
_MAGIC = b"\xaf\x1baiof"
_BODY = struct.Struct("!IQQ")  # heartbeat (ms), max_message, end_mark
_TRAILER = struct.Struct(f"!BB{len(_MAGIC)}s")  # bytes of the body, version, magic

# Where the provider has little room (verbs: 55 bytes), the same three values in fewer bytes.
_SHORT_MAGIC = b"\xaf\x1bab"
_SHORT = struct.Struct(f"!HII{len(_SHORT_MAGIC)}s")  # heartbeat (in units of _TICK), max_message, end_mark, magic
_TICK = 10  # milliseconds

_REDIRECTS = b"\xaf\x1bamv"
_REDIRECTION = struct.Struct(f"!{len(_REDIRECTS)}sH")  # magic, port


@dataclass(frozen=True, slots=True)
class Preface:
    """Parameters of the side that sends the preface.

    Attributes:
        heartbeat: milliseconds within which the sender wants a silent host to be noticed; 0 if it does not ask for it.
        max_message: bytes of the longest message that the sender can receive; 0 if it does not know, because its
            program posts a buffer for each message.
        end_mark: the remote data of the empty message by which the receiver of this preface must end the connection
            in order; 0 if the sender would not see such a message, because its receives are not pooled.
    """

    heartbeat: int = 0
    max_message: int = 0
    end_mark: int = 0

    def follow(self, param: bytes, limit: int = MAX_PARAM) -> bytes:
        """The private data to send: ``param``, and behind it the longest form of the preface for which ``limit`` bytes
        have room.
        """
        body = _BODY.pack(self.heartbeat, self.max_message, self.end_mark)
        data = param + body + _TRAILER.pack(len(body), _VERSION, _MAGIC)
        if len(data) <= limit:
            return data
        if len(param) + _SHORT.size <= limit and self.end_mark < 1 << 32:
            ticks = min(-(-self.heartbeat // _TICK), (1 << 16) - 1)
            return param + _SHORT.pack(ticks, min(self.max_message, (1 << 32) - 1), self.end_mark, _SHORT_MAGIC)
        return param

    @classmethod
    def split(cls, data: bytes) -> tuple[bytes, Self | None]:
        """The program's private data and the preface; None if the peer sent no preface.

        A later version may append fields to the body; they are ignored here.
        """
        body_end = len(data) - _TRAILER.size
        if body_end < 0:
            return data, None
        if data.endswith(_SHORT_MAGIC) and len(data) >= _SHORT.size:
            ticks, max_message, end_mark, _ = _SHORT.unpack_from(data, len(data) - _SHORT.size)
            return data[: -_SHORT.size], cls(ticks * _TICK, max_message, end_mark)
        size, version, magic = _TRAILER.unpack_from(data, body_end)
        start = body_end - size
        if magic != _MAGIC or version < _VERSION or size < _BODY.size or start < 0:
            return data, None
        return data[:start], cls(*_BODY.unpack_from(data, start))


def new_end_mark(data_size: int) -> int:
    """A random mark for a provider whose remote data has ``data_size`` bytes; 0 if it carries none.

    The highest bit is set, so that the small numbers which programs send as remote data never equal the mark.
    """
    if not data_size:
        return 0
    return int.from_bytes(os.urandom(data_size), "big") | 1 << (8 * data_size - 1)


def redirection(port: int) -> bytes:
    """The private data of a rejection that sends the peer on to another port of the same host."""
    return _REDIRECTION.pack(_REDIRECTS, port)


def redirected_port(param: bytes) -> int | None:
    """The port that a rejection names; None if it is an ordinary one."""
    if len(param) != _REDIRECTION.size or not param.startswith(_REDIRECTS):
        return None
    port: int = _REDIRECTION.unpack(param)[1]
    return port or None
