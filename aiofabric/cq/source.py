"""Source: a completion queue under a reactor, as the tasks use it that wait for an operation.

An awaiting call first polls the queue, for a bounded time and while that pays (polling.py). A completion that arrives
meanwhile costs no loop iteration. When the call suspends, `prepare` makes sure that the queue will be drained: the
descriptor is armed, or a progress pass is scheduled (progress.py). After a number of awaits that returned at once, one
await yields to the loop, so that other callbacks run and a cancellation is delivered.
"""

from __future__ import annotations

from time import monotonic_ns

from .interfaces import SourceStatistics
from .progress import SourceProgress

__all__ = ["Source"]


class Source(SourceProgress):
    """A queue under a reactor: waiting, polling and counters."""

    async def checkpoint(self) -> None:
        """Yield to the loop, and deliver a cancellation. A scheduled pass does not poll for long meanwhile."""
        self._breathing += 1
        try:
            await self.driver.checkpoint()
        finally:
            self._breathing -= 1

    def wake(self) -> None:
        """Poll the queue soon, although no descriptor is readable."""
        self._begin_anew()
        self.polling.over()
        self.polling.ask(monotonic_ns())
        self.touch()

    def _begin_anew(self) -> None:
        """Start the delays of polling with the shortest again."""
        self._fruitless = 0
        if self._cancel_delay is not None:
            self._cancel_delay()
            self._cancel_delay = None

    async def breathe(self) -> None:
        """Yield to the loop once. A scheduled pass does not poll for long meanwhile."""
        # After a successful poll the descriptor is still readable. Its reset here takes 1.5 us. An empty wake-up would
        # take 20 us, and the peer's polling would end too early.
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
            slots_in_use=self.slots.in_use,
            quarantined=self.slots.quarantined,
            window_hits=self.polling.window.hits,
            window_misses=self.polling.window.misses,
            window_ns=0 if self.polling.window.skip else self.polling.window.length,
        )
