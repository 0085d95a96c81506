"""MemoryReclaim: chooses the calls that a server ends if one client holds the memory that others need.

Two things are done, and only while memory is short:

* If a new call arrives and the memory is used up, the server ends the calls that hold most memory, on connections that
  hold more than their share. If no connection holds more than its share, the server refuses the new call.
* Announced messages wait for memory: every `TIMEOUT` seconds, the calls end whose reserved messages have not received
  `LEAST_PROGRESS` bytes meanwhile. So a client that announces messages and sends nothing holds the memory for at most
  twice that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

RESOURCE_EXHAUSTED = 8


class MemoryReclaim:
    """Ends calls of a server that keep the memory of ``budget`` from others. ``transports`` are its connections."""

    def __init__(self, budget: Budget, transports: Collection[RpcTransport], driver: Driver) -> None:
        self.timeout = TIMEOUT
        self._budget = budget
        self._transports = transports
        self._driver = driver
        self._cancel: Callable[[], None] | None = None
        self._seen: dict[Any, tuple[Any, int]] = {}
        budget.reclaim = self.reclaim
        budget.waits = self.watch

    def reclaim(self) -> None:
        """End calls until the memory suffices, or no connection holds more than its share."""
        budget = self._budget
        held = {transport.connection: transport.connection.held for transport in self._transports}
        while budget.exhausted and held:
            connection = max(held, key=held.__getitem__)
            if held.pop(connection) <= budget.share:
                return
            for call in sorted(connection.calls.values(), key=lambda call: -call.held):
                call.cut(RESOURCE_EXHAUSTED, "The server is out of memory, and this client holds most of it")
                if not budget.exhausted:
                    return

    def watch(self) -> None:
        """Called when a message begins to wait for memory: check regularly the messages whose memory is reserved."""
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
                    RESOURCE_EXHAUSTED,
                    f"Less than {LEAST_PROGRESS} bytes of an announced message came in {self.timeout:g} s, "
                    "while other calls waited for memory, so the call was ended",
                )
        self._seen = {}
        if self._budget.reservations:
            self.watch()

    def close(self) -> None:
        """Watch no more."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
