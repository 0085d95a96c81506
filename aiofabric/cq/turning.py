"""Turning: a completion queue, its companions (event queues), and the turns that move them.

One turn:

    drain the queue until it is empty or a budget is spent -> settle; failed ones are read and settled too
    drain the companions when they may have something
    retry what was parked, oldest first
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

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from ..observe import ended
from .looking import Looking
from .readers import Readers
from .settling import BUDGET, Settling
from .waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from .drivers import Driver
    from .interfaces import Companion, Queue, Watched

__all__ = ["Turning"]

_FRUITLESS = 2  # turns with nothing to read though fi_trywait promised something
_VAIN = 32  # wake-ups in a row that brought nothing
_DELAYS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)  # seconds
_POLL_DELAYS = _DELAYS[:4]
_DROWSY = 16  # turns without anything, 70 ms, after which a queue without a descriptor may be left alone


class Turning(Settling):
    """The part of a source that the event loop calls. Knows nothing of endpoints but `retry`."""

    def __init__(
        self,
        driver: Driver,
        queue: Queue | None,
        *,
        waiting: Waiting = Waiting.ADAPTIVE,
        busy_poll: float = 100.0,
        on_close: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(driver, queue)
        self.companions: list[Companion] = []
        self.watched: dict[Watched, None] = {}
        self._deaf = queue is not None and queue.fileno() is None  # nothing wakes us: polled to the end
        if self._deaf:
            waiting = Waiting.POLL
        self.waiting = waiting
        self._polls = waiting is Waiting.POLL  # asked often: a member of an Enum takes 0.1 us to find
        self._looks = waiting is not Waiting.FD
        self._at_rest_when_quiet = not self._polls and driver.demand is None
        self.looking = Looking(Waiting.FD if queue is None else waiting, busy_poll)
        self.interest = 0  # tasks and operations that need turns although no descriptor can wake us (POLL)
        self.abandoned = 0
        self.armed = False
        self.breath = monotonic_ns()
        self.streak = 0
        self.winded = False  # a look that would pay was refused: the loop has not gone round for too long
        self._paid = False  # whether the last look found something
        self.wakes = 0  # suspended tasks that were woken since the loop last went round
        self._crowd = False
        self._scheduled = False
        self._woken = 0  # awaits that waited, since the last of them looked whether it was cancelled
        self._hurried = False  # a task that could go on waits for the turn to pass
        self._events_due = False
        self._unsettled = True  # whether the companions are to be asked, too, before sleeping
        self._fruitless = 0
        self._vain = 0  # wake-ups in a row without a completion
        self.starved: Callable[[], bool] | None = None  # whether what wakes us may be there to stay; None: never
        self.doze: Callable[[], bool] | None = None  # whether a queue without a descriptor may be left alone
        self._cancel_delay: Callable[[], None] | None = None
        self._on_close = on_close
        self._turns = self._wakeups = self._empty = 0
        self.readers = Readers(driver)
        if queue is not None:
            self.readers.add(queue.fileno(), self._readable, on_demand=True)
        if self._polls:
            self.touch()

    # -- descriptors

    def accompany(self, companion: Companion) -> None:
        """Drain ``companion`` in this source's turns, and wake up for it."""
        self.companions.append(companion)
        self._unsettled = True
        self.readers.add(companion.fileno(), self._events_readable)

    def part(self, companion: Companion) -> None:
        """Stop draining ``companion``; call before it is closed."""
        self.companions.remove(companion)
        self.readers.remove(companion.fileno())

    def close(self) -> None:
        """Leave the loop. The queue itself is closed by whoever opened it, afterwards."""
        if not self.closed:
            self.readers.pause()
            self.closed = True
            ended.add(
                self.waiting.value,
                turns=self._turns,
                completions=self._completions,
                errors=self._errors,
                stale=self._stale,
                wakeups=self._wakeups,
                empty_wakeups=self._empty,
            )
            if self._cancel_delay is not None and not self.driver.closed():
                self._cancel_delay()
            if self._on_close is not None:
                self._on_close(self)

    def _readable(self) -> None:
        """The descriptor woke us: settle, and let the tasks that it was for go on before anything else.

        They arm the queue themselves when they wait again (`prepare`); the turn that is on its way sees to it
        otherwise. Arming here would make every answer 2 us later.
        """
        self._wakeups += 1
        armed, self.armed = self.armed, False  # what was true before we were woken
        if self.closed or self._draining:
            return
        self.breathed()
        try:
            found = self._drain()
        except Exception as error:
            self._failed(error)
            return
        if found:
            if not self._scheduled:
                self.touch()
            self._fruitless = self._vain = 0
            if self._looks:
                self.looking.over()
                self._crowd = self.wakes > 1
                if not self.wakes:  # handed to a sink: nobody asks for a window by waiting
                    self.looking.ask(self.breath)
        else:
            self._empty += 1
            self._vain += 1
            if armed and self._vain < _VAIN and self._quiet():
                self.armed = True  # asyncio asked the kernel before what it ran meanwhile looked, and then armed
                self.readers.sleep()
                return
            self._hurried = True  # uvloop calls readers before the task that the last turn woke
            self.turn()

    def _events_readable(self) -> None:
        self.armed = False
        self._vain += 1  # 1.17's fi_trywait resets nothing here while it refuses because of the other queue
        self._hurried = True
        self._events_due = True
        self.turn()

    # -- turns

    def touch(self) -> None:
        """Something was posted: have a turn on its way, one for all posts of this iteration."""
        self.armed = False
        if not self._scheduled and not self.closed:
            self._scheduled = True
            self.driver.call_soon(self._scheduled_turn)

    def touch_events(self) -> None:
        """Something was asked of a companion (connect, accept, shutdown): its answer may be there already."""
        self._events_due = True
        self.touch()

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        if self.armed and not (self._events_due or self.looking.deadline or self.parked or self.watched):
            self.breathed()  # armed inline since then: nothing to do but to note that the loop went round
            return
        self.turn()

    def _delayed_turn(self) -> None:
        self._cancel_delay = None
        self._events_due |= self._deaf and self.readers.paused
        self._vain = min(self._vain, _VAIN - 1)  # one more chance for a descriptor that was left alone
        self.turn()

    def breathed(self) -> None:
        """The loop went round: awaits may be answered at once again for a while."""
        if self._looks:
            self.breath = monotonic_ns()
        self._crowd = self.winded = False
        self.streak = self.wakes = 0

    def turn(self) -> None:
        """One pass; ends armed, or with another turn on its way."""
        if self.closed or self._draining:
            return
        try:
            self._turn()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A defect, or a provider that broke its contract: never a dead reactor."""
        self.driver.report("aiofabric: a turn failed", error)
        self.touch()

    def _turn(self) -> None:
        self._turns += 1
        self.breathed()
        linger, self._hurried = self.looking.deadline and not self._hurried, False
        moved = self._look_once(self.breath) if linger else self._drain()
        self._crowd = self.wakes > 1
        if self._events_due:
            self._events_due = False
            self._unsettled = True
            for companion in tuple(self.companions):
                if companion in self.companions:  # not closed by what the one before had to say
                    moved += companion.drain()
        if self.watched:
            for watched in tuple(self.watched):
                moved += watched.look()
        if self.parked:
            moved += self._retry()
        if self.closed:  # by a callback
            return
        if moved:
            self._fruitless = self._vain = 0
        if moved >= BUDGET or self.looking.goes_on(self.breath, moved):
            self.touch()
        else:
            self._rest(moved)

    def _look_once(self, now: int) -> int:
        """Drain; look for a share of the open window if there is nothing at once."""
        assert self.queue is not None
        looking = self.looking
        share = looking.share(now)
        found = self._drain(share)
        if looking.deadline:
            looking.judge(now, share, found, self.queue.longest_gap())
        return found

    def _rest(self, moved: int) -> None:
        """Arm and sleep; or, where that is impossible, come back later."""
        if self._scheduled:
            return
        if self._polls:
            # Never quite left alone: a peer's RMA and rendezvous move in our looks only, and rxd sends anew in them.
            self.looking.over()
            if self.doze is not None and self._fruitless >= _DROWSY and not self._blind() and self.doze():
                return
            if self._deaf or self._fruitless < len(_POLL_DELAYS):
                if self._vain >= _VAIN:  # a companion's descriptor that never goes quiet, as net's: polled as well
                    self.readers.pause()
                waited_for = self.interest or self._blind()
                self._later(0 if moved else self._fruitless if waited_for else len(_POLL_DELAYS), _POLL_DELAYS)
                self._fruitless += 1
                return
        if self._blind():
            self._later(self._fruitless)
            self._fruitless += 1
        if self._quiet():
            if self._vain >= _VAIN and self.starved is not None and self.starved():
                self.readers.pause()
                self._later(1)
                return
            self._fruitless = self._fruitless if self._blind() else 0
            self._sleep()
            return
        self._events_due = True
        self._fruitless += 1
        if self._fruitless <= _FRUITLESS:
            self.touch()
            return
        if self._vain >= _VAIN:
            self.readers.pause()
        else:
            self.readers.sleep()
        self._later(self._fruitless - _FRUITLESS)

    def _sleep(self) -> None:
        self.armed = True
        if self._looks:
            self.looking.over()
        self.readers.sleep()

    def _quiet(self) -> bool:
        """Whether it is safe to sleep on the descriptors.

        An event queue's stays readable until it is drained: found quiet once, it need not be asked again before
        that (0.6 us of the kernel's each time).
        """
        if self.queue is not None and not self.queue.quiet():
            return False
        if self._unsettled:
            self._unsettled = not all(companion.quiet() for companion in self.companions)
        return not self._unsettled

    def _blind(self) -> bool:
        """Whether something is waited for that no descriptor tells.

        Counters have none with most providers. And the connection of an RDM peer does not wake the queue's: what
        was refused because of it must be posted again.
        """
        if not self.watched and not self.parked:
            return False
        return bool(self.watched) or any(handle.refused for handle in self.parked)

    def _later(self, step: int, delays: tuple[float, ...] = _DELAYS) -> None:
        if self._cancel_delay is None:
            delay = delays[min(step, len(delays) - 1)]
            self._cancel_delay = self.driver.call_later(delay, self._delayed_turn)

    def drain(self) -> int:
        """Settle what has finished, outside a turn; return how many completions were read."""
        found = self._drain()
        if found and not self.driver.closed():
            self.touch()  # room for what is parked, and a queue that must be armed again
        return found
