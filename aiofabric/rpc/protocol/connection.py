"""Connection: the frames of all calls between two sides. `client` and `server` add the roles.

Input: `receive` handles one fabric message. Output: a small frame goes to `send_now`, which the runtime sets; if that
refuses, it waits in `output` with the frames behind it. `next_piece` returns pieces of large messages, in rotation
among the calls.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..._core import ConnectionCore
from .flow import Budget, ResetMeter
from .frames import HEADER_SIZE, IGNORABLE, Kind, frame
from .interning import ReceivedNames, SentNames
from .preface import LEAST_RECV_SIZE, LEAST_WINDOW, MINIMUM, MOST_CREDENTIALS, MOST_METADATA, MOST_TABLE, Preface
from .status import GoAwayReason, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .calls import Call

__all__ = ["DEFAULT_LIMITS", "EVERY_CALL", "Connection", "Limits"]

EVERY_CALL: Final = (1 << 64) - 1
_U32 = struct.Struct("<I")

SMALL: Final = 16384
"""Bytes of the largest message that is copied into the same fabric message as its header, and never cut."""


_32_BITS, _63_BITS = (1 << 32) - 1, (1 << 63) - 1
_RANGES: Final = {
    "recv_size": (LEAST_RECV_SIZE, _32_BITS),
    "window": (LEAST_WINDOW, _32_BITS),
    "table": (0, MOST_TABLE),
    "max_metadata": (0, MOST_METADATA),
    "max_message": (0, _63_BITS),
    "max_calls": (1, _32_BITS),
    "memory": (1, _63_BITS),
    "resets": (1, _63_BITS),
    "reset_burst": (1, _63_BITS),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one side; most are announced in the preface. Sizes are in bytes.

    Args:
        recv_size: the largest fabric message, and so the pieces of large messages. With 256 KiB instead of 64, the 99th
            percentile of a small call beside a stream of 1 MiB messages was 5.6 ms instead of 0.7.
        window: unread data of one call.
        table: names of methods and of metadata that the peer may define, so that it need not repeat them.
        max_metadata: the metadata of one direction of a call.
        max_message: the longest message that this side receives; a longer one ends its call with RESOURCE_EXHAUSTED.
        max_calls: calls of one connection at the same time; further ones wait in the client's channel.
        memory: what all calls of a server, or of a client, may hold together. On a server, the metadata of a call
            counts, too; on a client, only messages that the server announces count. A connection of a server that holds
            more than a quarter of it waits with its announced messages.
        resets: cancelled calls and pings of a connection, for each second.
        reset_burst: as many of them may come at once.
        credentials: at most 16 KiB for the server. `Server` does not check them.
    """

    recv_size: int = 65536 + 64
    window: int = 524288
    table: int = 16384
    max_metadata: int = 16384
    max_message: int = 4 << 20
    max_calls: int = 1024
    memory: int = 256 << 20
    resets: float = 10_000.0
    reset_burst: float = 20_000.0
    credentials: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            fraction = name in ("resets", "reset_burst")
            if not isinstance(value, int | float if fraction else int):
                raise TypeError(f"Limits: {name} must be {'a number' if fraction else 'an int'}, not {value!r}")
            if not least <= value <= most:
                raise ValueError(f"Limits: {name} must be from {least} to {most}, not {value!r}")
        if not isinstance(self.credentials, bytes):
            raise TypeError(f"Limits: credentials must be bytes, not {self.credentials!r:.100}")
        if len(self.credentials) > MOST_CREDENTIALS:
            raise ValueError(f"Limits: credentials must have at most {MOST_CREDENTIALS} bytes")

    def preface(self) -> Preface:
        """The preface that announces these limits."""
        return Preface(
            self.recv_size,
            self.window,
            self.table,
            self.max_metadata,
            self.max_message,
            self.max_calls,
            0,
            self.credentials,
        )


DEFAULT_LIMITS: Final = Limits()


