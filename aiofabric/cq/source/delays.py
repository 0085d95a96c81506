"""Delays: the part of a source that decides when the next pass comes if the loop cannot just sleep until a wake-up.

A queue without a descriptor is polled. For a queue with a descriptor, a pass must not rely on fi_trywait alone: while a
message waits for a receive that is not posted, tcp of libfabric 1.17 returns -FI_EAGAIN for ever, or 0 although the
descriptor stays readable. After two passes without a completion, further passes follow with a growing delay, until an
operation is posted or completes. During these delays, the descriptor still wakes the source. If several wake-ups in a
row find no completion, the source stops watching the descriptor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core import EMPTY_WAKEUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._core import SourceCore

__all__ = ["Delays"]

_EMPTY_PASSES = 2  # passes without a completion although fi_trywait announced one
_DELAYS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)  # seconds
_POLL_DELAYS = _DELAYS[:4]
_IDLE_AFTER = 16  # empty passes, 70 ms


class Delays:
    """When the next pass of ``source`` comes.

    ``without_descriptor``: the queue has no descriptor, and is polled until it is closed. ``may_stop_polling`` says
    whether polling of such a queue may stop; then a doorbell wakes the loop. It is asked after the first empty pass:
    the doorbell takes 0.1 ms, and 16 passes with up to 5 ms between them noticed an answer that took 0.5 ms only 2 ms
    later. But a peer whose messages wait for receives rings again and again, and nothing completes. So after such a
    ring, 16 passes are empty before it is asked again. ``may_stay_readable`` says whether a descriptor may stay
    readable for long; None: never.
    """

    def __init__(self, source: SourceCore, without_descriptor: bool) -> None:
        self._source = source
        self._without_descriptor = without_descriptor
        self.may_stay_readable: Callable[[], bool] | None = None
        self.may_stop_polling: Callable[[], bool] | None = None
        self._cancel: Callable[[], None] | None = None
        self._completions = 0  # when it was asked last
        self._asked = False  # and has not agreed yet: a doorbell needs an answer of each peer

    def end_pass(self, moved: int) -> None:
        """Arm the queue and sleep, or schedule a pass after a delay. If the source has only a queue, C decides this."""
        source = self._source
        if source.polls:
            # The queue is polled even without waiting tasks: it drives a peer's RMA and rendezvous, and resends of rxd.
            source.polling.over()
            if (
                self.may_stop_polling is not None
                and not moved
                and (self._asked or source.empty_polls >= _IDLE_AFTER or source.completions > self._completions)
                and not self._blind()
            ):
                self._completions = source.completions
                self._asked = not self.may_stop_polling()
                if not self._asked:
                    self.cancel()
                    return
            if self._without_descriptor or source.empty_polls < len(_POLL_DELAYS):
                # An event queue's descriptor that stays readable, as with net, is polled, too.
                if source.empty_streak >= EMPTY_WAKEUPS:
                    self._pause()
                waited_for = source.interest or self._blind()
                self._later(0 if moved else source.empty_polls if waited_for else len(_POLL_DELAYS), _POLL_DELAYS)
                source.empty_polls += 1
                return
        if self._blind():
            self._later(source.empty_polls)
            source.empty_polls += 1
        if not source.quiet():
            self.not_quiet()
        elif source.empty_streak >= EMPTY_WAKEUPS and self.may_stay_readable is not None and self.may_stay_readable():
            self._pause()
            self._later(1)
        else:
            source.empty_polls = source.empty_polls if self._blind() else 0
            source.sleep()

    def not_quiet(self) -> None:
        """fi_trywait does not allow sleeping: schedule a pass, at once or with a growing delay."""
        source = self._source
        source.empty_polls += 1
        if source.empty_polls <= _EMPTY_PASSES:
            source.events_due |= source.recheck  # an event queue is not quiet, and not only the completion queue
            source.touch()
            return
        source.events_due = True  # its descriptor is not watched during a delay
        if source.empty_streak >= EMPTY_WAKEUPS:
            self._pause()
        else:
            source.readers.sleep()
        self._later(source.empty_polls - _EMPTY_PASSES)

    def reset(self) -> None:
        """Start with the shortest delay again."""
        self._source.empty_polls = 0
        self._asked = False
        self.cancel()

    def cancel(self) -> None:
        """Cancel the pass that would come after a delay."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _pause(self) -> None:
        self._source.readers.pause()
        self._source.paused = True

    def _blind(self) -> bool:
        """Whether a task waits for something without a descriptor.

        Counters have none with most providers. A new connection of an RDM peer does not wake the queue's descriptor
        either: an operation that was refused for want of it must be posted again.
        """
        source = self._source
        if not source.polled and not source.queued:
            return False
        return bool(source.polled) or any(handle.refused for handle in source.queued)

    def _later(self, step: int, delays: tuple[float, ...] = _DELAYS) -> None:
        if self._cancel is None:
            delay = delays[min(step, len(delays) - 1)]
            self._cancel = self._source.driver.call_later(delay, self._delayed_pass)

    def _delayed_pass(self) -> None:
        source = self._source
        self._cancel = None
        source.events_due |= self._without_descriptor and source.paused
        # Try a descriptor again that was not watched.
        source.empty_streak = min(source.empty_streak, EMPTY_WAKEUPS - 1)
        source.progress()
