"""Callbacks, delays, readers and waiters, as the reactor needs them of a loop, on asyncio and on trio."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aiofabric.cq.loops.drivers import AsyncioDriver, TrioDriver, current_driver

pytestmark = pytest.mark.once

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, peer = socket.socketpair()
    with ours, peer:
        yield ours, peer


def counted() -> tuple[list[int], Callable[[], None]]:
    """A callback, and its calls."""
    calls: list[int] = []
    return calls, lambda: calls.append(1)


# -- which one


def test_each_loop_has_its_driver() -> None:
    async def driver() -> Any:
        return current_driver()

    assert isinstance(asyncio.run(driver()), AsyncioDriver)
    assert isinstance(trio.run(driver), TrioDriver)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_yield_lets_callbacks_run(backend: str) -> None:
    async def main() -> None:
        driver = current_driver()
        calls, call = counted()
        driver.call_soon(call)
        while not calls:
            await driver.yield_to_loop()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_checkpoint_raises_in_a_cancelled_scope_only(backend: str) -> None:
    async def main() -> None:
        driver = current_driver()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await driver.checkpoint()
        assert scope.cancelled_caught
        with anyio.CancelScope() as scope:
            await driver.checkpoint()
        assert not scope.cancelled_caught

    anyio.run(main, backend=backend)


# -- asyncio


def test_a_delay_of_asyncio_ends_or_is_cancelled() -> None:
    async def main() -> None:
        driver = AsyncioDriver(asyncio.get_running_loop())
        assert (driver.running(), driver.closed()) == (True, False)
        calls, call = counted()
        never, cancelled = counted()
        driver.call_later(0.001, cancelled)()
        driver.call_later(0.001, call)
        while not calls:
            await driver.yield_to_loop()
        assert (calls, never) == ([1], [])

    asyncio.run(main())


def test_a_reader_of_asyncio_is_called_until_it_is_removed(ends: Ends) -> None:
    ours, peer = ends

    async def main() -> AsyncioDriver:
        driver = AsyncioDriver(asyncio.get_running_loop())
        calls, call = counted()
        driver.add_reader(ours.fileno(), call)
        peer.send(b"x")
        while len(calls) < 2:
            await driver.yield_to_loop()
        driver.remove_reader(ours.fileno())
        calls.clear()
        for _ in range(3):
            await driver.yield_to_loop()
        assert not calls
        return driver

    driver = asyncio.run(main())
    assert driver.closed()
    driver.remove_reader(ours.fileno())  # as before, without effect


def test_an_error_is_reported_to_asyncios_handler() -> None:
    reports: list[dict[str, Any]] = []
    error = OSError("wrong")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, report: reports.append(report))
        AsyncioDriver(loop).report("it failed", error)

    asyncio.run(main())
    assert reports == [{"message": "it failed", "exception": error}]


# -- trio: callbacks and delays


def test_callbacks_run_in_the_next_pass_and_in_order() -> None:
    async def main() -> None:
        driver = TrioDriver()
        order: list[int] = []
        for _ in range(2):  # the second time, the task that calls them sleeps
            for number in (1, 2):
                driver.call_soon(lambda number=number: order.append(number))  # type: ignore[misc]
            assert order == []
            await wait_all_tasks_blocked()
            assert order == [1, 2]
            order.clear()

    trio.run(main)


def test_a_callback_that_adds_another_lets_tasks_run_in_between() -> None:
    async def main() -> None:
        driver = TrioDriver()
        passes = 0
        seen: list[int] = []

        def again() -> None:
            seen.append(passes)
            if len(seen) < 3:
                driver.call_soon(again)

        driver.call_soon(again)
        while len(seen) < 3:
            passes += 1
            await trio.lowlevel.checkpoint()
        assert seen[2] > seen[0]

    trio.run(main)


def test_a_delay_ends_or_is_cancelled() -> None:
    async def main() -> None:
        driver = TrioDriver()
        calls, call = counted()
        never, cancelled = counted()
        driver.call_later(5, call)
        driver.call_later(4, cancelled)()
        await trio.sleep(6)
        assert (calls, never) == ([1], [])

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        TrioDriver().report("it failed", OSError("wrong"))

    trio.run(main)
    (record,) = caplog.records
    assert (record.name, record.levelno, record.message) == ("aiofabric.cq", logging.ERROR, "it failed")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], OSError)


def test_after_the_end_of_the_run_nothing_wakes_a_task(ends: Ends) -> None:
    ours, peer = ends
    calls, call = counted()

    async def main() -> TrioDriver:
        driver = TrioDriver()
        assert (driver.running(), driver.closed()) == (True, False)
        driver.add_reader(ours.fileno(), call)
        await wait_all_tasks_blocked()
        return driver

    driver = trio.run(main)
    peer.send(b"x")
    assert (driver.running(), driver.closed()) == (False, True)
    driver.remove_reader(ours.fileno())
    with pytest.raises(RuntimeError, match="no task that waits for it would be woken"):
        driver.create_waiter()
    with pytest.raises(RuntimeError):
        driver.call_soon_threadsafe(call)
    assert not calls


def test_another_thread_may_schedule_a_callback() -> None:
    async def main() -> None:
        driver = TrioDriver()
        calls, call = counted()
        await trio.to_thread.run_sync(driver.call_soon_threadsafe, call)
        while not calls:
            await trio.lowlevel.checkpoint()

    trio.run(main)


# -- trio: waiters


def test_a_waiter_has_its_result_before_or_after_the_wait() -> None:
    async def main() -> None:
        driver = TrioDriver()
        early, late = driver.create_waiter(), driver.create_waiter()
        assert not early.done()
        early.set_result(1)
        assert early.done()
        assert (await early, early.result()) == (1, 1)
        driver.call_soon(lambda: late.set_result(2))
        assert (await late, late.done(), late.result()) == (2, True, 2)

    trio.run(main)


def test_a_result_after_a_cancelled_wait_wakes_no_task() -> None:
    async def main() -> None:
        driver = TrioDriver()
        waiter = driver.create_waiter()
        with trio.move_on_after(0) as scope:
            await waiter
        assert scope.cancelled_caught
        waiter.set_result(1)  # would wake this task in its next wait
        with trio.move_on_after(5) as scope:
            await trio.sleep(3)
            scope.cancel()
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert waiter.result() == 1

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# -- trio: readers. Such a wait takes longer than a message does, so there are few of them


def test_one_readability_wakes_once_however_often_it_was_demanded(ends: Ends) -> None:
    """A source that goes to sleep requests a wait although one may exist: the second wake-up would find nothing."""
    ours, peer = ends
    calls, call = counted()  # nothing is read: the descriptor stays readable

    async def main() -> None:
        driver = TrioDriver()
        driver.add_reader(ours.fileno(), call, on_demand=True)
        for _ in range(2):
            driver.demand(ours.fileno())
            await wait_all_tasks_blocked()
        assert len(calls) == 0
        peer.send(b"x")
        await wait_all_tasks_blocked()
        assert len(calls) == 1
        driver.demand(ours.fileno())
        await wait_all_tasks_blocked()
        assert len(calls) == 2, "a demand after the wake-up is one for the next"
        driver.remove_reader(ours.fileno())
        driver.demand(ours.fileno())  # without effect

    trio.run(main)


def test_demand_from_the_callback_is_noticed(ends: Ends) -> None:
    ours, peer = ends
    got = b""

    async def main() -> None:
        driver = TrioDriver()

        def wake() -> None:
            nonlocal got
            got += ours.recv(1)
            driver.demand(ours.fileno())

        driver.add_reader(ours.fileno(), wake, on_demand=True)
        peer.send(b"abc")
        await wait_all_tasks_blocked()
        driver.remove_reader(ours.fileno())

    trio.run(main)
    assert got == b"abc"


def test_a_reader_that_is_not_on_demand_is_called_while_there_is_something_to_read(ends: Ends) -> None:
    ours, peer = ends

    async def main() -> None:
        driver = TrioDriver()
        calls, call = counted()
        driver.add_reader(ours.fileno(), call)
        await wait_all_tasks_blocked()
        assert not calls
        peer.send(b"x")
        while len(calls) < 3:
            await trio.lowlevel.checkpoint()
        driver.remove_reader(ours.fileno())
        calls.clear()
        await wait_all_tasks_blocked()
        assert not calls

    trio.run(main)


def test_a_reader_that_was_removed_before_its_first_wait_does_not_wait(ends: Ends) -> None:
    """Its descriptor may be closed by then."""
    ours, peer = ends
    peer.send(b"x")

    async def main() -> None:
        driver = TrioDriver()
        calls, call = counted()
        driver.add_reader(ours.fileno(), call)
        driver.remove_reader(ours.fileno())
        driver.remove_reader(ours.fileno())  # without effect
        ours.close()
        await wait_all_tasks_blocked()
        assert not calls

    trio.run(main)


def test_a_reader_that_is_removed_in_the_pass_in_which_it_became_readable_is_not_called(ends: Ends) -> None:
    """Both are readable in one pass, and the first one removes both."""

    async def main() -> None:
        driver = TrioDriver()
        calls: list[int] = []

        def call() -> None:
            calls.append(1)
            for each in ends:
                driver.remove_reader(each.fileno())

        for each in ends:
            each.send(b"x")  # makes the other one readable
        for each in ends:
            driver.add_reader(each.fileno(), call)
        await wait_all_tasks_blocked()
        assert calls == [1]

    trio.run(main)


def test_a_reader_may_remove_itself(ends: Ends) -> None:
    ours, peer = ends
    peer.send(b"x")

    async def main() -> None:
        driver = TrioDriver()
        calls: list[int] = []

        def call() -> None:
            calls.append(1)
            driver.remove_reader(ours.fileno())
            ours.close()

        driver.add_reader(ours.fileno(), call)
        await wait_all_tasks_blocked()
        assert calls == [1]

    trio.run(main)


def test_the_number_of_a_removed_descriptor_is_used_again_at_once() -> None:
    """Otherwise the first task would still wait for it."""

    async def main() -> None:
        driver = TrioDriver()
        number = os.dup(0)
        for _ in range(20):  # the order in which tasks run is random
            ours, peer = socket.socketpair()
            with ours:
                os.dup2(ours.fileno(), number)  # this closes the one before
            calls, call = counted()
            driver.add_reader(number, call)
            await wait_all_tasks_blocked()
            assert not calls
            with peer:
                peer.send(b"x")
                while not calls:
                    await trio.lowlevel.checkpoint()
                driver.remove_reader(number)
        os.close(number)

    trio.run(main)
