"""Call: the messages of one call in both directions, with credits. `client_call` and `server_call` add the roles.

Sending. A message whose cost (its size, and `FRAME_COST` for each piece) fits the peer's window is sent as credits
allow, in pieces if it is large. A larger one is announced with its first piece (RENDEZVOUS), and the other pieces wait
for PROCEED: by then the receiver has reserved memory for all of it.

Receiving. Complete messages go to `message_received`. The application returns their credits with `consumed`. Memory for
an announced message is reserved when the application waits for it (`awaited`, `await_message`), or ahead of that while
memory is plentiful.

The methods of the section "events" do nothing here: the runtime overrides them. They are called while a frame is
handled, must return soon, and must not raise.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final

from ..._core import Assembly, CallCore
from .frames import FRAME_COST, HEADER, Flag, Kind, frame
from .status import GoAwayReason, ProtocolError

if TYPE_CHECKING:
    from .metadata import Metadata

__all__ = ["Call", "Status"]

_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_MESSAGE: Final = int(Kind.MESSAGE)
_END, _FIRST, _MORE, _RENDEZVOUS = int(Flag.END), int(Flag.FIRST), int(Flag.MORE), int(Flag.RENDEZVOUS)
_PREFIX: Final = _U64.size


class Status:
    """How a call ended. ``may_have_run``: whether a handler may have seen the call."""

    __slots__ = ("code", "details", "may_have_run", "metadata")

    def __init__(self, code: int, details: str = "", metadata: Metadata = (), *, may_have_run: bool = True) -> None:
        self.code = code
        self.details = details
        self.metadata = metadata
        self.may_have_run = may_have_run

    def __repr__(self) -> str:
        return f"Status({self.code}, {self.details!r}, may_have_run={self.may_have_run})"


class Outgoing:
    """A message that waits for credits, or for other messages before it: ``sent`` of its bytes have left."""

    __slots__ = ("announced", "data", "end", "proceed", "sent")

    def __init__(self, data: bytes, end: bool) -> None:
        self.data = data
        self.end = end
        self.sent = 0
        self.announced = False  # with RENDEZVOUS
        self.proceed = False  # PROCEED has arrived


class Partial:
    """A message whose first piece has arrived."""

    __slots__ = ("_first", "ahead", "asked", "assembly", "cost", "free", "received", "total")

    def __init__(self, total: int, piece: memoryview, cost: int, free: bool) -> None:
        self.total = total
        self.received = len(piece)
        self.cost = cost  # credits that its pieces have taken
        self.free = free  # of credits: the pieces after the first one of an announced message
        self.asked = False  # for memory: it is reserved, or the reservation waits
        self.ahead = False  # of a reader: no task waits for it
        self._first: memoryview | bytes = piece
        self.assembly: Assembly | None = None  # none before the memory is reserved

    def allocate(self) -> None:
        """The memory is reserved."""
        self.assembly = Assembly(self.total)
        self.assembly.add(self._first)
        self._first = b""

    def wait(self) -> None:
        """There is no memory yet: keep a copy of the first piece."""
        self._first = bytes(self._first)

    def add(self, piece: memoryview) -> bool:
        """Store a piece; whether the message is complete. ValueError if the pieces are longer than the message."""
        assert self.assembly is not None
        self.received = self.assembly.add(piece)
        return self.received == self.total


class Call(CallCore, ABC):
    """One call on one side; base of `ClientCall` and `ServerCall`.

    ========================  ==============================================================================
    attribute                 meaning
    ========================  ==============================================================================
    over                      the call has ended
    sent_end, received_end    no more messages follow, from a client
    credits, window           bytes that this side may send: now, and at the start
    outstanding               bytes that the peer may send now
    receive_window            bytes that the peer may send at the start
    queued                    bytes that wait to be sent
    unsent                    the call ended before all its messages had left
    _queue                    deque of `Outgoing`; None if nothing waits
    _partial                  the message whose pieces arrive
    _unread                   deque of each message that was not consumed: its credits, its budget, and its `Partial`
                              if it was announced
    _owed                     credits of consumed messages that were not granted yet
    _budget_used              bytes of the budget that this call uses
    _ahead                    of these, bytes of announced messages that no task waits for
    ========================  ==============================================================================
    """

    _ahead = 0

    # -- events

    def message_received(self, message: bytes) -> None:
        """A whole message has arrived. Call `consumed` once for each, when the application has taken it."""

    def end_received(self) -> None:
        """The peer sends no more messages."""

    def writable(self) -> None:
        """All queued messages have left."""

    def awaited(self) -> bool:
        """Whether the application takes the next message as soon as it is there."""
        return True

    # -- sending

    def _post_message(self, message: bytes, *, end: bool = False) -> bool:
        """Send or queue a message; False if it waits: `writable` follows. Of a call that is over, it is dropped."""
        if self.over:
            return True
        connection = self.connection
        size = len(message)
        if size <= connection.small and self._queue is None and size + FRAME_COST <= self.credits:
            self.credits -= size + FRAME_COST
            connection.emit(HEADER.pack(_MESSAGE, _END if end else 0, 0, size, self.id) + message)
            return True
        self._enqueue(message, end)
        return False

    def _enqueue(self, message: bytes, end: bool) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(Outgoing(message, end))
        self.queued += len(message)
        self._take(len(message))
        self.connection.rotate(self)

    @property
    def sending(self) -> bool:
        """Whether messages wait to be sent."""
        return self._queue is not None

    def next_piece(self, most: int) -> tuple[bytes, memoryview] | None:
        """The header and data of the next piece of at most ``most`` bytes; None if this call must wait."""
        if not self._queue:
            return None
        first = self._queue[0]
        rest = len(first.data) - first.sent
        flags, prefix = 0, b""
        if first.proceed:
            size = min(rest, most)
        else:
            if first.announced or self.credits < FRAME_COST + min(rest, 1):
                return None
            size = min(rest, most, self.credits - FRAME_COST)
            if not first.sent and (size < rest or len(first.data) > most):
                # The cost is an upper bound: credits may cut a message into more pieces, but not below a quarter.
                first.announced = rest + (rest // (most - _PREFIX) + 5) * FRAME_COST > self.window
                size = min(size, most - _PREFIX)
            if size < min(rest, most - _PREFIX, self.window // 4):
                first.announced = False
                # Do not send a tiny piece for the last credits: the peer grants at least a quarter of the window at a
                # time
                return None
            if not first.sent and size < rest:
                flags, prefix = _FIRST | (_RENDEZVOUS if first.announced else 0), _U64.pack(rest)
            self.credits -= size + FRAME_COST
        piece = memoryview(first.data)[first.sent : first.sent + size]
        first.sent += size
        if size < rest:
            flags |= _MORE
        else:
            flags |= _END if first.end else 0
            self._message_left(first)
        return HEADER.pack(_MESSAGE, flags, 0, size + len(prefix), self.id) + prefix, piece

    def _message_left(self, first: Outgoing) -> None:
        assert self._queue is not None
        self._queue.popleft()
        self.queued -= len(first.data)
        self._release(len(first.data))
        if not self._queue:
            self._queue = None
            self.connection.drained.append(self)

    # -- receiving

    def message_arrived(self, flags: int, data: memoryview) -> None:
        """Handle a MESSAGE frame for this call."""
        if self.received_end:
            raise ProtocolError("A message came after the peer had ended its direction with END")
        if self._partial is not None:
            self._piece_arrived(self._partial, flags, data)
        elif flags & _FIRST:
            self._first_piece_arrived(flags, data)
        elif flags & (_MORE | _RENDEZVOUS):
            raise ProtocolError("The first piece of a message is missing")
        else:
            cost = len(data) + FRAME_COST
            self._spend(cost)
            self._budget_used += cost
            self.connection.budget.used += cost
            self._complete(bytes(data), cost, cost, None, flags)

    def _first_piece_arrived(self, flags: int, data: memoryview) -> None:
        (total,) = _U64.unpack_from(data)
        size = len(data) - _PREFIX
        if not 0 < size < total or not flags & _MORE or flags & _END:
            raise ProtocolError("The first piece of a message is empty, or as long as all of it")
        self._spend(size + FRAME_COST)
        connection = self.connection
        most = min(connection.limits.max_message, connection.budget.limit)
        if total > most:
            self.too_long(total, most)
            return
        free = bool(flags & _RENDEZVOUS)
        if not free and total > self.receive_window:
            raise ProtocolError("A message longer than the window was not announced", GoAwayReason.FLOW_CONTROL)
        partial = self._partial = Partial(total, data[_PREFIX:], size + FRAME_COST, free)
        if free:
            if self.awaited():
                self._ask(partial)
            elif connection.budget.reserve_ahead(total):
                partial.asked = partial.ahead = True
                self._ahead += total
                self.reserved()
            if partial.assembly is None:
                partial.wait()
        else:
            partial.allocate()
            self._take(total)
            self._grant()  # the sender may need what is owed to send the rest

    def await_message(self) -> None:
        """A task begins to wait for the next message, of which a part may be here. `awaited` is true from now on."""
        partial = self._partial
        if partial is None or not partial.free:
            return
        if not partial.asked:
            self._ask(partial)
        elif partial.ahead:
            self._set_ahead(partial, False)

    def stop_awaiting(self) -> None:
        """The task has stopped to wait, and has taken no message. `awaited` is false from now on."""
        partial = self._unread[0][2] if self._unread else self._partial
        if partial is None or not partial.free or not partial.asked or partial.ahead:
            return
        if partial.assembly is None:
            partial.asked = False
            self.connection.forget_reservation(self)
        else:
            self._set_ahead(partial, True)

    def _set_ahead(self, partial: Partial, ahead: bool) -> None:
        partial.ahead = ahead
        size = partial.total if ahead else -partial.total
        self._ahead += size
        self.connection.budget.move_ahead(size)

    def _ask(self, partial: Partial) -> None:
        partial.asked = True
        self.connection.reserve(self, partial.total)

    def _free_announced(self, partial: Partial) -> None:
        if partial.ahead:
            self._ahead -= partial.total
        self.connection.budget.settle(partial.total, partial.ahead)

    def reserved(self) -> None:
        """The budget has reserved the announced message."""
        if self._partial is not None:
            self._partial.allocate()
            self._budget_used += self._partial.total
            self.connection.emit(frame(Kind.PROCEED, self.id))

    def _piece_arrived(self, partial: Partial, flags: int, piece: memoryview) -> None:
        if flags & (_FIRST | _RENDEZVOUS) or not len(piece):
            raise ProtocolError("A message begins within another one of the same call")
        if flags & _MORE and flags & _END:
            raise ProtocolError("END came within a message")
        if partial.assembly is None:
            raise ProtocolError("A piece of an announced message came before PROCEED", GoAwayReason.FLOW_CONTROL)
        if not partial.free:
            self._spend(len(piece) + FRAME_COST)
            partial.cost += len(piece) + FRAME_COST
        try:
            complete = partial.add(piece)
        except ValueError:
            complete = bool(flags & _MORE)  # more bytes than announced: the same error as for too few
        if complete == bool(flags & _MORE):
            raise ProtocolError("The pieces of a message differ from its announced size")
        if complete:
            self._partial = None
            announced = partial if partial.free else None
            self._complete(partial.assembly.take(), partial.cost, partial.total, announced, flags)

    def _complete(self, message: bytes, cost: int, used: int, announced: Partial | None, flags: int) -> None:
        if len(message) > self.connection.limits.max_message:
            self.too_long(len(message), self.connection.limits.max_message)
            return
        if self._unread is None:
            self._unread = deque()
        self._unread.append((cost, used, announced))
        if flags & _END:
            self.received_end = True
        self.message_received(message)
        if flags & _END and not self.over:
            self.end_received()

    @abstractmethod
    def too_long(self, size: int, most: int) -> None:
        """A message is longer than this side accepts: end the call."""

    def owe(self, cost: int) -> None:
        """Return credits with the next grant."""
        self._owed += cost

    def consumed(self) -> None:
        """The application has taken the oldest message: return its credits and its memory."""
        if not self._unread:
            return
        cost, used, announced = self._unread.popleft()
        if announced is not None:
            self._free_announced(announced)
        self._budget_used -= used
        connection = self.connection
        budget = connection.budget
        budget.used -= used
        if budget.reservations:
            budget.release(0)
        if connection.announced:
            connection.memory_freed(used)
        if self.received_end or self.over:
            return
        self._owed += cost
        if self._owed * 2 >= self.receive_window or self._partial is not None:
            self._grant()

    def _spend(self, cost: int) -> None:
        self.outstanding -= cost
        if self.outstanding < 0:
            raise ProtocolError("More bytes were sent than were granted", GoAwayReason.FLOW_CONTROL)

    def _grant(self) -> None:
        owed, self._owed = self._owed, 0
        if owed:
            self.outstanding += owed
            self.connection.emit(frame(Kind.CREDIT, self.id, _U32.pack(owed)))

    def end_arrived(self) -> None:
        """Handle END: the client sends no more messages."""
        if self.received_end or self._partial is not None:
            raise ProtocolError("END came twice, or within a message")
        self.received_end = True
        self.end_received()

    # -- grants of the peer

    def credit_arrived(self, amount: int) -> None:
        """Handle CREDIT."""
        self.credits += amount
        if not amount or self.credits > self.window:
            raise ProtocolError("More credits were granted than were spent", GoAwayReason.FLOW_CONTROL)
        if self._queue is not None:
            self.connection.rotate(self)

    def proceed_arrived(self) -> None:
        """Handle PROCEED."""
        if not self._queue or not self._queue[0].announced or self._queue[0].proceed:
            raise ProtocolError("PROCEED came for a message that was not announced")
        self._queue[0].proceed = True
        self.connection.rotate(self)

    # -- memory and the end

    @property
    def share_used(self) -> int:
        """Bytes of the budget that this call uses, without those of messages that are here ahead of their reader."""
        return self._budget_used - self._ahead

    @property
    def arriving(self) -> Partial | None:
        """The message whose pieces arrive; its memory is reserved."""
        partial = self._partial
        return None if partial is None or partial.assembly is None else partial

    def _take(self, size: int) -> None:
        self._budget_used += size
        self.connection.budget.take(size)

    def _release(self, size: int) -> None:
        self._budget_used -= size
        self.connection.budget.release(size)
        if self.connection.announced:
            self.connection.memory_freed(size)

    def _drop_queue(self) -> None:
        if self._queue is not None:
            self._queue = None
            self.unsent = True
            queued, self.queued = self.queued, 0
            self._release(queued)

    def release_all(self) -> None:
        """The call is over: drop what is queued and partial. Messages that were received can still be taken."""
        self.over = True
        self._drop_queue()
        partial, self._partial = self._partial, None
        if partial is not None and partial.free:
            if partial.assembly is not None:
                self._free_announced(partial)
            elif partial.asked:
                self.connection.forget_reservation(self)
        unread = sum(used for _, used, _ in self._unread) if self._unread else 0
        if self._budget_used != unread:
            self._release(self._budget_used - unread)

    def discard(self) -> None:
        """Drop the messages that were not consumed, too."""
        while self._unread:
            self.consumed()
