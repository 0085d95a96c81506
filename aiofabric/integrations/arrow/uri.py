"""URIs of streams: ``fabric://host:port/ticket?want_data=...&free_data=...&remote_handle=...``."""

from __future__ import annotations

import base64
import ipaddress
import struct
from contextlib import suppress
from typing import Final, NamedTuple, Self
from urllib.parse import parse_qs, quote, unquote_to_bytes, urlencode, urlsplit

__all__ = ["MOST_TICKET", "StreamUri", "check_host", "ticket_of"]

SCHEME: Final = "fabric"
_HANDLE: Final = struct.Struct("<Q")
MOST_TICKET: Final = 4096
"""Bytes of the longest ticket."""


def ticket_of(ticket: object) -> bytes:
    """A ticket that a program passes, as bytes.

    Raises:
        TypeError: neither bytes nor str.
        ValueError: more than 4,096 bytes.
    """
    if not isinstance(ticket, bytes | str):
        raise TypeError(f"a ticket is bytes or a str, not {ticket!r}")
    found = ticket.encode() if isinstance(ticket, str) else ticket
    if len(found) > MOST_TICKET:
        raise ValueError(f"a ticket has at most {MOST_TICKET} bytes, not {len(found)}")
    return found


def check_host(host: object) -> None:
    """Raise TypeError or ValueError unless a program passes a name or an address, without a port."""
    if not isinstance(host, str):
        raise TypeError(f"host must be a name or an address as a str, not {host!r:.100}")
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return
    if not host or any(letter in ":/?#@[]" or letter.isspace() for letter in host):
        raise ValueError(f"host must be a name or an address, without a port, not {host!r:.100}")


class StreamUri(NamedTuple):
    """Everything that a client must know of a stream. The path of the URI is the ticket, which names it for its server.

    ``want_data``, ``free_data``: tags. ``handle``: eight bytes from which the keys of the server's memory follow; None
    if the server shows no memory.
    """

    host: str
    port: int
    ticket: bytes
    want_data: int
    free_data: int | None = None
    handle: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = {"want_data": str(self.want_data)}
        if self.free_data is not None:
            query["free_data"] = str(self.free_data)
        if self.handle is not None:
            query["remote_handle"] = base64.b64encode(_HANDLE.pack(self.handle)).decode()
        return f"{SCHEME}://{host}:{self.port}/{quote(self.ticket)}?{urlencode(query)}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Raises: ValueError: not the URI of a stream; TypeError: no text."""
        if not isinstance(uri, str):
            raise TypeError(f"the URI of a stream is a str, not {uri!r}")
        parts = urlsplit(uri)
        query = parse_qs(parts.query)
        if parts.scheme != SCHEME or not parts.hostname or parts.port is None:
            raise ValueError(f"the URI of a stream is {SCHEME}://host:port/ticket?want_data=..., not {uri!r}")
        if "want_data" not in query:
            raise ValueError(f"this URI has no want_data, the tag that asks for a stream: {uri!r}")
        handle: int | None = None
        if "remote_handle" in query:
            try:
                (handle,) = _HANDLE.unpack(base64.b64decode(query["remote_handle"][0], validate=True))
            except (ValueError, struct.error):
                raise ValueError(f"the remote_handle of a stream is 8 bytes in base64: {uri!r}") from None
        return cls(
            parts.hostname,
            parts.port,
            unquote_to_bytes(parts.path.removeprefix("/")),
            _number(query["want_data"][0], "want_data"),
            _number(query["free_data"][0], "free_data") if "free_data" in query else None,
            handle,
        )


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 1 << 64):
        raise ValueError(f"{name} is a number from 0 to 2**64 - 1, not {text!r}")
    return int(text)
