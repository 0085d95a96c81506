"""Source: a completion queue under a reactor, as those see it who wait for an operation on it.

An awaiting call first looks at the queue, for a bounded time and while that pays (see waiting.py); what comes meanwhile
costs no iteration of the loop. When it suspends, `prepare` sees to it that somebody drains the queue: the descriptor,
or a turn (turning.py). So that neither other callbacks nor a cancellation wait for ever, an await takes a breath or a
checkpoint after so many that were answered at once.
"""

from __future__ import annotations

from time import monotonic_ns

from .interfaces import SourceStatistics
from .turning import Turning

__all__ = ["STREAK", "Source"]

# Longest time without an iteration of the loop after which an awaiting call may still look. An iteration costs a few us
# and others wait for it: beside a busy connection 1 % of them are 0.7 ms late on uvloop (0.9 with 500).
_BREATH_NS = 250_000
STREAK = 64  # most awaits in a row that may be answered so


class Source(Turning):
    """A queue under a reactor: what is waited for, looked for and counted."""

    def woke(self) -> None:
        """A suspended task was woken: nobody may spin while it waits for its turn."""
        self.wakes += 1

    async def checkpoint(self) -> None:
        """Let the loop go round, and any cancellation come in; a turn on the way does not linger meanwhile."""
        self._hurried = True
        await self.driver.checkpoint()

    def look(self) -> None:
        """Inside an awaiting call, before it suspends: a bounded look at the queue."""
        if not self._looks or self._crowd or self.closed:
            return
        now = monotonic_ns()
        if now - self.breath > _BREATH_NS:
            self.winded = self._paid
            return
        self.wakes = 0
        self.armed = False
        self._paid = self._look_once(now) > 0
        if self._paid:
            self._crowd = self.wakes > 0
            if not self._scheduled:
                self.touch()

    def prepare(self) -> None:
        """A task is about to suspend: see to it that its completion wakes us."""
        if self._polls:
            self._begin_anew()
        looking = self.looking
        if self.armed or (self._scheduled and (self._crowd or looking.deadline)):
            return
        if self._looks:
            looking.ask(monotonic_ns())
        if looking.deadline or self._polls or not self._quiet():
            self.touch()
        else:
            self._sleep()

    def wake(self) -> None:
        """Somebody says that there is something to look for, though no descriptor does."""
        self._begin_anew()
        self.looking.over()
        self.looking.ask(monotonic_ns())
        self.touch()

    def _begin_anew(self) -> None:
        """The delays of polling are short again."""
        self._fruitless = 0
        if self._cancel_delay is not None:
            self._cancel_delay()
            self._cancel_delay = None

    @property
    def breathless(self) -> bool:
        """Whether so many awaits were answered at once that the next one should let the loop go round."""
        self.streak += 1
        return self.streak > STREAK

    @property
    def overdue(self) -> bool:
        """Whether so many awaits waited and were woken that this one should take a checkpoint.

        anyio cancels a task of asyncio's only while nothing has woken it, and tries once in each iteration. uvloop
        calls readers before that: a task whose every answer is there by then would never be cancelled.
        """
        self._woken = (self._woken + 1) % STREAK
        return not self._woken

    async def breathe(self) -> None:
        """Let the loop go round once; a turn on the way does not linger meanwhile."""
        self._hurried = True
        # What a look has found leaves the descriptor readable: reset here for 1.5 us, it does not wake us for nothing,
        # which takes 20, and makes the peer's look end too early.
        if not self.armed and self._at_rest_when_quiet and self._quiet():
            self.armed = True
        await self.driver.breathe()
        self.breathed()

    def statistics(self) -> SourceStatistics:
        """Counters; see `SourceStatistics`."""
        return SourceStatistics(
            waiting=self.waiting,
            turns=self._turns,
            completions=self._completions,
            errors=self._errors,
            stale=self._stale,
            wakeups=self._wakeups,
            empty_wakeups=self._empty,
            in_flight=len(self.operations),
            abandoned=self.abandoned,
            parked=sum(len(handle.waiting) for handle in self.parked),
            lent=self.slots.lent,
            quarantined=self.slots.quarantined,
            window_hits=self.looking.window.hits,
            window_misses=self.looking.window.misses,
            window_ns=0 if self.looking.window.skip else self.looking.window.length,
        )