class Connection(ConnectionCore, ABC):
    """State of one connection on one side; base of `ClientConnection` and `ServerConnection`."""

    def __init__(self, limits: Limits, budget: Budget | None = None) -> None:
        self.limits = limits
        self.receive_window = limits.window
        self.max_message = limits.max_message
        self.max_calls = limits.max_calls
        self.budget: Budget = self.budget_of(limits.memory) if budget is None else budget
        self.peer = MINIMUM
        self.peer_max_calls = MINIMUM.max_calls
        self.small = min(SMALL, MINIMUM.recv_size // 2)
        self.calls: dict[int, Any] = {}
        self.output: list[bytes | bytearray] = []
        self.send_now: Callable[[bytes], bool] = _gather
        """Set by the runtime: sends a frame at once, or returns False if it must wait in `output`."""
        self.flush: Callable[[], object] = _nothing
        """Set by the runtime: sends `output` and pieces now."""
        self.has_failed: Callable[[], object] = _nothing
        """Set by the runtime: `failed` is set now."""
        self.transport: Any = None
        """The runtime's object for this connection."""
        self.names = SentNames(0)
        self.received_names = ReceivedNames(limits.table)
        self.rotation: deque[Call] = deque()
        self.announced: deque[tuple[Call, int]] = deque()
        """Announced messages that wait until this connection holds less than its share of the memory."""
        self._share_used_at_least = 0  # while some wait
        self.drained: list[Call] = []
        self.finishing: list[Any] = []
        self.unsent = 0
        """Bytes of frames other than pieces that the runtime has handed to the provider, and that have not left."""
        self.sent = 0
        """Bytes that have left."""
        self.failed: ProtocolError | None = None
        self.goaway_received: tuple[int, int, str] | None = None
        self.goaway_sent: int | None = None
        self._resets = ResetMeter(limits.resets, limits.reset_burst)
        self._handlers: dict[int, Callable[[int, int, int, memoryview], None]] = {Kind.PREFACE: self._preface_arrived}
        """Of the frames that may arrive now: only PREFACE at first."""
        self._handlers_after_preface: dict[int, Callable[[int, int, int, memoryview], None]] = {
            Kind.DEFINE: self._define_arrived,
            Kind.MESSAGE: self._message_arrived,
            Kind.CREDIT: self._credit_arrived,
            Kind.PROCEED: self._proceed_arrived,
            Kind.GOAWAY: self._goaway_arrived,
            Kind.PING: self._ping_arrived,
            Kind.PONG: self._pong_arrived,
        }
        self.output.append(limits.preface().pack())

    budget_of: Callable[[int], Budget] = Budget
    """Makes the budget of a connection that shares none."""

    # -- events

    def preface_received(self) -> None:
        """`peer` has the peer's limits."""

    def goaway_arrived(self) -> None:
        """`goaway_received` is set: the peer begins no more calls, or handles none above the id."""

    def pong_received(self, id: int) -> None:
        """The answer to `ping`."""

    # -- output

    def rotate(self, call: Call) -> None:
        """``call`` has a message to send; ask it for pieces in its turn."""
        if not call.in_rotation:
            call.in_rotation = True
            self.rotation.append(call)
            self.flush()

    def next_piece(self) -> tuple[bytes, memoryview] | None:
        """The next piece of a large message: header and data, to be sent together; None if there is none now.

        The data is memory of the message, which must not change until the piece was sent. Frames in `output` go first.
        """
        most = self.peer.recv_size - HEADER_SIZE
        rotation = self.rotation
        while rotation:
            call = rotation.popleft()
            piece = call.next_piece(most)
            if piece is None:
                call.in_rotation = False
                continue
            if call.sending:
                rotation.append(call)
            else:
                call.in_rotation = False
            return piece
        return None

    def pieces_handed_over(self) -> None:
        """The provider has the pieces that were returned: continue calls that waited for that."""
        if self.finishing:
            finishing, self.finishing = self.finishing, []
            for call in finishing:
                call.finish_queued()
        if self.drained:
            drained, self.drained = self.drained, []
            for call in drained:
                if not call.over:
                    call.writable()

    def handed_over(self, size: int) -> None:
        """The runtime has handed ``size`` bytes of `output` to the provider."""
        self.unsent += size

    def has_left(self, size: int) -> None:
        """They have left, or never will."""
        self.unsent -= size
        self.sent += size

    # -- memory

    @property
    def queued(self) -> int:
        """Bytes of messages that wait to be sent."""
        return sum(call.queued for call in self.calls.values())

    @property
    def share_used(self) -> int:
        """Bytes that count against this connection's share of the memory. The servers of a client share all of it."""
        return 0

    @property
    def memory(self) -> int:
        """Bytes of the budget that this connection holds: `share_used`, and on a server the metadata of its calls."""
        return self.share_used

    def reserve(self, call: Call, size: int) -> None:
        """Reserve memory for an announced message; `Call.reserved` follows."""
        budget = self.budget
        if not self.announced and budget.used > budget.share:
            self._share_used_at_least = self.share_used
        if self.announced or (budget.used > budget.share and self._share_used_at_least > budget.share):
            self.announced.append((call, size))
            budget.waits()
        else:
            budget.reserve(call, size)

    def forget_reservation(self, call: Call) -> None:
        """The call is over whose announced message waits."""
        if not self.budget.forget(call):
            self.announced = deque(entry for entry in self.announced if entry[0] is not call)

    def memory_freed(self, size: int) -> None:
        """A call has released memory while announced messages of this connection wait.

        The sum over all calls is computed again only after a 16th of the share was released. So a peer cannot cause
        this work with each small message.
        """
        self._share_used_at_least -= size
        share = self.budget.share
        if self._share_used_at_least <= share - share // 16:
            while self.announced and (used := self.share_used) <= share:
                self._share_used_at_least = used
                self.budget.reserve(*self.announced.popleft())
            self._share_used_at_least = self.share_used

    def ping(self, id: int) -> None:
        """Send PING; `pong_received` is called when the peer has replied."""
        self.emit(frame(Kind.PING, id))

    # -- input

    # `receive` reads the frames. It calls `_handlers`, or one of these:

    def _cut_short(self, size: int) -> None:
        raise ProtocolError("A frame is shorter than its parts")

    def _too_long(self, length: int) -> None:
        raise ProtocolError(f"A frame of {length} bytes is longer than its fabric message")

    def _unknown(self, kind: int) -> None:
        if kind & IGNORABLE:
            return
        if not self.peer_known:
            raise ProtocolError("A frame came before the preface")
        raise ProtocolError(f"A frame has the unknown kind {kind}")

    def _reading_failed(self, error: BaseException) -> None:
        if isinstance(error, ProtocolError):
            self.fail(error)
        elif isinstance(error, struct.error):
            self.fail(ProtocolError("A frame is shorter than its parts"))
        else:
            raise error

    def fail(self, error: ProtocolError) -> None:
        """End the connection because of the peer: tell it, and end every call."""
        self.failed = error
        self.emit(frame(Kind.GOAWAY, self.last_call, str(error).encode()[:1024], field=error.reason))
        self.lost(f"The peer broke the RPC protocol: {error}")
        self.has_failed()

    @property
    @abstractmethod
    def last_call(self) -> int:
        """The id of the peer's last call that this side has seen; the peer may repeat later ones."""

    @abstractmethod
    def lost(self, text: str) -> None:
        """The connection has ended: end every call."""

    def _preface_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        if self.peer_known:
            raise ProtocolError("A second preface arrived")
        self.peer_known = True
        self.peer = Preface.unpack(payload)
        self.window, self.peer_max_calls = self.peer.window, self.peer.max_calls
        self._handlers.update(self._handlers_after_preface)
        self.names.room = self.peer.table
        self.preface_received()

    def _define_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        self.received_names.add(flags, field, bytes(payload))

    def _message_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is not None:
            call.message_arrived(flags, payload)
        else:
            self._check_known(id)

    def _credit_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is not None:
            call.credit_arrived(_U32.unpack_from(payload)[0])
        else:
            self._check_known(id)

    def _proceed_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        call = self.calls.get(id)
        if call is not None:
            call.proceed_arrived()
        else:
            self._check_known(id)

    @abstractmethod
    def _check_known(self, id: int) -> None:
        """Raise an error if no call with this id has ever begun."""

    def _goaway_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        self.goaway_received = (id, field, bytes(payload).decode("utf-8", "replace"))
        self.goaway_arrived()

    def _ping_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        self.count_reset("pings")
        self.emit(frame(Kind.PONG, id))

    def _pong_arrived(self, flags: int, field: int, id: int, payload: memoryview) -> None:
        self.pong_received(id)

    def count_reset(self, what: str) -> None:
        """Limit frames that cost this side work and the peer nothing."""
        if not self._resets.spend(self.now):
            raise ProtocolError(f"Too many {what} in a short time", GoAwayReason.LIMIT)


def _gather(_: bytes) -> bool:
    return False


def _nothing() -> None:
    pass
