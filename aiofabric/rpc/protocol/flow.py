"""Memory: the budget of a server, and the reservations of messages that arrive in pieces."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ..._core import BudgetCore

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Budget", "Reserver", "ResetMeter"]

SHARES: Final = 4
"""A connection's share of the memory is the limit divided by this."""


class Reserver(Protocol):
    """A call that waits for memory."""

    def reserved(self) -> None: ...


class Budget(BudgetCore):
    """Bytes that all calls of a server (or of a client) may hold together.

    It counts partial messages with their whole size, unread messages, metadata, and queued messages. Reservations are
    served in order, so that two half-received messages never wait for each other.

    ``share``: bytes that one connection may hold before its announced messages wait for its own memory.
    """

    __slots__ = ("reclaim", "reservations", "share", "waits")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.share = limit // SHARES
        self.used = 0
        self.reservations: deque[tuple[Reserver, int]] = deque()
        self.reclaim: Callable[[], object] = _nothing
        """Set by a server's runtime: ends calls of connections that hold more than their share."""
        self.waits: Callable[[], object] = _nothing
        """Set by a server's runtime: a reservation begins to wait."""

    @property
    def exhausted(self) -> bool:
        """Whether new calls must be refused. Announced messages that wait do not matter: they take no memory yet."""
        return self.used > self.limit

    @property
    def waiting(self) -> int:
        """Reservations that wait."""
        return len(self.reservations)

    def take(self, size: int) -> None:
        """Count bytes that are already here."""
        self.used += size

    def release(self, size: int) -> None:
        """Give back bytes; waiting reservations are served."""
        self.used -= size
        while self.reservations and self._fits(self.reservations[0][1]):
            reserver, wanted = self.reservations.popleft()
            self.used += wanted
            reserver.reserved()

    def reserve(self, reserver: Reserver, size: int) -> None:
        """Call ``reserver.reserved()`` when ``size`` bytes are free; at once, if they are."""
        if not self.reservations and self._fits(size):
            self.used += size
            reserver.reserved()
        else:
            self.reservations.append((reserver, size))
            self.waits()

    def forget(self, reserver: Reserver) -> bool:
        """Remove a waiting reservation; whether there was one."""
        for entry in self.reservations:
            if entry[0] is reserver:
                self.reservations.remove(entry)
                self.release(0)  # those behind it may fit now
                return True
        return False

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit or not self.used  # one message alone may exceed the limit


class ResetMeter:
    """A token bucket for frames that cost the receiver work and the sender nothing: CANCEL, PING, empty calls."""

    __slots__ = ("_burst", "_rate", "_since", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = burst
        self._since = 0.0

    def spend(self, now: float) -> bool:
        """Whether one more such frame is within the rate. ``now`` in seconds."""
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate) - 1
        self._since = now
        return self._tokens >= 0


def _nothing() -> None:
    pass
