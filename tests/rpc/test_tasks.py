"""Tasks of a server: `TaskSet` in C on asyncio, system tasks on trio. Their ends are the same."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest

from aiofabric._core import TaskSet
from aiofabric.cq.drivers import current_driver
from aiofabric.rpc.runtime.tasks import AsyncioTasks, Tasks, tasks_of
from tests.rpc.waiting import until

pytestmark = pytest.mark.anyio

NAME: ContextVar[str] = ContextVar("NAME", default="none")


class Reports:
    """A driver that keeps what is reported."""

    def __init__(self) -> None:
        self.name = current_driver().name
        self.reported: list[tuple[str, BaseException]] = []

    def report(self, text: str, error: BaseException) -> None:
        self.reported.append((text, error))


def new_tasks() -> tuple[Tasks, Reports]:
    driver: Any = Reports()
    return tasks_of(driver), driver


async def test_the_end_of_a_task_calls_its_function_once() -> None:
    tasks, driver = new_tasks()
    seen: list[str] = []
    gate = anyio.Event()

    async def run(name: str) -> None:
        await gate.wait()
        seen.append(name)
        if name == "raises":
            raise LookupError(name)

    def ends(name: str) -> Any:
        return lambda: seen.append(f"end of {name}")

    for name in ("returns", "raises"):
        tasks.start(run(name), None, ends(name))
    tasks.start(run("without a function"))
    await anyio.lowlevel.checkpoint()
    stopped = tasks.start(run("cancelled"), on_end=ends("cancelled"))
    assert len(tasks) == 4
    stopped.cancel()  # before its first step
    await until(lambda: len(tasks) == 3)
    gate.set()
    await tasks.wait()
    assert len(tasks) == 0
    assert sorted(seen) == [
        "end of cancelled",
        "end of raises",
        "end of returns",
        "raises",
        "returns",
        "without a function",
    ]
    assert [(text, str(error)) for text, error in driver.reported] == [("aiofabric.rpc: a task failed", "raises")]


async def test_everybody_who_waits_for_the_last_task_is_woken() -> None:
    tasks, _ = new_tasks()
    await tasks.wait()
    gate = anyio.Event()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await tasks.wait()
        woken.append(number)

    for _ in range(2):
        tasks.start(gate.wait())
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
            assert woken == []
            gate.set()
        assert sorted(woken) == [0, 1, 2]
        woken.clear()
        gate = anyio.Event()


async def test_a_task_runs_in_the_context_that_it_is_given() -> None:
    tasks, _ = new_tasks()
    seen: list[str] = []

    async def run() -> None:
        seen.append(NAME.get())

    NAME.set("current")
    other = copy_context()
    other.run(NAME.set, "given")
    tasks.start(run())
    tasks.start(run(), other)
    await tasks.wait()
    assert sorted(seen) == ["current", "given"]


async def test_what_is_no_coroutine_is_refused_and_not_kept() -> None:
    if current_driver().name != "asyncio":
        pytest.skip("trio examines a coroutine in the task itself")
    tasks, _ = new_tasks()
    wrong: Any = 5
    with pytest.raises(TypeError, match="coroutine"):
        tasks.start(wrong)
    assert len(tasks) == 0


async def test_a_set_of_tasks_is_made_once_and_collected() -> None:
    if current_driver().name != "asyncio":
        pytest.skip("TaskSet is asyncio's")
    driver: Any = Reports()
    tasks = AsyncioTasks(driver)
    with pytest.raises(RuntimeError, match="initialised"):
        TaskSet.__init__(tasks, asyncio.get_running_loop().create_task, {}, [])
    tasks.start(asyncio.sleep(0))
    await tasks.wait()
    driver.tasks = tasks  # a cycle
    reference = weakref.ref(tasks)
    del tasks, driver
    gc.collect()
    assert reference() is None
