"""ClientConnection: the client's side of a connection."""

from __future__ import annotations

import struct
from typing import Any

from .calls import Status
from .connection import SMALL, Connection, Limits
from .flow import Budget, ClientBudget
from .frames import Kind, frame
from .interning import METHODS
from .status import ProtocolError, StatusCode

__all__ = ["ClientConnection"]

_U64 = struct.Struct("<Q")
_TIMEOUT_AT = 16
_OF_CALLS = {Kind.START, Kind.MESSAGE, Kind.END, Kind.CREDIT, Kind.PROCEED}


class ClientConnection(Connection):
    """Begins calls and receives their answers."""

    budget_of = ClientBudget

    def __init__(self, limits: Limits, budget: Budget | None = None) -> None:
        super().__init__(limits, budget)
        self.next_id = 1
        self.status_ok = Status(StatusCode.OK)
        self.most_in_status = min(SMALL, limits.max_message)
        self.method_indexes = self.names.indexes[METHODS]
        self._handlers_after_preface[Kind.HEADERS] = self._headers_arrived
        self._handlers_after_preface[Kind.STATUS] = self._status_arrived
        self._untouched: list[Any] = []  # their START is in `output`

    @property
    def last_call(self) -> int:
        return 0  # servers begin no calls

    def emit_start(self, call: Any, data: bytes) -> None:
        """Queue START so that it can be taken back, and its time limit adjusted, until it leaves."""
        if self.output or not self.send_now(data):
            self.hold_start(call, data)

    def hold_start(self, call: Any, data: bytes) -> None:
        """Queue START."""
        call.start_frame = bytearray(data)
        self._untouched.append(call)
        self.hold(call.start_frame)

    def take_back(self, call: Any) -> bool:
        """Remove the START of ``call``, and the frames behind it, from the output."""
        if not any(data is call.start_frame for data in self.output):
            return False
        call.start_frame = None
        id = call.id.to_bytes(8, "little")
        self.output[:] = [data for data in self.output if data[0] not in _OF_CALLS or data[8:16] != id]
        return True

    def take_output(self, now: float) -> list[bytes | bytearray]:
        """All queued frames. Calls whose deadline has passed are not among them; the others get their time left."""
        if self._untouched:
            untouched, self._untouched = self._untouched, []
            for call in untouched:
                if call.start_frame is not None and call.deadline is not None and not call.over:
                    left = int((call.deadline - now) * 1e6)
                    if left > 0:
                        _U64.pack_into(call.start_frame, _TIMEOUT_AT, left)
                    else:
                        self.take_back(call)
                        call.finish(Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", may_have_run=False))
                call.start_frame = None
        output, self.output = self.output, []
        return output

    @property
    def finished(self) -> bool:
        """Whether no call runs and none will begin: this side should close the connection."""
        return self.retired and not self.calls

    def retire(self) -> None:
        """Begin no more calls."""
        self.retired = True

    def close(self) -> None:
        """Tell the server that this side ends the connection."""
        self.emit(frame(Kind.GOAWAY, 0))

    def lost(self, text: str) -> None:
        """The connection has ended: every call ends with UNAVAILABLE."""
        self.retired = True
        highest = None if self.goaway_received is None else self.goaway_received[0]
        for call in list(self.calls.values()):
            ran = call.start_frame is None and (highest is None or call.id <= highest)
            call.finish(Status(StatusCode.UNAVAILABLE, text, may_have_run=ran))

    def _headers_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is not None:
            call.headers_arrived(payload)
        else:
            self._check_known(id)

    def _status_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is None:
            self._check_known(id)
        else:
            call.status_arrived(flags, field, payload)

    def _check_known(self, id: int) -> None:
        if not 0 < id < self.next_id:
            raise ProtocolError(f"The server sent a frame for call {id}, which never began")

    def _goaway_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        self.retired = True
        super()._goaway_arrived(flags, field, id, payload)
        if field:  # the server has ended every call
            self.lost(f"The server has ended the connection: {self.goaway_received[2] if self.goaway_received else ''}")
            return
        for call in list(self.calls.values()):
            if call.id > id:
                text = self.goaway_received[2] if self.goaway_received else ""
                call.finish(Status(StatusCode.UNAVAILABLE, text or "The server has stopped", may_have_run=False))
