"""A loop that the test steps by hand, and an endpoint without libfabric, for tests of order."""

import asyncio
import select
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from aiofabric._ffi import ffi
from aiofabric.cq.polling import Waiting
from aiofabric.cq.queue import ErrorEntry
from aiofabric.cq.source.source import Source
from aiofabric.cq.submission import SubmissionQueue, Transfer
from aiofabric.testing import ScriptedQueue


class ManualWaiter:
    """As `asyncio.Future`, the part that drivers promise."""

    def __init__(self, driver: "ManualDriver") -> None:
        self.caller: Caller | None = None
        self._driver = driver
        self._done = False
        self._result: Any = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        assert not self._done, "answered twice"
        assert not self._driver.is_closed, "a closed loop wakes no task"
        self._done, self._result = True, result
        if self.caller is not None:
            self.caller.wake()

    def result(self) -> Any:
        return self._result

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            yield self
        return self._result


class ManualDriver:
    """The test decides when an iteration happens and when a delay ends."""

    name = "manual"
    checkpoint_if_cancelled: Callable[[], Awaitable[None]] | None = None
    shielded_checkpoint: Callable[[], Awaitable[None]] | None = None
    demand: Callable[[int], None] | None = None
    waker = None

    def __init__(self) -> None:
        self.key: object = self
        self.soon: deque[Callable[[], None]] = deque()
        self.delays: list[tuple[float, Callable[[], None]]] = []
        self.readers: dict[int, Callable[[], None]] = {}
        self.reports: list[BaseException] = []
        self.is_closed = False

    def create_waiter(self) -> ManualWaiter:
        return ManualWaiter(self)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        item = (delay, callback)
        self.delays.append(item)
        return lambda: self.delays.remove(item) if item in self.delays else None

    def add_reader(self, fd: int, callback: Callable[[], None], *, on_demand: bool = False) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def closed(self) -> bool:
        return self.is_closed

    def running(self) -> bool:
        return True

    def report(self, message: str, error: BaseException) -> None:
        self.reports.append(error)

    async def yield_to_loop(self) -> None:
        waiter = self.create_waiter()
        self.call_soon(lambda: waiter.set_result(None))
        await waiter

    checkpoint = yield_to_loop

    # -- for the test

    def iterate(self) -> bool:
        """One iteration: readable descriptors, then callbacks scheduled before it began. False: it would sleep."""
        batch = list(self.soon)
        self.soon.clear()
        readable = select.select(list(self.readers), [], [], 0)[0]
        batch += [self.readers[fd] for fd in readable]
        for callback in batch:
            callback()
        return bool(batch)

    def settle_down(self, most: int = 200) -> int:
        """Iterate until the loop would sleep; return the number of iterations."""
        for count in range(most):
            if not self.iterate():
                return count
        raise AssertionError(f"still not asleep after {most} iterations")

    def pass_time(self) -> float:
        """Let the next delay end; return how long it was."""
        delay, callback = self.delays.pop(0)
        callback()
        return delay


