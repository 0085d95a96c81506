"""Drivers: what the reactor needs of an event loop, for asyncio (and uvloop) and for trio.

The two drivers have the same methods. asyncio's tasks take a waiter for a future; trio's waiter has the same methods.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import anyio
import sniffio
from anyio.lowlevel import checkpoint_if_cancelled

from ..._core import Waker
from .asyncio_layout import layout_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

__all__ = ["Driver", "Waiter", "current_backend", "current_driver", "task_is_cancelled"]

_log = logging.getLogger(__name__)

LAYOUT_ERROR = layout_error()
"""Why waiters on asyncio are written in Python; None: the native core makes them."""
if LAYOUT_ERROR is not None:
    _log.warning(
        "the native core cannot wake tasks of this version of asyncio (%s). aiofabric works, but waiting "
        "takes some microseconds longer: it uses waiters written in Python",
        LAYOUT_ERROR,
    )


class Waiter(Protocol):
    """A task waits for one result. After the task was cancelled, a result may still be set."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def result(self) -> Any: ...
    def __await__(self) -> Generator[Any, None, Any]: ...


class Driver(Protocol):
    """The methods of an event loop that the reactor uses."""

    name: str
    key: object  # the identity of the running loop

    @property
    def checkpoint_if_cancelled(self) -> Callable[[], Awaitable[None]] | None: ...  # None: asyncio needs none
    @property
    def shielded_checkpoint(self) -> Callable[[], Awaitable[None]] | None: ...

    @property
    def waker(self) -> Waker | None: ...  # makes the waiters; None: `create_waiter` is Python's
    def create_waiter(self) -> Waiter: ...
    def call_soon(self, callback: Callable[[], None], /) -> object: ...
    def call_soon_threadsafe(
        self, callback: Callable[[], None], /
    ) -> object: ...  # raises RuntimeError after the loop has ended
    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]: ...
    def add_reader(self, fd: int, callback: Callable[[], None], *, on_demand: bool = False) -> None: ...
    def remove_reader(self, fd: int) -> None: ...

    @property
    def demand(
        self,
    ) -> Callable[[int], None] | None: ...  # None: watching a descriptor costs nothing, so it never stops

    def closed(self) -> bool: ...
    def running(self) -> bool: ...  # a loop of asyncio may run again later
    def report(self, message: str, error: BaseException) -> None: ...
    async def yield_to_loop(self) -> None: ...
    def checkpoint(self) -> Awaitable[None]: ...  # one loop iteration; raises if the scope is cancelled


class PlainWaiter:
    """A waiter that uses asyncio's public interface only, for an asyncio that the native core does not know."""

    __slots__ = ("_done", "_future", "_loop", "_result")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._done = False
        self._result: Any = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        if self._done:
            raise asyncio.InvalidStateError("the result is set already")
        self._done = True
        self._result = result
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def result(self) -> Any:
        if not self._done:
            raise asyncio.InvalidStateError("the result is not set yet")
        return self._result

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            self._future = self._loop.create_future()
            yield from self._future
        return self._result


class AsyncioDriver:
    """asyncio and uvloop."""

    name = "asyncio"
    checkpoint_if_cancelled = None
    shielded_checkpoint = None
    demand = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.key: object = loop
        self._loop = loop
        # The loop's own methods: a wrapper would add a call to every wait.
        self.waker = Waker(loop) if LAYOUT_ERROR is None else None
        self.create_waiter: Callable[[], Waiter] = (
            partial(PlainWaiter, loop) if self.waker is None else self.waker.create_waiter
        )
        self.call_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self.call_soon_threadsafe: Callable[[Callable[[], None]], object] = loop.call_soon_threadsafe
        self.closed: Callable[[], bool] = loop.is_closed
        self.running: Callable[[], bool] = loop.is_running

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        return self._loop.call_later(delay, callback).cancel

    def add_reader(self, fd: int, callback: Callable[[], None], *, on_demand: bool = False) -> None:
        self._loop.add_reader(fd, callback)

    def remove_reader(self, fd: int) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)

    def report(self, message: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})

    async def yield_to_loop(self) -> None:
        await asyncio.sleep(0)

    async def checkpoint(self) -> None:
        await checkpoint_if_cancelled()  # anyio may deliver the cancellation after the next iteration
        await asyncio.sleep(0)


class _TrioWaiter:
    """The methods of `asyncio.Future` that the reactor uses, with trio's reschedule."""

    __slots__ = ("_done", "_result", "_task")
    lowlevel: ClassVar[Any]  # trio.lowlevel; the first driver imports trio

    def __init__(self) -> None:
        self._done = False
        self._result: Any = None
        self._task: Any = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        self._done = True
        self._result = result
        if self._task is not None:
            task, self._task = self._task, None
            self.lowlevel.reschedule(task)

    def result(self) -> Any:
        return self._result

    def _abort(self, _: Any) -> Any:
        self._task = None
        return self.lowlevel.Abort.SUCCEEDED

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            self._task = self.lowlevel.current_task()
            yield from self.lowlevel.wait_task_rescheduled(self._abort).__await__()
        return self._result


def _waiter_without_waker() -> Waiter:
    raise RuntimeError("this object belongs to a trio.run() that has ended: no task that waits for it would be woken")


