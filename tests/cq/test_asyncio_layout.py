"""Hazard: asyncio has another private layout than the native core expects, or the interpreter is not supported."""

# Privates: the parts of the trial are recorded or replaced.
# Doubles: no asyncio with another private layout is at hand.

import asyncio
import threading
from time import sleep
from typing import Any

import anyio
import pytest

from aiofabric.cq.loops import asyncio_layout, drivers
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.once
provider = over(["tcp"])


def test_this_interpreter_s_asyncio_is_as_expected() -> None:
    assert asyncio_layout.layout_error() is None
    assert drivers.LAYOUT_ERROR is None


class Mute:
    """As if tasks could not wait for the loop's futures."""

    def __init__(self, _: Any) -> None:
        pass

    def create_waiter(self) -> object:
        return object()


@pytest.mark.parametrize("waker", [Mute, None])
def test_another_asyncio_is_noticed(monkeypatch: pytest.MonkeyPatch, waker: Any) -> None:
    monkeypatch.setattr(asyncio_layout, "Waker", waker)
    assert asyncio_layout.layout_error() is not None


class OfAnotherLoop:
    """As if `Future.__init__` did not give a task to its loop: the task keeps what stood in for it."""

    def __init__(self, loop: Any, create_task: Any, waker: Any, running: dict[Any, Any], idle: Any) -> None:
        self.running = running
        self.another = type(loop)()

    def start(self, coroutine: Any, *_: Any) -> Any:
        coroutine.close()
        task = self.another.create_future()
        self.running[task] = None
        return task


def test_tasks_that_cannot_be_given_to_their_loop_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_layout, "TaskSet", OfAnotherLoop)
    assert asyncio_layout.layout_error() is not None


def test_each_of_these_is_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CPython at hand differs in most of them."""
    tried: list[str] = []

    def expect(holds: bool, what: str) -> None:
        assert holds
        tried.append(what)

    monkeypatch.setattr(asyncio_layout, "_expect", expect)
    assert asyncio_layout.layout_error() is None
    assert tried == [
        "a task did not wait",
        "a task did not get its result",
        "a task that waits was not cancelled",
        "a task that got its result and was then cancelled did not end",
        "a task did not wait for its first step",
        "a task did not belong to its loop",
        "the first steps of tasks were not taken in order",
        "a task did not end",
        "a task that was cancelled before its first step did not end",
        "a task did not wait in its first step",
        "a task did not resume after its first step",
        "the loop's exception handler was called with []",
    ]


def test_a_trial_that_takes_its_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []

    def linger(_: Any) -> None:
        begun.append(threading.main_thread().is_alive())
        sleep(0.05)

    monkeypatch.setattr(asyncio_layout, "_try_out", linger)
    assert asyncio_layout.layout_error() is None
    assert begun == [True]
    assert "aiofabric asyncio trial" not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "LAYOUT_ERROR", "as a test wants it")


@pytest.mark.anyio
@pytest.mark.usefixtures("plain")
class TestWaitersOfPython:
    """The promises of the fallback, on every loop (trio always uses Python's waiters)."""

    async def test_messages_go_there_and_back(self, pair: Pair) -> None:
        async with pair() as (one, two):
            for number in range(200):
                await one.send(b"%d" % number)
                await two.send(await two.recv())
                assert await one.recv() == b"%d" % number

    async def test_large_messages_are_waited_for(self, pair: Pair) -> None:
        data = bytes(1 << 20)
        async with pair(recv_size=None) as (one, two), anyio.create_task_group() as tasks:
            for _ in range(10):
                room = bytearray(len(data))
                tasks.start_soon(one.send, data)
                assert await two.recv_into(room) == len(data)

    async def test_a_cancelled_receive_loses_nothing(self, pair: Pair) -> None:
        async with pair() as (one, two):
            got: list[bytes] = []
            for number in range(50):
                with anyio.move_on_after(0.001 * (number % 3)):
                    got.append(await two.recv())
                await one.send(b"%d" % number)
            while len(got) < 50:
                got.append(await two.recv())
            assert [bytes(each) for each in got] == [b"%d" % number for number in range(50)]

    async def test_a_close_wakes_those_who_wait(self, pair: Pair) -> None:
        async with pair() as (one, _), anyio.create_task_group() as tasks:

            async def receive() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await one.recv()

            for _ in range(3):
                tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            one.close()


@pytest.mark.asyncio
async def test_the_fallback_is_what_the_driver_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "LAYOUT_ERROR", "as a test wants it")
    driver = drivers.AsyncioDriver(asyncio.get_running_loop())
    assert driver.waker is None
    waiter = driver.create_waiter()
    assert isinstance(waiter, drivers.PlainWaiter)
    waiter.set_result(1)
    assert await waiter == waiter.result() == 1
    with pytest.raises(asyncio.InvalidStateError):
        waiter.set_result(2)


def test_a_free_threaded_build_is_refused_in_a_sentence() -> None:
    ended = run_in_child("import sys; sys.abiflags = 't'\nimport aiofabric; aiofabric.connect")
    assert "ImportError: aiofabric needs the GIL: this Python is a free-threaded build" in ended.err


def test_a_sub_interpreter_is_refused_in_a_sentence() -> None:
    ended = run_in_child(
        """
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import aiofabric._core
        try:  # one that shares the GIL: it would load the module
            other = interpreters.create(isolated=False)
        except TypeError:
            other = interpreters.create("legacy")
        print(interpreters.run_string(other, "import aiofabric._core"))
        """
    )
    assert "aiofabric works in the main interpreter only" in ended.out + ended.err