class Caller:
    """A task: a coroutine that resumes when its awaitable has a result, and can be cancelled once."""

    def __init__(self, driver: ManualDriver, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._driver = driver
        self._coroutine = coroutine
        self._cancelled = False
        self._woken = False
        self._waiting_for: ManualWaiter | None = None
        self.done = False
        self.outcome: Any = None
        self._step()

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._driver.call_soon(self._step)

    def cancel(self) -> None:
        """As `asyncio.Task.cancel`: thrown in the next iteration, even if the answer has come meanwhile."""
        self._cancelled = True
        self.wake()

    def collect(self) -> None:
        """The garbage collector's treatment of a coroutine that never ended."""
        self._coroutine.close()

    def _step(self) -> None:
        self._woken = False
        if self._waiting_for is not None:
            self._waiting_for.caller = None
        try:
            if self._cancelled:
                self._cancelled = False
                waiter = self._coroutine.throw(asyncio.CancelledError())
            else:
                waiter = self._coroutine.send(None)
        except StopIteration as stop:
            self.done, self.outcome = True, stop.value
        except BaseException as error:
            self.done, self.outcome = True, error
        else:
            self._waiting_for = waiter
            waiter.caller = self


def done(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The outcome of a call that need not wait; its error is raised."""
    caller = Caller(ManualDriver(), coroutine)
    assert caller.done
    if isinstance(caller.outcome, BaseException):
        raise caller.outcome
    return caller.outcome


class Endpoint:
    """One submission queue of an endpoint whose provider is the test: answers to posts, cancels that may complete."""

    fid = None
    native_open = True

    def __init__(
        self,
        *,
        limit: int = 4,
        receives: bool = True,
        waiting: Waiting = Waiting.FD,
        descriptor: bool = True,
        source: Source | None = None,
    ) -> None:
        if source is None:
            self.driver = ManualDriver()
            self.queue = ScriptedQueue(descriptor=descriptor)
            source = Source(self.driver, self.queue, waiting=waiting)
        else:
            assert isinstance(source.driver, ManualDriver)
            assert isinstance(source.queue, ScriptedQueue)
            self.driver, self.queue = source.driver, source.queue
        self.source = source
        self.submissions = SubmissionQueue(source, self, limit, receives=receives, grace=0.0)
        self.answers: deque[int] = deque()  # of the next posts; afterwards all succeed
        self.posted: list[int] = []  # addresses, in order of posting
        self.labels: list[Any] = []  # first argument of each successful post
        self.asked: list[int] = []  # addresses that fi_cancel was called for
        self.on_cancel: Callable[[int], None] | None = None

    def post(self, label: Any, pointer: Any) -> int:
        address = int(ffi.cast("uintptr_t", pointer))
        assert address in self.source.operations, "posted before it was registered"
        rc = self.answers.popleft() if self.answers else 0
        if rc == 0:
            self.posted.append(address)
            self.labels.append(label)
        return rc

    def cancel(self, pointer: Any) -> None:
        address = int(ffi.cast("uintptr_t", pointer))
        self.asked.append(address)
        if self.on_cancel is not None:
            self.on_cancel(address)

    def explain(self, transfer: Transfer, entry: ErrorEntry) -> BaseException:
        return OSError(entry.errno, "scripted")

    # -- for the test

    def submit(self, label: Any = None, *, pins: Any = None, length: int = 0) -> Transfer:
        return self.submissions.submit("fi_test", self.post, (label,), pins, length)

    def await_(self, transfer: Transfer) -> Caller:
        return Caller(self.driver, self.submissions.outcome(transfer))

    def close(self) -> None:
        self.submissions.end(lambda: ConnectionResetError("ended"))
        self.source.close()
        self.queue.close()


class EndingRoute:
    """A route to a peer that records how it ends."""

    def __init__(self) -> None:
        self.closed_off: Any = None
        self.failed: Any = None

    def close_off(self, error: Any) -> None:
        self.closed_off = error

    def fail_waiting(self, error: Any) -> None:
        self.failed = error


class PolledSource:
    """A source without a queue: counts polls and checkpoints, and gives the test its turn in each poll."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.interest = 1
        self.draining = False
        self.must_yield = False
        self.must_iterate = False
        self.at_polls: deque[Callable[[], object]] = deque()
        self.polls = self.checkpoints = self.yields = self.iterations = self.prepared = self.wakes = 0

    def poll(self) -> None:
        self.polls += 1
        if self.at_polls:
            self.at_polls.popleft()()

    async def checkpoint(self) -> None:
        self.checkpoints += 1
        await self.driver.yield_to_loop()

    def loop_iterated(self) -> None:
        self.iterations += 1

    def prepare(self) -> None:
        self.prepared += 1

    def woke(self) -> None:
        self.wakes += 1

    async def yield_to_loop(self) -> None:
        self.yields += 1
        await self.driver.yield_to_loop()
