"""Memory: the budget of a server or a client, and the reservations of announced messages.

These hold memory; docs/reference/rpc-protocol.md has the argument why calls do not wait for each other in a circle:

==========================  =========================================  ===========================
memory of                   is given back                              counts against reservations
==========================  =========================================  ===========================
an announced message that   when its rest has come: the peer sends it  yes
the application waits for   without delay, and it is taken at once
an announced message ahead  when the application takes it              no; an eighth at most
of its reader
other messages, unread      when the application takes them            on a server
a queued message            when the peer grants its bytes             on a server
metadata of a call          when the call is over                      no
==========================  =========================================  ===========================
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ..._core import BudgetCore

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Budget", "ClientBudget", "Reserver", "ResetMeter"]

SHARES: Final = 4
"""A connection's share of the memory is the limit divided by this."""


class Reserver(Protocol):
    """A call that waits for memory."""

    def reserved(self) -> None: ...


class Budget(BudgetCore):
    """Bytes that all calls of a server may hold together.

    It counts partial messages with their whole size, unread messages, queued messages, and what was not sent yet.
    Reservations are served in order, so that two half-received messages never wait for each other.

    ``share``: bytes that one connection may hold before its announced messages wait for its own memory. ``reserved``:
    bytes of announced messages that the application waits for. ``ahead``: bytes of those that it does not wait for yet.
    ``used`` counts messages. ``running`` counts the metadata of the calls that run: new calls are refused for it, and
    messages do not wait for it, because a call may wait for its message.
    """

    __slots__ = ("ahead", "reclaim", "reservations", "reserved", "share", "waits")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.share = limit // SHARES
        self.used = 0
        self.running = 0
        self.reserved = 0
        self.ahead = 0
        self.reservations: deque[tuple[Reserver, int]] = deque()
        self.reclaim: Callable[[], object] = _nothing
        """Set by a server's runtime: ends calls of connections that hold more than their share."""
        self.waits: Callable[[], object] = _nothing
        """Set by a server's runtime: a reservation begins to wait."""

    @property
    def exhausted(self) -> bool:
        """Whether new calls must be refused. Announced messages that wait do not matter: they take no memory yet."""
        return self.taken > self.limit

    @property
    def taken(self) -> int:
        """Bytes of messages, and of the metadata of running calls."""
        return self.used + self.running

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
            self._give(*self.reservations.popleft())

    def reserve(self, reserver: Reserver, size: int) -> None:
        """Call ``reserver.reserved()`` when ``size`` bytes are free; at once, if they are."""
        if not self.reservations and self._fits(size):
            self._give(reserver, size)
        else:
            self.reservations.append((reserver, size))
            self.waits()

    def reserve_ahead(self, size: int) -> bool:
        """Reserve ``size`` bytes for a message that no task waits for, if memory is plentiful."""
        if self.reservations or self.in_the_way + self.ahead + size > self.share // 2:
            return False
        self.used += size
        self.ahead += size
        return True

    def move_ahead(self, size: int) -> None:
        """No task waits any more for a message of ``size`` bytes; or one begins to, if ``size`` is negative."""
        self.reserved -= size
        self.ahead += size
        self.release(0)

    def settle(self, size: int, ahead: bool) -> None:
        """An announced message of ``size`` bytes is not here any more; `release` follows."""
        if ahead:
            self.ahead -= size
        else:
            self.reserved -= size

    def forget(self, reserver: Reserver) -> bool:
        """Remove a waiting reservation; whether there was one."""
        for entry in self.reservations:
            if entry[0] is reserver:
                self.reservations.remove(entry)
                self.release(0)  # those behind it may fit now
                return True
        return False

    @property
    def in_the_way(self) -> int:
        """Bytes that count against a reservation."""
        return self.used - self.ahead

    def _fits(self, size: int) -> bool:
        in_the_way = self.in_the_way
        return in_the_way + size <= self.limit or not in_the_way  # one message alone may exceed the limit

    def _give(self, reserver: Reserver, size: int) -> None:
        self.used += size
        self.reserved += size
        reserver.reserved()


class ClientBudget(Budget):
    """Bytes of the announced messages that all calls of a client may hold together.

    What the program has queued is its own memory. If that delayed the answers, a client and a server could wait for
    each other: the server takes no more requests until its answers have left.
    """

    __slots__ = ()

    @property
    def in_the_way(self) -> int:
        return self.reserved


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
