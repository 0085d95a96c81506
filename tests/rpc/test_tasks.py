"""Tasks of a server: `TaskSet` in C on asyncio, system tasks on trio. Their ends are the same."""

# Doubles: a loop with a `create_task` of its own is imitated.

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import time
import weakref
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest

from aiofabric._core import TaskSet, Waker
from aiofabric.cq.loops.drivers import current_driver
from aiofabric.rpc.runtime.tasks import AsyncioTasks, Tasks, tasks_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

ASYNCIO = [pytest.param(*each.values, id=each.id, marks=each.marks) for each in LOOPS if each.id != "trio"]
NAME: ContextVar[str] = ContextVar("NAME", default="none")


@pytest.fixture(params=["by the waker", "by the loop"])
def first_steps(request: pytest.FixtureRequest, anyio_backend_name: str) -> str:
    """Whether the Waker or the loop takes the first step of a task; on trio it is always the loop."""
    if anyio_backend_name == "trio" and request.param == "by the waker":
        pytest.skip("trio has no waker")
    return str(request.param)


class Reports:
    """A driver that keeps what is reported."""

    def __init__(self, first_steps: str) -> None:
        self.name = current_driver().name
        self.waker = current_driver().waker if first_steps == "by the waker" else None
        self.reported: list[tuple[str, BaseException]] = []

    def report(self, text: str, error: BaseException) -> None:
        self.reported.append((text, error))


def new_tasks(first_steps: str) -> tuple[Tasks, Reports]:
    driver: Any = Reports(first_steps)
    return tasks_of(driver), driver


async def test_the_end_of_a_task_calls_its_function_once(first_steps: str) -> None:
    tasks, driver = new_tasks(first_steps)
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


async def test_everybody_who_waits_for_the_last_task_is_woken(first_steps: str) -> None:
    tasks, _ = new_tasks(first_steps)
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


async def test_a_task_runs_in_the_context_that_it_is_given(first_steps: str) -> None:
    tasks, _ = new_tasks(first_steps)
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


async def test_what_is_no_coroutine_is_refused_and_not_kept(first_steps: str) -> None:
    if current_driver().name != "asyncio":
        pytest.skip("trio examines a coroutine in the task itself")
    tasks, _ = new_tasks(first_steps)
    wrong: Any = 5
    with pytest.raises(TypeError, match="coroutine"):
        tasks.start(wrong)
    assert len(tasks) == 0


async def test_a_set_of_tasks_is_made_once_and_collected(first_steps: str) -> None:
    if current_driver().name != "asyncio":
        pytest.skip("TaskSet is asyncio's")
    driver: Any = Reports(first_steps)
    tasks = AsyncioTasks(driver)
    with pytest.raises(RuntimeError, match="initialised"):
        TaskSet.__init__(tasks, asyncio.get_running_loop(), None, None, {}, [])
    tasks.start(asyncio.sleep(0))
    await tasks.wait()
    driver.tasks = tasks  # a cycle
    reference = weakref.ref(tasks)
    del tasks, driver
    gc.collect()
    assert reference() is None


async def test_a_task_has_the_name_that_it_is_given(first_steps: str) -> None:
    tasks, _ = new_tasks(first_steps)
    seen: list[str] = []

    async def run() -> None:
        seen.append(anyio.get_current_task().name or "")

    tasks.start(run(), name="/service/method")
    await tasks.wait()
    assert seen == ["/service/method"]


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_a_first_step_runs_as_any_step_of_a_task_of_the_loop(first_steps: str) -> None:
    tasks, driver = new_tasks(first_steps)
    loop = asyncio.get_running_loop()
    seen: list[Any] = []

    async def run() -> None:
        me = asyncio.current_task()
        assert me is not None
        seen.extend([me.get_loop() is loop, me in asyncio.all_tasks(), asyncio.get_running_loop() is loop])
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    task: Any = tasks.start(run())
    assert task in asyncio.all_tasks()
    await tasks.wait()
    assert seen == [True] * 3
    assert [type(error) for _, error in driver.reported] == [TimeoutError]
    assert task.done()


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_a_task_that_ends_in_its_first_step_is_forgotten_at_once() -> None:
    tasks, _ = new_tasks("by the waker")
    seen: list[Any] = []
    driver = current_driver()

    async def run() -> None:
        seen.append("ran")

    tasks.start(run(), on_end=lambda: seen.append("ended"))
    assert (seen, len(tasks)) == ([], 1)
    driver.call_soon(lambda: seen.append(("in the next callback", len(tasks))))
    await asyncio.sleep(0)
    assert seen == ["ran", "ended", ("in the next callback", 0)]


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_first_steps_that_take_long_leave_the_loop_to_others() -> None:
    """Hazard: many handlers that compute begin in one pass, and timers wait for all of them."""
    tasks, _ = new_tasks("by the waker")
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    async def compute() -> None:
        end = time.monotonic() + 0.002
        while time.monotonic() < end:
            pass
        seen.append("task")

    def other() -> None:
        seen.append("other")
        if len(tasks):
            loop.call_soon(other)

    for _ in range(20):
        tasks.start(compute())
    loop.call_soon(other)
    await tasks.wait()
    runs = "".join("t" if each == "task" else " " for each in seen).split()
    assert sum(map(len, runs)) == 20
    assert max(map(len, runs)) <= 2, seen


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_a_task_factory_makes_the_tasks() -> None:
    """It would not know of a first step that is not the loop's."""
    loop = asyncio.get_running_loop()
    made: list[Any] = []

    def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
        made.append(options["context"])
        return asyncio.Task(coroutine, loop=loop, **options)

    tasks, _ = new_tasks("by the waker")
    context = copy_context()
    loop.set_task_factory(factory)
    try:
        task: Any = tasks.start(asyncio.sleep(0), context, name="name")
        await tasks.wait()
    finally:
        loop.set_task_factory(None)
    assert made == [context]
    assert task.get_name() == "name"


