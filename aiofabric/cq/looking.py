"""Looking: the window of one wait, shared by the awaiting call that begins it and the turns that go on with it."""

from __future__ import annotations

from .waiting import LOOK_NS, PREEMPTED_NS, Waiting, Window

__all__ = ["Looking"]

_POLL_WINDOW_NS = 1_000_000  # how long to look, in turns, at a queue that has no descriptor


class Looking:
    """How long a source may still look in this wait, and what its learned `Window` makes of the outcome."""

    __slots__ = ("_asked", "_awake_until", "_never", "_polls", "deadline", "window")

    def __init__(self, waiting: Waiting, busy_poll: float) -> None:
        self.window = Window(int(busy_poll * 1000))
        self.deadline = 0  # of the window that is open; 0: none is
        self._never = waiting is Waiting.FD
        self._polls = waiting is Waiting.POLL
        self._asked = False  # whether this wait was given its window already
        self._awake_until = 0

    def ask(self, now: int) -> None:
        """Open a window, once for each wait."""
        if not self._asked and not self._never:
            self._asked = True
            # Without a descriptor there is nothing better to do than to look; the next best is a delay of 1 ms.
            length = _POLL_WINDOW_NS if self._polls else self.window.open()
            self.deadline = now + length if length else 0

    def share(self, now: int) -> int:
        """Nanoseconds of this wait's window for one look, opened if it was not yet; 0 for a glance."""
        if not self._asked:
            self.ask(now)
        left = self.deadline - now
        if left > LOOK_NS:
            return LOOK_NS
        return left if left > 0 else 0

    def judge(self, now: int, share: int, found: int, gap: int) -> None:
        """A look of ``share`` is over; ``gap`` is the longest time between two reads of it, 0 if one was enough."""
        if gap > PREEMPTED_NS and not self._polls:
            # The core was somebody else's meanwhile, so that sleeping would have been as quick.
            self.window.miss()
            self.deadline = 0
        elif found:
            if gap:  # what was there at once would have been found without looking
                self.window.hit()
                # The task that it was for runs now and will wait for the next one: not worth arming in between.
                self._awake_until = now + self.window.limit // 2
            self.deadline = 0
        elif share < LOOK_NS:
            self.window.miss()
            self.deadline = 0
        if found:
            self._asked = False

    def goes_on(self, now: int, moved: int) -> bool:
        """Whether the next iteration should look again."""
        if moved:
            self._asked = False
            self.ask(now)
        return self.deadline != 0 or now < self._awake_until

    def over(self) -> None:
        """The wait ended, by sleep or by a wake-up: the next one asks anew."""
        self._asked = False
        self.deadline = 0
