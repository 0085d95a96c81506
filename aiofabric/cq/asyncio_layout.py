"""Whether asyncio is built as the native core takes it to be: asked of the interpreter that runs, not of its version.

`Waker` (_core/wakeups.c) wakes a task by the callback that the task left with a future, and leaves the future
pending. It reads that callback from what the future shows to the garbage collector, and sets
``_asyncio_future_blocking``. CPython promises none of this. So a task goes through it once, on a loop of its own,
when the drivers are imported; where anything is different, waiters are Python's (`aiofabric.cq.drivers.PlainWaiter`).
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from .._core import Waker

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

__all__ = ["misfit"]


class _Loop:
    """The part of an event loop that tasks and futures use; run by hand."""

    def __init__(self) -> None:
        self.ready: list[tuple[Callable[..., object], tuple[Any, ...], Context | None]] = []
        self.errors: list[dict[str, Any]] = []

    def get_debug(self) -> bool:
        return False

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


class Misfit(Exception):
    """A step of the trial went otherwise."""


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Misfit(what)


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
    _expect([task.done() and task.result() for task in answered] == [0, 1], "a task did not get its answer")

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
    _expect(both.done(), "a task that was answered and cancelled did not end")
    _expect(not loop.errors, f"the loop was told of {loop.errors}")


def misfit() -> str | None:
    """What is different from what the native core expects; None if nothing is."""
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

    # A thread has no running loop and no current task, which this one may have. It has ended when this returns.
    thread = threading.Thread(target=examine, name="aiofabric asyncio trial")
    thread.start()
    thread.join()
    return found[0] if found else "the trial ended without a result"
