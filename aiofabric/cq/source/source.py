"""Source: a completion queue under a reactor, its attached event queues, and the passes that drive them.

A source is made of parts:

=================  ==============================================================================
part               task
=================  ==============================================================================
`SourceCore`, C    reads the queue, finishes operations, polls, arms, and runs the passes
``operations``     what is posted, by the address that a completion names
``slots``          those addresses
``unmatched``      completions that finish no operation, and errors
``readers``        the descriptors that wake the loop
``polling``        how long an awaiting call polls before it suspends
``delays``         when the next pass comes if the loop cannot just sleep
``queued``         submission queues whose operations wait for transmit credits
``wait_owners``    endpoints and counters, whose waits fail if the queue cannot be waited for
=================  ==============================================================================

One pass:

    drain the completion queue until it is empty or a budget is spent; finish the operations, failed ones included
    drain the attached event queues if they may have events
    post queued operations, oldest first
    on asyncio, run the tasks that were woken; they arm the queue themselves when they wait again
    then: poll again in the next iteration, or arm and sleep, or come back after a delay

Before the loop sleeps, the last libfabric call must be an fi_trywait that returned 0, made after the last post. The
reasons: tcp of libfabric 1.17 matches a receive with an earlier message only inside a queue read (tcpx_msg.c queues,
tcpx_cq.c matches), and only fi_trywait arms a verbs queue. So each post schedules a pass (`touch`). There is no
watchdog timer.

An awaiting call first polls the queue, for a limited time, as long as polls find completions. A completion that arrives
meanwhile costs no loop iteration. When the call suspends, `prepare` makes sure that the queue will be drained: the
descriptor is armed, or a pass is scheduled. After a number of awaits that returned at once, one await yields to the
loop, so that other callbacks run and a cancellation is delivered.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from ..._core import Polling, SourceCore
from ...errors import FabricError, check
from ...observe import ended
from ..interfaces import SourceStatistics
from ..loops.readers import Readers
from ..polling import Waiting
from ..slots import Slots
from .delays import Delays
from .failed_waits import fail_waits
from .unmatched import Unmatched

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..interfaces import AttachedQueue, Queue, WaitOwner
    from ..loops.drivers import Driver

__all__ = ["Source"]


class Source(SourceCore):
    """A queue under a reactor. Of endpoints it uses only `retry`."""

    unmatched: Unmatched
    delays: Delays

    def __init__(
        self,
        driver: Driver,
        queue: Queue | None,
        *,
        waiting: Waiting = Waiting.ADAPTIVE,
        busy_poll: float = 200.0,
        on_close: Callable[[Any], None] | None = None,
    ) -> None:
        without_descriptor = queue is not None and queue.fileno() is None
        if without_descriptor:
            waiting = Waiting.POLL
        self.waiting = waiting
        polls, busy_polls = waiting is Waiting.POLL, waiting is not Waiting.FD
        polling = Polling(
            int(busy_poll * 1000), never=queue is None or not busy_polls, polls=queue is not None and polls
        )
        super().__init__(driver, queue, Readers(driver), deque(), polling, Slots(), polls=polls, busy_polls=busy_polls)
        self.unmatched = Unmatched(self.operations, queue, self._callback_failed)
        self.delays = Delays(self, without_descriptor)
        self.wait_owners: dict[WaitOwner, None] = {}
        self._on_close = on_close
        if queue is not None:
            self.readers.add(queue.fileno(), self._readable, on_demand=True)
        if polls:
            self.touch()

    # -- event queues

    def attach_queue(self, attached: AttachedQueue) -> None:
        """Drain an event queue in the passes of this source, and wake up for its descriptor."""
        self.attached_queues.append(attached)
        self.recheck = True
        self.readers.add(attached.fileno(), self._events_readable)

    def _events_readable(self) -> None:
        self.armed = False
        # fi_trywait of 1.17 does not reset this descriptor while it refuses for the other queue.
        self.empty_streak += 1
        self._after_empty_wakeup = True
        self.events_due = True
        self.progress()

    def touch_events(self) -> None:
        """An event may be there already: the caller has started a connect, an accept or a shutdown."""
        self.events_due = True
        self.touch()

    # -- passes

    @property
    def draining(self) -> bool:
        """Whether completions are being dispatched now: the caller is a callback of one of them."""
        return self._draining

    def drain(self) -> int:
        """Read the queue and finish operations outside of a pass; return how many completions were read."""
        found = self._drain()
        if found and not self.driver.closed():
            self.touch()  # the completions may return credits for queued operations, and the queue must be armed again
        return found

    def enqueue(self, handle: Any) -> None:
        """Remember that ``handle`` has operations that wait for transmit credits."""
        if not handle.is_waiting:
            handle.is_waiting = True
            self.queued.append(handle)

    def _poll_others(self) -> int:
        """Do the rest of a pass: event queues, polled objects, queued operations; return how many moved."""
        moved = 0
        if self.events_due:
            self.events_due = False
            self.recheck = True
            for attached in tuple(self.attached_queues):
                moved += attached.drain()
        for polled in tuple(self.polled):
            moved += polled.poll()
        for _ in range(len(self.queued)):
            handle = self.queued.popleft()
            handle.is_waiting = False
            moved += handle.retry()  # queues itself again while operations are left
        return moved

    # -- what fails in a pass

    def _read_failed(self, code: int) -> None:
        check(code, "fi_cq_read")

    def _quiet_failed(self, code: int) -> None:
        check(code, "fi_trywait")

    def _callback_failed(self, error: Exception) -> None:
        self.driver.report("aiofabric: a completion's callback failed", error)

    def _failed(self, error: Exception) -> None:
        """Report a defect of aiofabric or of the provider, and go on: the reactor must not stop."""
        if not isinstance(error, FabricError) or error.call != "fi_trywait":
            self.driver.report("aiofabric: a progress pass failed", error)
            self.touch()
        elif not fail_waits(self, self.wait_owners, error):
            self.driver.report("aiofabric: a queue cannot be waited for", error)

    # -- waiting

    async def checkpoint(self) -> None:
        """Yield to the loop, and deliver a cancellation. A scheduled pass does not poll for long meanwhile."""
        self._yielding += 1
        try:
            await self.driver.checkpoint()
        finally:
            self._yielding -= 1

    async def yield_to_loop(self) -> None:
        """Yield to the loop once. A scheduled pass does not poll for long meanwhile."""
        self._arm_if_quiet()
        self._yielding += 1
        try:
            await self.driver.yield_to_loop()
        finally:
            self._yielding -= 1
        self.loop_iterated()

    def wake(self) -> None:
        """Poll the queue soon, although no descriptor is readable."""
        self.delays.reset()
        self.polling.over()
        self.polling.ask(monotonic_ns())
        self.touch()

    # -- the end

    def close(self) -> None:
        """Leave the loop. The owner of the queue closes it afterwards."""
        if not self.closed:
            self.readers.pause()
            self.closed = True
            ended.add(self.waiting.value, **self._counted())
            self.delays.cancel()
            if self._on_close is not None:
                self._on_close(self)

    def _counted(self) -> dict[str, int]:
        return {
            "passes": self._passes,
            "completions": self.completions,
            "errors": self.unmatched.errors,
            "stale": self.unmatched.stale,
            "wakeups": self._wakeups,
            "empty_wakeups": self._empty,
        }

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
