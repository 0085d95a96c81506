"""Memory: the budget of a server, and the reservations of messages that arrive in pieces."""

from __future__ import annotations

from collections import deque
from typing import Protocol

__all__ = ["Budget", "Reserver", "ResetMeter"]


class Reserver(Protocol):
    """A call that waits for memory."""

    def reserved(self) -> None: ...


class Budget:
    """Bytes that all calls of a server (or of a client) may hold together.

    It counts partial messages with their whole size, unread messages, metadata, and queued messages. Reservations are
    served in order, so that two half-received messages never wait for each other.
    """

    __slots__ = ("limit", "reservations", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.reservations: deque[tuple[Reserver, int]] = deque()

    @property
    def exhausted(self) -> bool:
        """Whether new calls must be refused."""
        return self.used > self.limit or bool(self.reservations)

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
