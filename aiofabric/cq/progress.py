"""SourceProgress: a completion queue, its companions (event queues), and the turns that move them.

One turn:

    drain the queue until it is empty or a budget is spent -> settle; failed ones are read and settled too
    drain the companions when they may have something
    retry what was queued, oldest first
    on asyncio, let the tasks go on that were answered; they arm the queue themselves when they wait again
    then: look again next iteration, arm and sleep, or come back later

What must hold before the loop sleeps: the last libfabric call was an fi_trywait that answered 0, made after the
last post. libfabric 1.17's tcp matches a receive with a message that came before it only inside a queue read
(tcpx_msg.c queues, tcpx_cq.c matches), and a verbs queue is armed by fi_trywait and by nothing else. So every
post makes the source dirty, and a dirty source has a turn on its way (`touch`). There is no watchdog timer.

A turn may not trust fi_trywait either: while a message waits for a receive that nobody posts, 1.17's tcp
answers -FI_EAGAIN for ever, or 0 although its descriptor stays readable. After two fruitless turns the others come
with a growing delay until something is posted or arrives; other connections still wake the source meanwhile, unless
the descriptor wakes it again and again for nothing: then it is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import EMPTY_WAKEUPS, Polling, Transfer
from ..errors import FabricError, from_errno
from ..observe import ended
from .completions import SourceCompletions
from .polling import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from .drivers import Driver
    from .interfaces import AttachedQueue, Queue

__all__ = ["SourceProgress"]

_FRUITLESS = 2  # turns with nothing to read though fi_trywait promised something
_DELAYS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)  # seconds
_POLL_DELAYS = _DELAYS[:4]
_DROWSY = 16  # turns without anything, 70 ms, after which a queue without a descriptor may be left alone


class SourceProgress(SourceCompletions):
    """The part of a source that the event loop calls. Knows nothing of endpoints but `retry`."""

    def __init__(
        self,
        driver: Driver,
        queue: Queue | None,
        *,
        waiting: Waiting = Waiting.ADAPTIVE,
        busy_poll: float = 200.0,
        on_close: Callable[[Any], None] | None = None,
    ) -> None:
        self._deaf = queue is not None and queue.fileno() is None  # nothing wakes us: polled to the end
        if self._deaf:
            waiting = Waiting.POLL
        self.waiting = waiting
        polls, busy_polls = waiting is Waiting.POLL, waiting is not Waiting.FD
        polling = Polling(
            int(busy_poll * 1000), never=queue is None or not busy_polls, polls=queue is not None and polls
        )
        super().__init__(driver, queue, polling, polls=polls, busy_polls=busy_polls)
        self.starved: Callable[[], bool] | None = None  # whether what wakes us may be there to stay; None: never
        self.doze: Callable[[], bool] | None = None  # whether a queue without a descriptor may be left alone
        self._cancel_delay: Callable[[], None] | None = None
        self._on_close = on_close
        if queue is not None:
            self.readers.add(queue.fileno(), self._readable, on_demand=True)
        if polls:
            self.touch()

    # -- descriptors

    def attach_queue(self, attached: AttachedQueue) -> None:
        """Drain ``companion`` in this source's turns, and wake up for it."""
        self.attached_queues.append(attached)
        self._recheck = True
        self.readers.add(attached.fileno(), self._events_readable)

    def part(self, attached: AttachedQueue) -> None:
        """Stop draining ``companion``; call before it is closed."""
        self.attached_queues.remove(attached)
        self.readers.remove(attached.fileno())

    def close(self) -> None:
        """Leave the loop. The queue itself is closed by whoever opened it, afterwards."""
        if not self.closed:
            self.readers.pause()
            self.closed = True
            ended.add(self.waiting.value, **self._counted())
            if self._cancel_delay is not None and not self.driver.closed():
                self._cancel_delay()
            if self._on_close is not None:
                self._on_close(self)

    def _counted(self) -> dict[str, int]:
        return {
            "passes": self._passes,
            "completions": self._completions,
            "errors": self._errors,
            "stale": self._stale,
            "wakeups": self._wakeups,
            "empty_wakeups": self._empty,
        }

    def _events_readable(self) -> None:
        self.armed = False
        self._empty_streak += 1  # 1.17's fi_trywait resets nothing here while it refuses because of the other queue
        self._hurried = True
        self._events_due = True
        self.progress()

    # -- turns

    def touch_events(self) -> None:
        """Something was asked of a companion (connect, accept, shutdown): its answer may be there already."""
        self._events_due = True
        self.touch()

    def _delayed_pass(self) -> None:
        self._cancel_delay = None
        self._events_due |= self._deaf and self._paused
        self._empty_streak = min(
            self._empty_streak, EMPTY_WAKEUPS - 1
        )  # one more chance for a descriptor that was left alone
        self.progress()

    def _failed(self, error: Exception) -> None:
        """A defect, or a provider that broke its contract: never a dead reactor."""
        if isinstance(error, FabricError) and error.call == "fi_trywait":
            self._cannot_be_waited_for(error)
            return
        self.driver.report("aiofabric: a turn failed", error)
        self.touch()

    def _cannot_be_waited_for(self, error: FabricError) -> None:
        """The descriptor will not wake anybody: whoever waits gets the error.

        Nothing polls the queue from here on. A task that begins to wait asks again, and gets the error itself.
        """

        def again() -> FabricError:
            return from_errno(error.errno or 0, error.call)

        woken = 0
        inboxes: dict[Any, None] = {}
        for address in list(self.operations):
            operation = self.operations.get(address)
            if isinstance(operation, Transfer) and operation.notify is not None:
                operation.owner.dismiss(operation, again())  # it stays pinned: the provider has it
                woken += 1
            elif (inbox := getattr(operation, "pool", None)) is not None:
                inboxes[inbox] = None
        for inbox in inboxes:
            while inbox.waiting:
                woken += inbox._answer_first(again())
            if inbox.sink is not None:
                inbox.finish(again())
                woken += 1
        for submission in [*self.queued]:
            woken += len(submission.waiting)
            submission.fail_waiting(again)
        if not woken:
            self.driver.report("aiofabric: a completion queue cannot be waited for", error)

    def _poll_others(self) -> int:
        """What a turn does besides reading the queue; how much of it moved."""
        moved = 0
        if self._events_due:
            self._events_due = False
            self._recheck = True
            for attached in tuple(self.attached_queues):
                if attached in self.attached_queues:  # not closed by what the one before had to say
                    moved += attached.drain()
        for polled in tuple(self.polled):
            moved += polled.poll()
        return moved + self._retry()

    def _rest(self, moved: int) -> None:
        """Arm and sleep, or come back later, where a turn that has only a queue to think of does not know which."""
        if self._polls:
            # Never quite left alone: a peer's RMA and rendezvous move in our looks only, and rxd sends anew in them.
            self.polling.over()
            if self.doze is not None and self._fruitless >= _DROWSY and not self._blind() and self.doze():
                return
            if self._deaf or self._fruitless < len(_POLL_DELAYS):
                # A companion's descriptor that never goes quiet, as net's, is polled as well.
                if self._empty_streak >= EMPTY_WAKEUPS:
                    self._pause()
                waited_for = self.interest or self._blind()
                self._later(0 if moved else self._fruitless if waited_for else len(_POLL_DELAYS), _POLL_DELAYS)
                self._fruitless += 1
                return
        if self._blind():
            self._later(self._fruitless)
            self._fruitless += 1
        if not self._quiet():
            self._disquiet()
        elif self._empty_streak >= EMPTY_WAKEUPS and self.starved is not None and self.starved():
            self._pause()
            self._later(1)
        else:
            self._fruitless = self._fruitless if self._blind() else 0
            self._sleep()

    def _disquiet(self) -> None:
        """The queue may not be slept on: a turn at once, and after some of them later and later."""
        self._events_due = True
        self._fruitless += 1
        if self._fruitless <= _FRUITLESS:
            self.touch()
            return
        if self._empty_streak >= EMPTY_WAKEUPS:
            self._pause()
        else:
            self.readers.sleep()
        self._later(self._fruitless - _FRUITLESS)

    def _pause(self) -> None:
        self.readers.pause()
        self._paused = True

    def _blind(self) -> bool:
        """Whether something is waited for that no descriptor tells.

        Counters have none with most providers. And the connection of an RDM peer does not wake the queue's: what
        was refused because of it must be posted again.
        """
        if not self.polled and not self.queued:
            return False
        return bool(self.polled) or any(handle.refused for handle in self.queued)

    def _later(self, step: int, delays: tuple[float, ...] = _DELAYS) -> None:
        if self._cancel_delay is None:
            delay = delays[min(step, len(delays) - 1)]
            self._cancel_delay = self.driver.call_later(delay, self._delayed_pass)

    def drain(self) -> int:
        """Settle what has finished, outside a turn; return how many completions were read."""
        found = self._drain()
        if found and not self.driver.closed():
            self.touch()  # room for what is queued, and a queue that must be armed again
        return found