class WithItsOwn(asyncio.SelectorEventLoop):
    """A loop whose ``create_task`` does more than asyncio's."""

    def create_task(self, coroutine: Any, **options: Any) -> Any:  # type: ignore[override]
        MADE.append(options.get("name", "other"))
        return super().create_task(coroutine, **options)


MADE: list[str] = []


@pytest.mark.parametrize("how", ["of its class", "of the object", "wrapped"])
def test_a_loop_with_a_create_task_of_its_own_makes_the_tasks(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        tasks, _ = new_tasks("by the waker")
        tasks.start(asyncio.sleep(0), name="this one")
        await tasks.wait()

    MADE.clear()
    loop = WithItsOwn() if how == "of its class" else asyncio.SelectorEventLoop()
    original = asyncio.BaseEventLoop.create_task

    @functools.wraps(original)
    def create_task(*args: Any, **options: Any) -> Any:
        MADE.append(options.get("name", "other"))
        return original(*args, **options) if args[0] is loop else original(loop, *args, **options)

    if how == "of the object":
        loop.create_task = create_task  # type: ignore[method-assign]
    elif how == "wrapped":
        monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", create_task)
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert "this one" in MADE


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit"])
def test_an_interrupt_in_a_first_step_ends_the_program(loop: str, error: str) -> None:
    """It leaves the loop, as from any task; the task is forgotten, and its function is called."""
    program = f"""
import asyncio
from aiofabric.cq.loops.drivers import current_driver
from aiofabric.rpc.runtime.tasks import tasks_of
seen = []

async def first():
    raise {error}("on purpose")

async def main():
    global tasks
    tasks = tasks_of(current_driver())
    tasks.start(first(), on_end=lambda: seen.append("ended"))
    tasks.start(asyncio.sleep(0), on_end=lambda: seen.append("the other one ended"))
    await asyncio.sleep(60)

try:
    if {loop!r} == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())
except {error}:
    print(sorted(seen), len(tasks))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "['ended', 'the other one ended'] 0", done.stderr


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_a_step_that_was_taken_is_not_taken_again() -> None:
    """FirstStep is private to the core: it is found through the garbage collector."""
    tasks, _ = new_tasks("by the waker")
    ran: list[int] = []

    async def run() -> None:
        ran.append(1)

    tasks.start(run())
    (step,) = [each for each in gc.get_objects() if type(each).__name__ == "FirstStep"]
    await tasks.wait()
    with pytest.raises(RuntimeError, match="expected a first step"):
        step()
    assert ran == [1]


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_a_task_whose_first_step_could_not_be_scheduled_does_not_run() -> None:
    """Ctrl-C may come in the loop's `call_soon`. The caller ends the call with it: the task must not end it again."""
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    errors = [KeyboardInterrupt()]

    class Interrupted:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        def call_soon(self, *args: Any, **options: Any) -> Any:
            if errors:
                raise errors.pop()
            return loop.call_soon(*args, **options)

    async def run(name: str) -> None:
        seen.append(name)

    around: Any = Interrupted()
    running: dict[Any, Any] = {}
    tasks = TaskSet(loop, loop.create_task, Waker(around), running, [])
    interrupted = run("interrupted")
    with pytest.raises(KeyboardInterrupt):
        tasks.start(interrupted, None, lambda: seen.append("end of interrupted"))
    interrupted.close()
    assert not running
    tasks.start(run("later"), None, lambda: seen.append("end of later"))
    await until(lambda: not running)
    gc.collect()
    assert seen == ["later", "end of later"]


@pytest.mark.parametrize("anyio_backend", ASYNCIO)
async def test_a_task_whose_end_could_not_be_watched_is_cancelled() -> None:
    seen: list[str] = []

    class Unwatched(asyncio.Task[Any]):
        def add_done_callback(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    async def run() -> None:
        seen.append("ran")

    def create(coroutine: Any, **options: Any) -> Any:
        made.append(Unwatched(coroutine, loop=loop, **options))
        return made[-1]

    made: list[Any] = []
    loop = asyncio.get_running_loop()
    running: dict[Any, Any] = {}
    tasks = TaskSet(loop, create, None, running, [])
    with pytest.raises(KeyboardInterrupt):
        tasks.start(run(), None, lambda: seen.append("end"))
    assert not running
    await until(lambda: made[0].done())
    assert seen == []