class _TrioReader:
    """A task that waits until one descriptor is readable.

    Each wait costs about 15 us on trio. So a descriptor that is watched on demand is watched only while its source
    sleeps. A source that polls its queue needs no wake-up.
    """

    def __init__(self, fd: int, callback: Callable[[], None], on_demand: bool) -> None:
        import trio

        self.scope = trio.CancelScope()
        self.removed = False
        self._trio = trio
        self._fd = fd
        self._callback = callback
        self._on_demand = on_demand
        self._wanted = True
        self._asleep: Any = None

    def demand(self) -> None:
        self._wanted = True
        if self._asleep is not None:
            task, self._asleep = self._asleep, None
            self._trio.lowlevel.reschedule(task)

    async def run(self) -> None:
        lowlevel = self._trio.lowlevel

        def abort(_: Any) -> Any:
            self._asleep = None
            return lowlevel.Abort.SUCCEEDED

        with self.scope:
            # If it was removed meanwhile, the descriptor may be closed: trio must not wait for it.
            while not self.removed:
                if self._on_demand and not self._wanted:
                    self._asleep = lowlevel.current_task()
                    await lowlevel.wait_task_rescheduled(abort)
                    continue
                await lowlevel.wait_readable(self._fd)
                if not self.removed:  # in the same pass, after the descriptor became readable
                    self._wanted = False
                    self._callback()


class TrioDriver:
    """trio. Callbacks run in system tasks; one system task waits for each descriptor."""

    name = "trio"
    waker = None

    def __init__(self) -> None:
        import trio

        self._trio = trio
        _TrioWaiter.lowlevel = trio.lowlevel
        token = trio.lowlevel.current_trio_token()
        self.key: object = token
        self.call_soon_threadsafe: Callable[[Callable[[], None]], object] = token.run_sync_soon
        self.create_waiter: Callable[[], Waiter] = _TrioWaiter
        self.checkpoint_if_cancelled: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint_if_cancelled
        self.shielded_checkpoint: Callable[[], Awaitable[None]] = trio.lowlevel.cancel_shielded_checkpoint
        self.yield_to_loop: Callable[[], Coroutine[Any, Any, None]] = trio.lowlevel.cancel_shielded_checkpoint
        self.checkpoint: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self._soon: list[Callable[[], None]] = []
        self._asleep: Any = None
        self._readers: dict[int, _TrioReader] = {}
        self._closed = False
        trio.lowlevel.spawn_system_task(self._run_soon, name="aiofabric progress")

    def closed(self) -> bool:
        return self._closed

    def running(self) -> bool:
        return not self._closed

    async def _run_soon(self) -> None:
        """Run the callbacks of `call_soon` in the next scheduler pass; sleep while there are none."""
        lowlevel = self._trio.lowlevel

        def abort(_: Any) -> Any:
            self._asleep = None
            return lowlevel.Abort.SUCCEEDED

        try:
            while True:
                batch, self._soon = self._soon, []
                for callback in batch:
                    callback()
                if self._soon:  # a callback added some: run them in the next pass, after other tasks
                    await lowlevel.cancel_shielded_checkpoint()
                else:
                    self._asleep = lowlevel.current_task()
                    await lowlevel.wait_task_rescheduled(abort)
        finally:
            self._closed = True
            self.create_waiter = _waiter_without_waker

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)
        if self._asleep is not None:
            task, self._asleep = self._asleep, None
            self._trio.lowlevel.reschedule(task)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        scope = self._trio.CancelScope()

        async def later() -> None:
            with scope:
                await self._trio.sleep(delay)
                callback()

        self._trio.lowlevel.spawn_system_task(later, name="aiofabric delay")
        cancel: Callable[[], None] = scope.cancel
        return cancel

    def add_reader(self, fd: int, callback: Callable[[], None], *, on_demand: bool = False) -> None:
        reader = self._readers[fd] = _TrioReader(fd, callback, on_demand)
        self._trio.lowlevel.spawn_system_task(reader.run, name=f"aiofabric fd {fd}")

    def remove_reader(self, fd: int) -> None:
        reader = self._readers.pop(fd, None)
        if reader is not None and not self._closed:
            reader.removed = True
            reader.scope.cancel()  # ends the wait at once: afterwards, the descriptor may be closed

    def demand(self, fd: int) -> None:
        """Watch a descriptor that is watched on demand, until it is readable once."""
        reader = self._readers.get(fd)
        if reader is not None:
            reader.demand()

    def report(self, message: str, error: BaseException) -> None:
        import logging

        logging.getLogger("aiofabric.cq").error(message, exc_info=error)


def current_driver() -> Driver:
    """A driver for the loop that runs now."""
    if sniffio.current_async_library() == "trio":
        return TrioDriver()
    return AsyncioDriver(asyncio.get_running_loop())


def current_backend() -> dict[str, Any]:
    """Arguments of ``anyio.run`` for a loop of the kind that runs now."""
    if sniffio.current_async_library() == "trio":
        return {"backend": "trio"}
    of_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    return {"backend": "asyncio", "backend_options": {"use_uvloop": of_uvloop}}


def task_is_cancelled() -> bool:
    """Whether the task that runs now is being cancelled: by a scope around it, or by the end of its event loop."""
    if anyio.current_effective_deadline() == -inf:
        return True
    task = None if sniffio.current_async_library() == "trio" else asyncio.current_task()
    return task is not None and task.cancelling() > 0
