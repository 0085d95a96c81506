"""ClientCall: the client's side of one call.

========  ==========================================  =========================
state     frames that may arrive                      next state
========  ==========================================  =========================
begun     HEADERS, MESSAGE, STATUS, CREDIT, PROCEED   answered; over (STATUS)
answered  MESSAGE, STATUS, CREDIT, PROCEED            answered; over (STATUS)
over      all of them: they are ignored               over
========  ==========================================  =========================
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ..._core import ClientCallCore
from .calls import Call, Status
from .connection import SMALL
from .frames import FRAME_COST, HEADER, NO_INDEX, NO_TIMEOUT, Flag, Kind, frame
from .interning import METHODS
from .metadata import decode_metadata, encode_metadata, metadata_size
from .preface import MINIMUM
from .status import MOST_DETAILS, GoAwayReason, ProtocolError, StatusCode

if TYPE_CHECKING:
    from .client import ClientConnection
    from .metadata import Metadata

__all__ = ["ClientCall"]

_U16, _U32 = struct.Struct("<H"), struct.Struct("<I")
_START = struct.Struct("<BBHIQQ")
_TIMEOUT_END = _START.size - HEADER.size
_KIND, _END, _MESSAGE, _METADATA = int(Kind.START), int(Flag.END), int(Flag.MESSAGE), int(Flag.METADATA)
_DETAILS, _REFUSED, _EARLY = int(Flag.DETAILS), int(Flag.REFUSED), int(Flag.EARLY)
_MESSAGE_AND_END = _END | _MESSAGE


class ClientCall(ClientCallCore, Call):
    """One call of a client. Override the events; call `start` first."""

    connection: ClientConnection
    status: Status | None
    initial_metadata: Metadata | None
    deadline: float | None
    """On the clock whose time is passed to the connection."""
    start_frame: bytearray | None = None
    """The START frame as long as it can be taken back."""

    # -- events

    def headers_received(self) -> None:
        """`initial_metadata` is set. Calls without initial metadata may skip this event."""

    def ended(self) -> None:
        """`status` is set. This is the last event, and it always comes."""

    def answered(self, message: bytes) -> None:
        """The call has ended with OK, and with ``message`` alone: `over` and `status` are set.

        Most calls with one message each way end so. It stands for `message_received` and `ended`.
        """
        self.message_received(message)
        self.ended()

    # -- the application's side

    def start(
        self,
        connection: ClientConnection,
        method: str,
        metadata: Metadata = (),
        *,
        deadline: float | None = None,
        message: bytes | None = None,
        end: bool = False,
        now: float = 0.0,
    ) -> bool:
        """Begin the call; ``message`` is its first one, and the only one if ``end`` is true.

        Returns False if the message waits: `writable` follows.
        """
        if message is not None and not metadata and connection.begin(self, method, message, end, deadline, now):
            return True
        self.connection = connection
        peer = connection.peer
        self.id = id = connection.next_id
        connection.next_id = id + 1
        connection.calls[id] = self
        self.credits = self.window = peer.window
        self.outstanding = self.receive_window = connection.limits.window
        if connection.retired:
            self.finish(Status(StatusCode.UNAVAILABLE, "The connection takes no more calls", may_have_run=False))
            return True
        if deadline is None:
            timeout = NO_TIMEOUT
        else:
            self.deadline = deadline
            timeout = int((deadline - now) * 1e6)
            if timeout <= 0:
                self.finish(Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", may_have_run=False))
                return True
        if end:
            self.sent_end = True
        index = connection.method_indexes.get(method)
        if index is None or metadata:
            body, flags, index = self._long_start(method, metadata)
        else:
            body, flags = b"", 0
        if self.over:
            return True
        if peer is MINIMUM:
            flags |= _EARLY
        rides = message is not None and len(message) <= connection.small - len(body)
        if rides:
            assert message is not None
            flags |= _MESSAGE_AND_END if end else _MESSAGE
            size = len(message)
            self.credits -= size + FRAME_COST
            body += message
        elif end and message is None:
            flags |= _END
        start = _START.pack(_KIND, flags, index, _TIMEOUT_END + len(body), id, timeout) + body
        connection.emit_start(self, start)
        if message is not None and not rides:
            self._enqueue(message, end)
            return False
        return True

    def _long_start(self, method: str, metadata: Metadata) -> tuple[bytes, int, int]:
        """The optional parts of START: the name of a method without an index, and metadata."""
        connection, parts, flags = self.connection, [], 0
        if metadata and (size := metadata_size(metadata)) > (most := connection.peer.max_metadata):
            text = f"The metadata has {size} bytes; the server accepts {most}"
            self.finish(Status(StatusCode.RESOURCE_EXHAUSTED, text, may_have_run=False))
            return b"", 0, 0  # before a name gets an index, which the server would never learn
        index = connection.method_indexes.get(method)
        definitions: list[bytes] = []
        if index is None:
            definition = connection.names.define(METHODS, method)
            if definition is not None:
                definitions.append(definition)
                index = connection.method_indexes[method]
            else:
                name = method.encode()
                parts.append(_U16.pack(len(name)) + name)
                index = NO_INDEX
        if metadata:
            block = encode_metadata(metadata, connection.names, definitions)
            parts.append(_U32.pack(len(block)) + block)
            flags = _METADATA
        for definition in definitions:
            connection.emit(definition)
        return b"".join(parts), flags, index

    def post(self, message: bytes, *, end: bool = False) -> bool:
        """Send one message; False if it waits for credits or its turn: `writable` follows."""
        if end:
            self.sent_end = True
        return self._post_message(message, end=end)

    def half_close(self) -> None:
        """The client sends no more messages."""
        if self.over or self.sent_end:
            return
        self.sent_end = True
        if self._queue:
            self._queue[-1].end = True
        else:
            self.connection.emit(frame(Kind.END, self.id))

    def cancel(self, code: int = StatusCode.CANCELLED, details: str = "") -> bool:
        """End the call here at once and tell the server; False if it was over."""
        if self.over:
            return False
        ran = True
        if self.start_frame is not None and self.connection.take_back(self):
            ran = False
        else:
            self.connection.emit(frame(Kind.CANCEL, self.id, field=code))
        self.finish(Status(code, details, may_have_run=ran))
        return True

    def too_long(self, size: int, most: int) -> None:
        self.cancel(StatusCode.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {most})")

    # -- frames of the server

    def message_arrived(self, flags: int, data: memoryview) -> None:
        if flags & _END:
            raise ProtocolError("END came from a server")
        if self.initial_metadata is None:
            self.initial_metadata = ()  # HEADERS may not follow
        super().message_arrived(flags, data)

    def headers_arrived(self, payload: memoryview) -> None:
        """Handle HEADERS."""
        if self.initial_metadata is not None:
            raise ProtocolError("HEADERS came twice, or after a message")
        self.initial_metadata = self._read_metadata(payload)
        self.headers_received()

    def status_arrived(self, flags: int, code: int, payload: memoryview) -> None:
        """Handle STATUS, the end of the call."""
        if flags & (_DETAILS | _METADATA | _REFUSED):
            status, payload = self._long_status(flags, code, payload)
        else:
            status = Status(code)
        if self._partial is not None and not code:
            raise ProtocolError("STATUS came within a message")
        if flags & _MESSAGE:
            if len(payload) > self.connection.most_in_status:
                self.status_too_long(len(payload))
                return
            self.message_received(bytes(payload))
        elif len(payload):
            raise ProtocolError("STATUS is longer than its parts")
        if not self.over:
            self.finish(status)

    def status_too_long(self, size: int) -> None:
        """End the call, or the connection, because of the message in STATUS."""
        if size > SMALL:
            raise ProtocolError(f"The message in STATUS has {size} bytes; at most {SMALL} are allowed")
        self.too_long(size, self.connection.limits.max_message)

    def _read_metadata(self, block: memoryview) -> Metadata:
        connection = self.connection
        metadata = decode_metadata(block, connection.received_names)
        if metadata_size(metadata) > connection.limits.max_metadata:
            most = connection.limits.max_metadata
            raise ProtocolError(f"The server sent metadata of more than {most} bytes", GoAwayReason.LIMIT)
        return metadata

    def _long_status(self, flags: int, code: int, payload: memoryview) -> tuple[Status, memoryview]:
        details = ""
        metadata: Metadata = ()
        if flags & _DETAILS:
            (size,) = _U32.unpack_from(payload)
            if size > min(MOST_DETAILS, len(payload) - 4):
                raise ProtocolError("The text of STATUS is incomplete, or longer than is allowed")
            details = bytes(payload[4 : 4 + size]).decode("utf-8", "replace")
            payload = payload[4 + size :]
        if flags & _METADATA:
            (size,) = _U32.unpack_from(payload)
            if size > len(payload) - 4:
                raise ProtocolError("The metadata of STATUS is incomplete")
            metadata = self._read_metadata(payload[4 : 4 + size])
            payload = payload[4 + size :]
        return Status(code, details, metadata, may_have_run=not flags & _REFUSED), payload

    def finish(self, status: Status) -> None:
        """End the call with ``status``."""
        self.connection.calls.pop(self.id, None)
        if self._budget_used or self._queue is not None or self._partial is not None:
            self.release_all()
        self.over = self.received_end = True
        self.status = status
        self.ended()
