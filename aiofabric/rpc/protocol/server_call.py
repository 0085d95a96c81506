"""ServerCall: the server's side of one call.

==========  =====================================  ==================================
state       frames that may arrive                 next state
==========  =====================================  ==================================
open        MESSAGE, END, CANCEL, CREDIT, PROCEED  half closed (END); over (CANCEL)
half closed CANCEL, CREDIT, PROCEED                over (CANCEL)
over        all of them: they are ignored          over
==========  =====================================  ==================================

The application ends the call with `finish`, in any state.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from .calls import Call
from .frames import HEADER, Flag, Kind, frame
from .metadata import encode_metadata, metadata_size
from .status import MOST_DETAILS, StatusCode

if TYPE_CHECKING:
    from .metadata import Metadata
    from .server import ServerConnection

__all__ = ["ServerCall"]

_U32 = struct.Struct("<I")
_STATUS, _MESSAGE, _METADATA = int(Kind.STATUS), int(Flag.MESSAGE), int(Flag.METADATA)
_DETAILS, _REFUSED = int(Flag.DETAILS), int(Flag.REFUSED)

PAIR_OBJECTS: Final = 128
"""Bytes that the objects of a pair of metadata take, besides the bytes that `metadata_size` counts."""


class ServerCall(Call):
    """One call that a server handles. Override the events."""

    connection: ServerConnection
    method: str
    metadata: Metadata = ()
    deadline: float | None
    """On the clock whose time is passed to the connection."""
    sent_headers = False
    _final: tuple[int, str, Metadata] | None = None

    # -- events

    def started(self, message: bytes | None) -> None:
        """The call has begun; ``message`` is its first one if it came along. It needs no `consumed`."""

    def cancelled(self) -> None:
        """The client has cancelled the call, or the connection is lost. Nothing can be sent any more.

        The call counts against limits until `release` is called.
        """

    # -- memory

    def hold(self) -> None:
        """Count the call's metadata against the memory of the server until the call is over."""
        if self.metadata:
            self.held = metadata_size(self.metadata) + PAIR_OBJECTS * len(self.metadata)
            self.connection.budget.running += self.held

    # -- the application's side

    def send_headers(self, metadata: Metadata) -> None:
        """Send the initial metadata: once, before the first message."""
        if self.over or self.sent_headers:
            return
        self.sent_headers = True
        connection = self.connection
        definitions: list[bytes] = []
        if metadata_size(metadata) > connection.peer.max_metadata:
            self.finish(StatusCode.RESOURCE_EXHAUSTED, "The initial metadata is larger than the client accepts")
            return
        block = encode_metadata(metadata, connection.names, definitions)
        for definition in definitions:
            connection.emit(definition)
        connection.emit(frame(Kind.HEADERS, self.id, block))

    def post(self, message: bytes) -> bool:
        """Send one message; False if it waits for credits or its turn: `writable` follows."""
        self.sent_headers = True
        return self._post_message(message)

    def finish(
        self,
        code: int = 0,
        details: str = "",
        metadata: Metadata = (),
        message: bytes | None = None,
        *,
        refused: bool = False,
    ) -> None:
        """End the call with a status, after all queued messages; ``message`` is the last one."""
        if self.over or self._final is not None:
            return
        connection = self.connection
        if not (message is None or code or details or metadata) and connection.conclude(self, message):
            return
        if message is not None and (self._queue is not None or len(message) > connection.small):
            self._post_message(message)
            message = None
        if self._queue is not None:
            self._final = (code, details, metadata)  # sent when the last message has left
            return
        if code or details or metadata:
            self._long_finish(code, details, metadata, message, refused)
        elif message is None:
            connection.emit(HEADER.pack(_STATUS, 0, 0, 0, self.id))
        else:
            connection.emit(HEADER.pack(_STATUS, _MESSAGE, 0, len(message), self.id) + message)
        self._end()

    def _long_finish(self, code: int, details: str, metadata: Metadata, message: bytes | None, refused: bool) -> None:
        connection, flags, parts = self.connection, 0, []
        definitions: list[bytes] = []
        text = details.encode("utf-8", "replace")
        most = connection.peer.max_metadata
        if metadata and metadata_size(metadata) > most:
            code, metadata, message = StatusCode.RESOURCE_EXHAUSTED, (), None
            text = b"The trailing metadata is larger than the client accepts"
        if text:
            flags |= _DETAILS
            if len(text) > MOST_DETAILS:
                text = text[:MOST_DETAILS].decode("utf-8", "ignore").encode()  # cut between two characters
            parts.append(_U32.pack(len(text)) + text)
        if metadata:
            flags |= _METADATA
            block = encode_metadata(metadata, connection.names, definitions)
            parts.append(_U32.pack(len(block)) + block)
        if message is not None:
            flags |= _MESSAGE
            parts.append(message)
        if refused:
            flags |= _REFUSED
        for definition in definitions:
            connection.emit(definition)
        connection.emit(frame(Kind.STATUS, self.id, b"".join(parts), flags=flags, field=code))

    def _message_left(self, first: object) -> None:
        super()._message_left(first)  # type: ignore[arg-type]
        if self._queue is None and self._final is not None:
            self.connection.finishing.append(self)

    def finish_queued(self) -> None:
        """The last message has been handed over: send the status that waited for it."""
        final, self._final = self._final, None
        if final is not None:
            self.finish(*final)

    def _end(self) -> None:
        self.connection.calls.pop(self.id, None)
        if self._queue is not None or self._partial is not None or self._budget_used:
            self.release_all()
            self.discard()
        self.over = True
        self.connection.budget.running -= self.held
        self.held = 0

    def too_long(self, size: int, most: int) -> None:
        self.cut(StatusCode.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {most})")

    def cut(self, code: int, details: str) -> None:
        """End the call at once, without what is queued, and cancel its handler."""
        self._drop_queue()
        self._final = None
        self.finish(code, details)
        self.cancelled()

    # -- frames of the client

    def cancel_arrived(self) -> None:
        """Handle CANCEL, or the loss of the connection."""
        self._final = None
        self._end()
        self.cancelled()
