"""Test whether the running asyncio has the layout that the native core relies on.

`Waker` (_core/queue/wakeups.c) wakes a task through the callback that the task left with a future, and leaves the
future pending. It reads that callback from the references that the future reports to the garbage collector, and sets
``_asyncio_future_blocking``. `TaskSet` (_core/rpc/task_set.c) makes a task with an object in place of the loop. That
object gets the first step, and ``Future.__init__`` then gives the task to its loop. CPython documents none of this.
So tasks are run through both once, on a small loop of this module, when the drivers are imported. If anything is
different, waiters are written in Python (`aiofabric.cq.loops.drivers.PlainWaiter`), and the loop takes all steps.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from ..._core import TaskSet, Waker

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

__all__ = ["layout_error"]


class _Loop:
    """The part of an event loop that tasks and futures use; `run` runs the callbacks."""

    def __init__(self) -> None:
        self.ready: list[tuple[Callable[..., object], tuple[Any, ...], Context | None]] = []
        self.errors: list[dict[str, Any]] = []

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> None:
        self.ready.append((callback, args, context))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def run(self) -> None:
        while self.ready:
            callback, args, context = self.ready.pop(0)
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)


class LayoutError(Exception):
    """A step of the trial had another result than expected."""


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise LayoutError(what)


def _try_out(loop: Any) -> None:
    waker = Waker(loop)
    waiters: list[Any] = []

    async def wait() -> object:
        waiters.append(waker.create_waiter())
        return await waiters[-1]

    answered = [asyncio.Task(wait(), loop=loop) for _ in range(2)]
    loop.run()
    _expect(not any(task.done() for task in answered), "a task did not wait")
    for number, waiter in enumerate(waiters):
        waiter.set_result(number)
    loop.run()
    _expect([task.done() and task.result() for task in answered] == [0, 1], "a task did not get its result")

    cancelled = asyncio.Task(wait(), loop=loop)
    loop.run()
    cancelled.cancel()
    loop.run()
    _expect(cancelled.cancelled(), "a task that waits was not cancelled")

    both = asyncio.Task(wait(), loop=loop)
    loop.run()
    waiters[-1].set_result(None)
    both.cancel()
    loop.run()
    _expect(both.done(), "a task that got its result and was then cancelled did not end")
    _try_first_steps(loop, waker)
    _expect(not loop.errors, f"the loop's exception handler was called with {loop.errors}")


def _try_first_steps(loop: Any, waker: Waker) -> None:
    running: dict[Any, Any] = {}
    tasks = TaskSet(loop, None, waker, running, [])
    seen: list[Any] = []

    async def run(future: asyncio.Future[None] | None) -> None:
        seen.append(asyncio.current_task())
        if future is not None:
            await future

    short = tasks.start(run(None), None, None, "its name")
    _expect(not short.done() and short in running, "a task did not wait for its first step")
    _expect(short.get_loop() is loop and short in asyncio.all_tasks(), "a task did not belong to its loop")
    future = loop.create_future()
    long, cancelled = tasks.start(run(future)), tasks.start(run(None))
    cancelled.cancel()
    loop.run()
    _expect(seen == [short, long], "the first steps of tasks were not taken in order")
    _expect(short.done() and short.get_name() == "its name" and not short.exception(), "a task did not end")
    _expect(cancelled.cancelled(), "a task that was cancelled before its first step did not end")
    _expect(list(running) == [long] and not long.done(), "a task did not wait in its first step")
    future.set_result(None)
    loop.run()
    _expect(long.done() and not running, "a task did not resume after its first step")


def layout_error() -> str | None:
    """Return the first difference from the expected layout in words; None if there is none."""
    found: list[str | None] = []

    def examine() -> None:
        loop: Any = _Loop()
        asyncio._set_running_loop(loop)
        try:
            _try_out(loop)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append(None)

    # The calling thread may have a running loop and a current task; a new thread has none. It ends before the return.
    thread = threading.Thread(target=examine, name="aiofabric asyncio trial")
    thread.start()
    thread.join()
    return found[0] if found else "the trial ended without a result"
