"""Source: a completion queue under a reactor, as those see it who wait for an operation on it.

An awaiting call first looks at the queue, for a bounded time and while that pays (see polling.py); what comes meanwhile
costs no iteration of the loop. When it suspends, `prepare` sees to it that somebody drains the queue: the descriptor,
or a turn (progress.py). So that neither other callbacks nor a cancellation wait for ever, an await takes a breath or a
checkpoint after so many that were answered at once.
"""

from __future__ import annotations

from time import monotonic_ns

from .interfaces import SourceStatistics
from .progress import SourceProgress

__all__ = ["Source"]


class Source(SourceProgress):
    """A queue under a reactor: what is waited for, looked for and counted."""

    async def checkpoint(self) -> None:
        """Let the loop go round, and any cancellation come in; a turn on the way does not linger meanwhile."""
        self._breathing += 1
        try:
            await self.driver.checkpoint()
        finally:
            self._breathing -= 1

    def wake(self) -> None:
        """Somebody says that there is something to look for, though no descriptor does."""
        self._begin_anew()
        self.polling.over()
        self.polling.ask(monotonic_ns())
        self.touch()

    def _begin_anew(self) -> None:
        """The delays of polling are short again."""
        self._fruitless = 0
        if self._cancel_delay is not None:
            self._cancel_delay()
            self._cancel_delay = None

    async def breathe(self) -> None:
        """Let the loop go round once; a turn on the way does not linger meanwhile."""
        # What a look has found leaves the descriptor readable: reset here for 1.5 us, it does not wake us for nothing,
        # which takes 20, and makes the peer's look end too early.
        if not self.armed and self._at_rest_when_quiet and self._quiet():
            self.armed = True
        self._breathing += 1
        try:
            await self.driver.breathe()
        finally:
            self._breathing -= 1
        self.breathed()

    def statistics(self) -> SourceStatistics:
        """Counters; see `SourceStatistics`."""
        return SourceStatistics(
            waiting=self.waiting,
            **self._counted(),
            in_flight=len(self.operations),
            abandoned=self.abandoned,
            queued=sum(len(handle.waiting) for handle in self.queued),
            lent=self.slots.lent,
            quarantined=self.slots.quarantined,
            window_hits=self.polling.window.hits,
            window_misses=self.polling.window.misses,
            window_ns=0 if self.polling.window.skip else self.polling.window.length,
        )
