"""ServerConnection: the server's side of a connection."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from .connection import EVERY_CALL, Connection, Limits
from .frames import FRAME_COST, NO_INDEX, NO_TIMEOUT, Flag, Kind, frame
from .interning import METHODS
from .metadata import decode_metadata, metadata_size
from .preface import MINIMUM
from .status import GoAwayReason, ProtocolError, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from .flow import Budget

__all__ = ["ServerConnection"]

_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_END, _MESSAGE, _METADATA, _EARLY = int(Flag.END), int(Flag.MESSAGE), int(Flag.METADATA), int(Flag.EARLY)


class ServerConnection(Connection):
    """Accepts calls. ``new_call`` makes the object of each call; the connection fills it and calls its `started`.

    ``running``: calls whose handlers have not ended; the runtime counts down. ``highest``: id of the last call.

    ``admits`` returns None, or the status text with which a new call is refused (RESOURCE_EXHAUSTED).
    """

    def __init__(
        self,
        limits: Limits,
        new_call: Callable[[], Any],
        budget: Budget | None = None,
        *,
        admits: Callable[[], str | None] | None = None,
    ) -> None:
        super().__init__(limits, budget)
        self.new_call = new_call
        self.admits = admits
        # memory in use when a call was refused; while it is unchanged, `reclaim` would not find memory
        self._full_at = -1
        self._count_until = 0  # bytes sent when all has left that was unread at the first of the unread resets
        self._unread_resets = 0
        self.method_names = self.received_names.names[METHODS]
        self._handlers_after_preface[Kind.START] = self._start_arrived
        self._handlers_after_preface[Kind.END] = self._end_arrived
        self._handlers_after_preface[Kind.CANCEL] = self._cancel_arrived

    @property
    def last_call(self) -> int:
        return self.highest

    @property
    def share_used(self) -> int:
        """Bytes of the budget that the calls of this connection use, and what was not sent yet."""
        used: int = sum(call.share_used for call in self.calls.values())
        return used + self.unsent

    @property
    def memory(self) -> int:
        calls: int = sum(call.held for call in self.calls.values())
        return self.share_used + calls

    # A small answer ends its call before it has left, and a client that reads nothing could have any number of them. So
    # they count against the memory, and a client that leaves more than a share of it unread begins no more calls.

    def handed_over(self, size: int) -> None:
        super().handed_over(size)
        self.budget.take(size)
        if self.unsent > self.budget.share:
            self.max_calls = 0  # the fast path accepts no call: `_refusal` sees each

    def has_left(self, size: int) -> None:
        super().has_left(size)
        self.budget.release(size)
        if self.announced:
            self.memory_freed(size)
        if self.unsent <= self.budget.share:
            self.max_calls = self.limits.max_calls

    def count_reset(self, what: str) -> None:
        super().count_reset(what)
        if self.unsent <= 2 * self.budget.share:
            return
        # Answers to these frames are small, but nothing else bounds them if they are not read. A client that reads
        # them has at most `max_calls` calls whose refusals it has not seen.
        if self.sent >= self._count_until:
            self._count_until = self.sent + self.unsent
            self._unread_resets = 0
        self._unread_resets += 1
        if self._unread_resets > 2 * max(self.limits.max_calls, MINIMUM.max_calls):
            raise ProtocolError(
                f"The client does not read {self.unsent} bytes of answers, and goes on to send {what}",
                GoAwayReason.LIMIT,
            )

    def take_output(self, now: float) -> list[bytes | bytearray]:
        """All queued frames."""
        output, self.output = self.output, []
        return output

    def drain(self) -> None:
        """Announce the end. Calls that the client began before it read this are handled until PONG arrives."""
        if self.goaway_sent is None:
            self.goaway_sent = EVERY_CALL
            self.emit(frame(Kind.GOAWAY, EVERY_CALL))
            self.ping(0)

    def _goaway_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        super()._goaway_arrived(flags, field, id, payload)
        if field:  # the client has ended every call, and reads no more
            self.failed = ProtocolError("The client has ended the connection after an error")
            self.lost(str(self.failed))
            self.has_failed()

    def pong_received(self, id: int) -> None:
        """The client has read the announcement of the end: send it the id of the last call that is handled."""
        if self.goaway_sent == EVERY_CALL:
            self.goaway_sent = self.highest
            self.emit(frame(Kind.GOAWAY, self.highest))

    def _start_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        if id <= self.highest:
            raise ProtocolError(f"Call {id} began after call {self.highest}")
        if self.goaway_sent is not None and id > self.goaway_sent:
            return  # ignored without a reply: GOAWAY has told the client that the call does not run
        self.highest = id
        (timeout,) = _U64.unpack_from(payload)
        call = self.new_call()
        call.id = id
        call.connection = self
        at = 8
        if field == NO_INDEX:
            (size,) = _U16.unpack_from(payload, at)
            at += 2 + size
            try:
                call.method = bytes(payload[at - size : at]).decode()
            except UnicodeDecodeError:
                raise ProtocolError("The name of a method is not UTF-8") from None
        else:
            call.method = self.received_names.look_up(METHODS, field)
        refusal = None
        if flags & _METADATA:
            (size,) = _U32.unpack_from(payload, at)
            at += 4 + size
            if at > len(payload):
                raise ProtocolError("The metadata of START is incomplete")
            call.metadata = decode_metadata(payload[at - size : at], self.received_names)
            if metadata_size(call.metadata) > self.limits.max_metadata:
                refusal = f"The metadata is larger than this server accepts ({self.limits.max_metadata} bytes)"
        call.credits = call.window = self.peer.window
        call.outstanding = call.receive_window = MINIMUM.window if flags & _EARLY else self.limits.window
        self.calls[id] = call
        if timeout != NO_TIMEOUT:
            call.deadline = self.now + timeout * 1e-6
        message = None
        if flags & _MESSAGE:
            message = bytes(payload[at:])
            call.outstanding -= len(message) + FRAME_COST
            if len(message) > self.limits.max_message:
                refusal = f"Received message larger than max ({len(message)} vs. {self.limits.max_message})"
        elif at != len(payload):
            raise ProtocolError("START is longer than its parts")
        if refusal is None:
            refusal = self._refusal()
        if refusal is not None:
            self.count_reset("refused calls")
            call.finish(StatusCode.RESOURCE_EXHAUSTED, refusal, refused=True)
            return
        if flags & _END:
            call.received_end = True
        elif message is not None:
            call.owe(len(message) + FRAME_COST)
        self.running += 1
        call.hold()
        call.started(message)

    def _refusal(self) -> str | None:
        most = self.limits.max_calls
        if self.running >= most and (len(self.calls) > most or self.running >= 2 * most):
            # A client may begin a new call as soon as an earlier one is over. The handler of the earlier one may still
            # run for a moment.
            return f"This connection has its {most} calls"
        budget = self.budget
        if self.unsent > budget.share:
            return f"The client has not read {self.unsent} bytes of answers"
        if budget.exhausted:
            if budget.taken != self._full_at and self.memory <= budget.share:
                budget.reclaim()
            if budget.exhausted:
                self._full_at = budget.taken
                return "The server is out of memory for calls"
        return None if self.admits is None else self.admits()

    def _end_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is not None:
            call.end_arrived()
        else:
            self._check_known(id)

    def _cancel_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is None:
            self._check_known(id)
            return
        self.count_reset("cancelled calls")
        call.cancel_arrived()

    def _check_known(self, id: int) -> None:
        if id == 0 or (id > self.highest and (self.goaway_sent is None or id <= self.goaway_sent)):
            raise ProtocolError(f"The client sent a frame for call {id}, which never began")

    def lost(self, text: str) -> None:
        """The connection has ended: every call is cancelled."""
        calls: list[Any] = list(self.calls.values())
        for call in calls:
            call.cancel_arrived()
