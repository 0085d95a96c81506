"""SourceProgress: a completion queue, its attached event queues, and the progress passes that drive them.

One pass:

    drain the completion queue until it is empty or a budget is spent; finish the operations, failed ones included
    drain the attached event queues if they may have events
    post queued operations, oldest first
    on asyncio, run the tasks that were woken; they arm the queue themselves when they wait again
    then: poll again in the next iteration, or arm and sleep, or come back after a delay

Before the loop sleeps, the last libfabric call must be an fi_trywait that returned 0, made after the last post.
The reasons: tcp of libfabric 1.17 matches a receive with an earlier message only inside a queue read (tcpx_msg.c
queues, tcpx_cq.c matches), and only fi_trywait arms a verbs queue. So each post makes the source dirty, and a dirty
source has a scheduled pass (`touch`). There is no watchdog timer.

A pass must not rely on fi_trywait either. While a message waits for a receive that is not posted, tcp of 1.17 returns
-FI_EAGAIN for ever, or 0 although the descriptor stays readable. After two passes without a completion, further passes
follow with a growing delay, until an operation is posted or completes. The descriptor still wakes the source meanwhile.
If its wake-ups stay empty, it is not watched any more.
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

_FRUITLESS = 2  # passes without a completion although fi_trywait announced one
_DELAYS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)  # seconds
_POLL_DELAYS = _DELAYS[:4]
_DROWSY = 16  # empty passes, 70 ms, after which a queue without a descriptor may be left alone


class SourceProgress(SourceCompletions):
    """The part of a source that the event loop calls. Of endpoints it uses only `retry`."""

    def __init__(
        self,
        driver: Driver,
        queue: Queue | None,
        *,
        waiting: Waiting = Waiting.ADAPTIVE,
        busy_poll: float = 200.0,
        on_close: Callable[[Any], None] | None = None,
    ) -> None:
        self._deaf = (
            queue is not None and queue.fileno() is None
        )  # no descriptor: the queue is polled until it is closed
        if self._deaf:
            waiting = Waiting.POLL
        self.waiting = waiting
        polls, busy_polls = waiting is Waiting.POLL, waiting is not Waiting.FD
        polling = Polling(
            int(busy_poll * 1000), never=queue is None or not busy_polls, polls=queue is not None and polls
        )
        super().__init__(driver, queue, polling, polls=polls, busy_polls=busy_polls)
        self.starved: Callable[[], bool] | None = None  # whether the descriptor may stay readable for long; None: never
        self.doze: Callable[[], bool] | None = None  # whether a queue without a descriptor may be left alone
        self._cancel_delay: Callable[[], None] | None = None
        self._on_close = on_close
        if queue is not None:
            self.readers.add(queue.fileno(), self._readable, on_demand=True)
        if polls:
            self.touch()

    # -- descriptors

    def attach_queue(self, attached: AttachedQueue) -> None:
        """Drain an event queue in the passes of this source, and wake up for its descriptor."""
        self.attached_queues.append(attached)
        self._recheck = True
        self.readers.add(attached.fileno(), self._events_readable)

    def detach_queue(self, attached: AttachedQueue) -> None:
        """Stop draining an event queue; call this before it is closed."""
        self.attached_queues.remove(attached)
        self.readers.remove(attached.fileno())

    def close(self) -> None:
        """Leave the loop. The owner of the queue closes it afterwards."""
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
        self._empty_streak += (
            1  # fi_trywait of 1.17 does not reset this descriptor while it refuses for the other queue
        )
        self._hurried = True
        self._events_due = True
        self.progress()

    # -- passes

    def touch_events(self) -> None:
        """An event may be there already: the caller has started a connect, an accept or a shutdown."""
        self._events_due = True
        self.touch()

    def _delayed_pass(self) -> None:
        self._cancel_delay = None
        self._events_due |= self._deaf and self._paused
        self._empty_streak = min(self._empty_streak, EMPTY_WAKEUPS - 1)  # try a descriptor again that was not watched
        self.progress()

    def _failed(self, error: Exception) -> None:
        """Report a defect of aiofabric or of the provider, and go on: the reactor must not stop."""
        if isinstance(error, FabricError) and error.call == "fi_trywait":
            self._cannot_be_waited_for(error)
            return
        self.driver.report("aiofabric: a progress pass failed", error)
        self.touch()

    def _cannot_be_waited_for(self, error: FabricError) -> None:
        """A descriptor will wake no task: raise the error in the tasks that wait for completions or events.

        No queue of this source is polled from now on. A task that begins to wait calls fi_trywait again.
        """

        def again() -> FabricError:
            return from_errno(error.errno or 0, error.call)

        woken = 0
        inboxes: dict[Any, None] = {}
        for address in list(self.operations):
            operation = self.operations.get(address)
            if isinstance(operation, Transfer) and operation.notify is not None:
                operation.owner.dismiss(operation, again())  # it keeps its pins: the provider has it
                woken += 1
            elif (inbox := getattr(operation, "pool", None)) is not None:
                inboxes[inbox] = None
        for inbox in inboxes:
            while inbox.waiting:
                woken += inbox._wake_first(again())
            if inbox.sink is not None:
                inbox.finish(again())
                woken += 1
        for submission in [*self.queued]:
            woken += len(submission.waiting)
            submission.fail_waiting(again)
        for attached in tuple(self.attached_queues):
            woken += attached.wait_failed(again)
        if not woken:
            self.driver.report("aiofabric: a queue cannot be waited for", error)

    def _poll_others(self) -> int:
        """Do the rest of a pass: event queues, polled objects, queued operations; return how many moved."""
        moved = 0
        if self._events_due:
            self._events_due = False
            self._recheck = True
            for attached in tuple(self.attached_queues):
                if attached in self.attached_queues:  # an event of an earlier queue may have closed it
                    moved += attached.drain()
        for polled in tuple(self.polled):
            moved += polled.poll()
        return moved + self._retry()

    def _rest(self, moved: int) -> None:
        """Arm and sleep, or come back after a delay. C decides this itself if the source has only a queue."""
        if self._polls:
            # The queue is polled even without waiting tasks: it drives a peer's RMA and rendezvous, and resends of rxd.
            self.polling.over()
            if self.doze is not None and self._fruitless >= _DROWSY and not self._blind() and self.doze():
                return
            if self._deaf or self._fruitless < len(_POLL_DELAYS):
                # An event queue's descriptor that stays readable, as with net, is polled, too.
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
        """fi_trywait does not allow sleeping: schedule a pass, at once or with a growing delay."""
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
        """Whether a task waits for something without a descriptor.

        Counters have none with most providers. A new connection of an RDM peer does not wake the queue's descriptor
        either: an operation that was refused for want of it must be posted again.
        """
        if not self.polled and not self.queued:
            return False
        return bool(self.polled) or any(handle.refused for handle in self.queued)

    def _later(self, step: int, delays: tuple[float, ...] = _DELAYS) -> None:
        if self._cancel_delay is None:
            delay = delays[min(step, len(delays) - 1)]
            self._cancel_delay = self.driver.call_later(delay, self._delayed_pass)

    def drain(self) -> int:
        """Read the queue and finish operations outside of a pass; return how many completions were read."""
        found = self._drain()
        if found and not self.driver.closed():
            self.touch()  # credits for queued operations, and a queue that must be armed again
        return found
