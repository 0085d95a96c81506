"""MemoryReclaim: chooses the calls that a server ends if one client holds the memory that others need.

Three things are done, and only while memory is short:

* If a new call arrives and the memory is used up, the server ends the calls that hold most memory, on connections that
  hold more than their share. If no connection holds more than its share, the server refuses the new call. The
  client still reads what those calls had sent, and its connection goes on. It ends only if the client leaves more than
  the share unread, and takes little of that in `UNREAD_TIME`.
* Announced messages wait for memory: every `TIMEOUT` seconds, the calls end whose reserved messages have not received
  `LEAST_PROGRESS` bytes meanwhile. So a client that announces messages and sends nothing holds the memory for at most
  twice that time.
* Meanwhile, if a client has read nearly nothing of its answers in `UNREAD_CHECKS` such checks, its calls end whose
  answers wait. So a program that first sends all requests, and reads no answer before, does not wait for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..protocol.status import GoAwayReason, ProtocolError, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ...cq.loops.drivers import Driver
    from ..protocol.flow import Budget
    from .transport import RpcTransport

__all__ = ["MemoryReclaim"]

TIMEOUT: Final = 5.0
"""Seconds between two checks of the arriving messages, while others wait for memory."""

LEAST_PROGRESS: Final = 65536
"""Bytes of a message, or its rest if that is smaller, that must arrive between two checks."""

UNREAD_CHECKS: Final = 3
"""Checks in a row in which a client has read nearly nothing, after which its calls end."""

UNREAD_TIME: Final = 0.5
"""Seconds in which a client must take a 16th of what its ended calls have sent, while the memory is used up."""


class MemoryReclaim:
    """Ends calls of a server that keep the memory of ``budget`` from others. ``transports`` are its connections."""

    def __init__(self, budget: Budget, transports: Collection[RpcTransport], driver: Driver) -> None:
        self.timeout = TIMEOUT
        self._budget = budget
        self._transports = transports
        self._driver = driver
        self._cancel: Callable[[], None] | None = None
        self._seen: dict[Any, tuple[Any, int]] = {}
        self._taken: dict[RpcTransport, tuple[int, int]] = {}  # bytes sent, and checks with little progress
        self.leaving: dict[RpcTransport, int] = {}  # bytes sent when the client got `UNREAD_TIME`
        budget.reclaim = self.reclaim
        budget.waits = self.watch

    def reclaim(self) -> None:
        """End calls until the memory suffices, or no connection holds more than its share."""
        budget = self._budget
        used = {transport: transport.connection.memory for transport in self._transports}
        leaving = sum(transport.connection.unsent for transport in self.leaving)
        while budget.taken - leaving > budget.limit and used:
            transport = max(used, key=used.__getitem__)
            if used.pop(transport) <= budget.share:
                return
            for call in sorted(transport.connection.calls.values(), key=lambda call: -(call.share_used + call.held)):
                call.cut(StatusCode.RESOURCE_EXHAUSTED, "The server is out of memory, and this client holds most of it")
                if budget.taken - leaving <= budget.limit:
                    return
            if transport not in self.leaving and transport.connection.unsent > budget.share:
                leaving += transport.connection.unsent
                self._watch_leaving(transport)

    def _watch_leaving(self, transport: RpcTransport) -> None:
        self.leaving[transport] = transport.connection.sent
        self._driver.call_later(UNREAD_TIME, lambda: self._look_at_leaving(transport))

    def _look_at_leaving(self, transport: RpcTransport) -> None:
        """The connection begins no calls while its client leaves so much unread: it ends if that takes too long."""
        sent = self.leaving.pop(transport)
        connection, budget = transport.connection, self._budget
        if transport.ended or not budget.exhausted or connection.unsent <= budget.share:
            return
        if connection.sent - sent < connection.unsent // 16:
            self._end_connection(transport)
        else:
            self._watch_leaving(transport)

    def _end_connection(self, transport: RpcTransport) -> None:
        connection = transport.connection
        if connection.failed is None:
            text = (
                f"The client does not read {connection.unsent} bytes of answers, and the server is out of memory: "
                "read them sooner, or raise the server's Limits.memory"
            )
            connection.fail(ProtocolError(text, GoAwayReason.LIMIT))

    def watch(self) -> None:
        """Called when a message begins to wait for memory: check regularly whether those that have it make progress."""
        if self._cancel is None:
            self._seen = self._arriving()
            self._cancel = self._driver.call_later(self.timeout, self._look)

    def _arriving(self) -> dict[Any, tuple[Any, int]]:
        calls = (call for transport in self._transports for call in transport.connection.calls.values())
        return {call: (partial, partial.received) for call in calls if (partial := call.arriving) is not None}

    def _look(self) -> None:
        self._cancel = None
        seen = self._seen
        for call, (partial, received) in self._arriving().items():
            before = seen.get(call)
            if before is not None and before[0] is partial and received - before[1] < LEAST_PROGRESS:
                call.cut(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"Less than {LEAST_PROGRESS} bytes of an announced message came in {self.timeout:g} s, "
                    "while other calls waited for memory, so the call was ended",
                )
        self._seen = {}
        self._look_at_answers()
        if self._waiting:
            self.watch()
        else:
            self._taken.clear()

    @property
    def _waiting(self) -> bool:
        """Whether announced messages wait for memory."""
        return bool(self._budget.reservations) or any(each.connection.announced for each in self._transports)

    def _look_at_answers(self) -> None:
        """Count the checks in which a client has taken little of what waits for it; end what it does not take."""
        taken: dict[RpcTransport, tuple[int, int]] = {}
        for transport in tuple(self._transports):
            connection = transport.connection
            waits = connection.queued + connection.unsent
            if not waits:
                continue
            sent, checks = self._taken.get(transport, (connection.sent, 0))
            if checks and connection.sent - sent >= max(LEAST_PROGRESS, waits // 16):
                checks = 0
            taken[transport] = (connection.sent, checks + 1)
            if checks >= UNREAD_CHECKS and self._waiting:
                self._end_unread(transport)
        self._taken = taken

    def _end_unread(self, transport: RpcTransport) -> None:
        for call in sorted(transport.connection.calls.values(), key=lambda call: -call.queued):
            if not call.queued:
                break
            call.cut(
                StatusCode.RESOURCE_EXHAUSTED,
                f"The client has read nothing for {self.timeout * UNREAD_CHECKS:g} s, while other calls waited for the "
                "memory of its answers, so the call was ended: read them sooner, or raise the server's Limits.memory",
            )
            if not self._waiting:
                return
        if transport.connection.unsent > self._budget.share:
            self._end_connection(transport)

    def close(self) -> None:
        """Watch no more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
