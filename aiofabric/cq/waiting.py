"""How long to look at a queue before going to sleep on its descriptor, and how that is learned.

Looking costs CPU and saves a wake-up: a 64 B round trip over loopback takes some 11 us when both sides look
and some 68 us when both sleep (C, libfabric 1.17 tcp, 2 cores). It pays only while answers come quickly and
while the peer has a core of its own; so a queue has a `Window` that grows while completions land inside it and
shrinks to nothing while they do not, as a hypervisor's halt polling does. The first share of the window is spent
inside the awaiting call (no loop iteration at all when the answer comes in time), the rest in turns, one share in
each, so that other callbacks run in between. Idle costs nothing: after one window in vain the queue is armed.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["LOOK_NS", "PREEMPTED_NS", "Waiting", "Window"]

# One look in a row, inside an awaiting call or a turn; longer would hold up other callbacks. It has to be longer than
# the usual answer takes: what comes 1 us late costs an iteration of the loop on both sides, and those make the next
# one late as well (64 B round trip on uvloop 29.5 us with 15, 22.9 with 20 and with 25, of which 25 had no outliers).
LOOK_NS = 25_000
PREEMPTED_NS = 10_000  # a gap this long between two looks: somebody else had the core
_FLOOR_NS = 4_000  # a shorter look is not worth its call
_NOISE = 2  # misses in a row that a busy machine makes of a quick pattern
_LONGEST_SKIP = 256  # a look in vain costs one window in 256 waits: 0.4 us each


class Waiting(Enum):
    """How a queue is waited for."""

    ADAPTIVE = "adaptive"
    """Look for a learned time, then sleep on the descriptor. The default where the provider has one."""
    FD = "fd"
    """Sleep on the descriptor at once."""
    POLL = "poll"
    """Look, with a growing delay; then sleep on the descriptor where there is one. The providers without have this."""


class Window:
    """A learned time to look for, in nanoseconds.

    After some misses in a row looks are left out, twice as many each time (up to 256), and then a full window is
    tried once: so a pattern that turned quick is found again, and one that stays slow costs next to nothing.
    """

    __slots__ = ("hits", "length", "limit", "misses", "skip", "streak")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.length = limit
        self.skip = 0  # waits still to be passed without a look
        self.streak = 0  # misses in a row
        self.hits = 0
        self.misses = 0

    def open(self) -> int:
        """Nanoseconds to look for in this wait; 0 for none."""
        if self.skip:
            self.skip -= 1
            return 0
        return self.length

    def hit(self) -> None:
        """A completion landed inside the window."""
        self.hits += 1
        self.streak = 0
        self.length = min(self.limit, self.length * 2)

    def miss(self) -> None:
        """The window passed in vain, or the core was not ours while it was open."""
        self.misses += 1
        self.streak += 1
        self.length //= 2
        if self.length < _FLOOR_NS:
            self.length = self.limit
        if self.streak > _NOISE:
            self.skip = min(1 << (self.streak - _NOISE), _LONGEST_SKIP)
