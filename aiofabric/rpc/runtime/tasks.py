"""Tasks: a server's own set of tasks, without a cancel scope and a task group for each call.

On asyncio, a task of anyio's task group costs 15 us, and a bare task less than 2. So handlers run in bare tasks that
this set holds, and their exceptions are reported. trio has system tasks for that.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from ..._core import TaskSet

if TYPE_CHECKING:
    from ...cq.loops.drivers import Driver

__all__ = ["TaskHandle", "Tasks", "tasks_of"]

OnEnd = Callable[[], object]


class TaskHandle(Protocol):
    """A running task."""

    def cancel(self) -> object: ...


class Tasks(ABC):
    """Starts tasks, and knows those that run. ``running`` has the function of each that is called at its end."""

    def __init__(self, driver: Driver) -> None:
        self.running: dict[Any, OnEnd | None] = {}
        self._driver = driver
        self._idle: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self.running)

    @abstractmethod
    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: Context | None = None,
        on_end: OnEnd | None = None,
        name: str | None = None,
    ) -> TaskHandle:
        """Run ``coroutine`` in a task of its own; by default in a copy of the current context.

        ``on_end`` is called at the end of the task, also if it was cancelled before its first step.
        """

    async def wait(self) -> None:
        """Wait until no task runs."""
        while self.running:
            event = anyio.Event()
            self._idle.append(event.set)
            await event.wait()

    def cancel_all(self) -> None:
        """Cancel every task."""
        for task in list(self.running):
            task.cancel()

    def _ended(self, task: Any, error: BaseException | None) -> None:
        on_end = self.running.pop(task, None)
        if on_end is not None:
            on_end()
        if error is not None:
            self._driver.report("aiofabric.rpc: a task failed", error)
        if not self.running and self._idle:
            idle = [*self._idle]
            self._idle.clear()
            for callback in idle:
                callback()


def _makes_plain_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``create_task`` is asyncio's or uvloop's own. If so, a task can be made without calling it."""
    create = type(loop).create_task
    uvloop = sys.modules.get("uvloop")
    own = create is asyncio.BaseEventLoop.create_task or (uvloop is not None and create is uvloop.Loop.create_task)
    return own and not hasattr(create, "__wrapped__") and "create_task" not in getattr(loop, "__dict__", ())


class AsyncioTasks(TaskSet, Tasks):
    """Bare tasks of asyncio. `TaskSet` starts them, and handles their usual end."""

    def __init__(self, driver: Driver) -> None:
        Tasks.__init__(self, driver)
        loop = asyncio.get_running_loop()
        waker = driver.waker if _makes_plain_tasks(loop) else None
        super().__init__(loop, loop.create_task, waker, self.running, self._idle)


class TrioTask:
    """A system task of trio with its scope."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        self._coroutine = coroutine
        self._ended = ended
        self._scope = anyio.CancelScope()

    def cancel(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        failure: Exception | None = None
        try:
            with self._scope:
                await self._coroutine
        except Exception as error:
            failure = error
        finally:
            self._ended(self, failure)


class TrioTasks(Tasks):
    """System tasks of trio."""

    def __init__(self, driver: Driver) -> None:
        import trio

        super().__init__(driver)
        self._spawn = trio.lowlevel.spawn_system_task

    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        context: Context | None = None,
        on_end: OnEnd | None = None,
        name: str | None = None,
    ) -> TrioTask:
        task = TrioTask(coroutine, self._ended)
        self.running[task] = on_end
        try:
            self._spawn(task.run, context=context or copy_context(), name=name)
        except BaseException:  # the run has ended, or Ctrl-C
            self.running.pop(task, None)
            raise
        return task


def tasks_of(driver: Driver) -> Tasks:
    """A new set of tasks for the running loop."""
    return AsyncioTasks(driver) if driver.name == "asyncio" else TrioTasks(driver)
