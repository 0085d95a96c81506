"""`Waiter`, the object that asyncio's tasks await: to the tasks, and to code that cancels them, it is a future."""

# Privates: asyncio's futures and tasks are checked as the native core uses them, which is by private names.

import asyncio
import contextvars
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
import uvloop

from aiofabric._core import Waiter, Waker
from aiofabric.cq.loops.drivers import AsyncioDriver
from aiofabric.cq.polling import Waiting
from aiofabric.cq.queue import Entry, ErrorEntry
from aiofabric.cq.source.source import Source
from aiofabric.testing import ScriptedQueue
from tests.fixtures.internals import descriptor_is_readable, run_scheduled_pass

pytestmark = pytest.mark.once

Loop = asyncio.AbstractEventLoop


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.get_loop()


@pytest.fixture
def waker(loop: Loop) -> Waker:
    return Waker(loop)


class Completable:
    """The object that gets a completion."""

    def __init__(self, complete: Callable[[], None]) -> None:
        self._complete = complete

    def complete(self, entry: Entry, /) -> None:
        self._complete()

    def fail(self, entry: ErrorEntry, /) -> None:
        raise AssertionError("nothing fails here")

    def consumed(self) -> None:
        raise AssertionError("nothing is consumed here")


async def waits(waiter: Any) -> Any:
    return await waiter


def suspended(loop: Loop, waiter: Waiter) -> "asyncio.Task[Any]":
    """A task that waits for it."""
    task = loop.create_task(waits(waiter))
    loop.run_until_complete(asyncio.sleep(0))
    return task


def test_answer_before_the_await_needs_no_iteration(loop: Loop, waker: Waker) -> None:
    waiter = waker.create_waiter()
    waiter.set_result("answer")
    with pytest.raises(StopIteration, match="answer"):
        waits(waiter).send(None)
    assert waiter.done()
    assert waiter.result() == "answer"


def test_answer_after_it_reaches_the_task(loop: Loop, waker: Waker) -> None:
    waiter = waker.create_waiter()
    task = suspended(loop, waiter)
    assert not waiter.done()
    waiter.set_result("answer")
    assert loop.run_until_complete(task) == "answer"


def test_all_who_were_answered_go_on_in_their_order_in_one_callback(loop: Loop, waker: Waker) -> None:
    order: list[int] = []

    async def waits_as(n: int, waiter: Waiter) -> None:
        await waiter
        order.append(n)

    waiters = [waker.create_waiter() for _ in range(500)]
    tasks = [loop.create_task(waits_as(n, waiter)) for n, waiter in enumerate(waiters)]
    loop.run_until_complete(asyncio.sleep(0))
    for waiter in waiters:
        waiter.set_result(None)
    loop.run_until_complete(asyncio.sleep(0))
    assert order == list(range(500))
    loop.run_until_complete(asyncio.gather(*tasks))


def test_second_answer_and_early_result_are_errors(waker: Waker) -> None:
    waiter = waker.create_waiter()
    with pytest.raises(asyncio.InvalidStateError):
        waiter.result()
    waiter.set_result(1)
    with pytest.raises(asyncio.InvalidStateError):
        waiter.set_result(2)
    assert waiter.result() == 1


def test_cancelled_task_is_gone_and_a_later_answer_wakes_nobody(loop: Loop, waker: Waker) -> None:
    waiter = waker.create_waiter()
    task = suspended(loop, waiter)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        loop.run_until_complete(task)
    assert not waiter.done()
    waiter.set_result("nobody's")
    loop.run_until_complete(asyncio.sleep(0))
    assert waiter.result() == "nobody's"


def test_cancel_between_the_answer_and_the_task_leaves_the_answer_to_be_put_back(loop: Loop, waker: Waker) -> None:
    waiter = waker.create_waiter()
    task = suspended(loop, waiter)
    waiter.set_result("a message")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert waiter.done()
    assert waiter.result() == "a message"


def test_task_that_shields_itself_from_a_cancel_can_wait_again(loop: Loop, waker: Waker) -> None:
    first, second = waker.create_waiter(), waker.create_waiter()

    async def stubborn() -> Any:
        try:
            await first
        except asyncio.CancelledError:
            return await second

    task = loop.create_task(stubborn())
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    first.set_result(1)
    second.set_result(2)
    assert loop.run_until_complete(task) == 2


def test_scope_of_anyio_cancels_a_task_though_it_is_answered(loop: Loop, waker: Waker) -> None:
    waiter = waker.create_waiter()

    async def main() -> bool:
        with anyio.CancelScope() as scope:

            async def answer_and_cancel() -> None:
                await asyncio.sleep(0)
                waiter.set_result("answer")
                scope.cancel()

            task = asyncio.ensure_future(answer_and_cancel())
            await waiter
        await task
        return scope.cancelled_caught

    assert loop.run_until_complete(main())
    assert waiter.result() == "answer"


def test_hazard_future_that_somebody_knows_is_not_used_again(loop: Loop, waker: Waker) -> None:
    """Code that kept a task's future and cancels it late must not cancel the next task's wait."""
    kept: list[Any] = []

    def wait_once() -> None:
        waiter = waker.create_waiter()
        task = suspended(loop, waiter)
        kept.append(task._fut_waiter)  # type: ignore[attr-defined]
        waiter.set_result(None)
        loop.run_until_complete(task)

    for _ in range(3):
        wait_once()
    assert len({id(future) for future in kept}) == 3
    innocent = waker.create_waiter()
    task = suspended(loop, innocent)
    for future in kept:
        future.cancel()
    innocent.set_result("answer")
    assert loop.run_until_complete(task) == "answer"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="from 3.14 on, a future keeps its task until it is done")
def test_futures_are_used_again(loop: Loop) -> None:
    made = 0

    class Counting:
        call_soon = loop.call_soon

        def create_future(self) -> Any:
            nonlocal made
            made += 1
            return loop.create_future()

    waker = Waker(Counting())

    async def main() -> None:
        for _ in range(1000):
            waiter = waker.create_waiter()
            loop.call_soon(waiter.set_result, None)
            await waiter

    loop.run_until_complete(main())
    assert made < 5


def test_interrupt_of_one_task_leaves_the_others_answered(loop: Loop, waker: Waker) -> None:
    async def interrupted(waiter: Waiter) -> None:
        await waiter
        raise KeyboardInterrupt

    waiters = [waker.create_waiter() for _ in range(3)]
    bad = loop.create_task(interrupted(waiters[0]))
    good = [loop.create_task(waits(waiter)) for waiter in waiters[1:]]
    loop.run_until_complete(asyncio.sleep(0))
    for n, waiter in enumerate(waiters):
        waiter.set_result(n)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(1))
    assert loop.run_until_complete(asyncio.gather(*good)) == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        bad.result()


def test_task_of_another_loop_is_told_so(loop: Loop) -> None:
    other = asyncio.new_event_loop()
    try:
        waiter = Waker(other).create_waiter()
        with pytest.raises(RuntimeError, match="attached to a different loop"):
            loop.run_until_complete(waits(waiter))
    finally:
        other.close()


def test_answer_after_the_loop_was_closed_is_an_error_as_of_a_future() -> None:
    loop = asyncio.new_event_loop()
    waiter = Waker(loop).create_waiter()
    task = suspended(loop, waiter)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        waiter.set_result(None)
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_context_is_the_tasks(loop: Loop, waker: Waker) -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    waiter = waker.create_waiter()

    async def asks() -> str:
        who.set("the task")
        await waiter
        return who.get()

    task = loop.create_task(asks())
    loop.run_until_complete(asyncio.sleep(0))
    waiter.set_result(None)
    assert loop.run_until_complete(task) == "the task"


def test_tasks_in_python_can_wait_as_well(loop: Loop, waker: Waker) -> None:
    waiter = waker.create_waiter()
    task = asyncio.tasks._PyTask(waits(waiter), loop=loop)  # type: ignore[attr-defined]
    loop.run_until_complete(asyncio.sleep(0))
    waiter.set_result("answer")
    assert loop.run_until_complete(task) == "answer"


def test_hazard_futures_in_python_own_what_is_called(loop: Loop) -> None:
    """Futures as nest_asyncio replaces them: their list of callbacks has the only reference to each."""
    made: list[Any] = []

    class InPython:
        call_soon = loop.call_soon

        def create_future(self) -> Any:
            made.append(asyncio.futures._PyFuture(loop=loop))  # type: ignore[attr-defined]
            return made[-1]

    waker = Waker(InPython())

    async def main() -> None:
        for n in range(50):
            waiter = waker.create_waiter()
            loop.call_soon(waiter.set_result, n)
            assert await waiter == n

    loop.run_until_complete(asyncio.tasks._PyTask(main(), loop=loop))  # type: ignore[attr-defined]
    assert not any(future._callbacks for future in made)


@pytest.mark.parametrize("future", [asyncio.Future, asyncio.futures._PyFuture], ids=["C", "Python"])  # type: ignore[attr-defined]
def test_hazard_callbacks_that_come_and_go_while_they_are_called(loop: Loop, future: Any) -> None:
    """The list of callbacks of a future in Python may grow and shrink during an iteration over it."""
    order: list[str] = []

    class Futures:
        call_soon = loop.call_soon

        def create_future(self) -> Any:
            return future(loop=loop)

    def removes(_: Any) -> None:
        order.append("removes")
        lent.remove_done_callback(removed)

    def removed(_: Any) -> None:
        order.append("removed")

    waiter = Waker(Futures()).create_waiter()
    lent: Any = next(iter(waiter))
    for callback in (lambda _: order.append("first"), removes, removed):
        lent.add_done_callback(callback)
    waiter.set_result(None)
    loop.run_until_complete(asyncio.sleep(0))
    assert order[:2] == ["first", "removes"]


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_other_callbacks_of_a_tasks_future_are_called_too(loop: Loop, waker: Waker, others: int, place: int) -> None:
    """With any callbacks of the last future, and with other callbacks added before the task's and removed again."""
    order: list[object] = []

    async def main() -> None:
        for n in range(4):
            waiter = waker.create_waiter()
            task = loop.create_task(waits(waiter))
            task.add_done_callback(lambda _: order.append("done"))
            await asyncio.sleep(0)
            lent: Any = task._fut_waiter  # type: ignore[attr-defined]
            callbacks = [*lent._callbacks]
            assert len(callbacks) == 1
            if n % 2:
                mine = [lambda _, m=m: order.append(m) for m in range(others)]
                lent.remove_done_callback(callbacks[0][0])
                for callback in mine[:place]:
                    lent.add_done_callback(callback)
                lent.add_done_callback(callbacks[0][0], context=callbacks[0][1])
                for callback in mine[place:]:
                    lent.add_done_callback(callback)
            waiter.set_result(n)
            del lent, callbacks
            assert await task == n
            await asyncio.sleep(0)
            expected = [*range(others)] if n % 2 else []
            assert sorted(order, key=str) == [*expected, "done"]
            order.clear()

    loop.run_until_complete(main())


def test_hazard_futures_that_were_lent_carry_nothing_to_the_next_task(loop: Loop, waker: Waker) -> None:
    async def main() -> None:
        for n in range(200):
            waiters = [waker.create_waiter() for _ in range(3)]
            tasks = [loop.create_task(waits(each)) for each in waiters]
            await asyncio.sleep(0)
            assert [len(task._fut_waiter._callbacks) for task in tasks] == [1, 1, 1]  # type: ignore[attr-defined]
            if n % 3 == 0:
                tasks[1].cancel()
            for each in waiters:
                each.set_result(n)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(each, asyncio.CancelledError) for each in results] == [False, n % 3 == 0, False]

    loop.run_until_complete(main())


def test_hazard_who_is_imported_before_asyncio_leaves_it_what_is_its_in_c() -> None:
    """`_asyncio` imported first made asyncio do without: no current task, and everything slow."""
    ask = "import aiofabric._core, _asyncio, asyncio; print(asyncio.Future is _asyncio.Future)"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "True"


def test_await_without_a_task_is_told_so(waker: Waker) -> None:
    coroutine = waits(waker.create_waiter())
    coroutine.send(None)
    with pytest.raises(RuntimeError, match="only a task"):
        coroutine.send(None)


@pytest.mark.parametrize("answered", [False, True])
def test_tasks_that_nobody_keeps_are_collected(answered: bool, loop: Loop, waker: Waker) -> None:
    def count() -> int:
        gc.collect()
        return sum(isinstance(each, Waiter) for each in gc.get_objects())

    def leave() -> None:
        waiter = waker.create_waiter()
        task = suspended(loop, waiter)
        if answered:
            waiter.set_result(None)
            loop.run_until_complete(task)
        else:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    before = count()
    for _ in range(20):
        leave()
    assert count() == before


@pytest.fixture
def queue() -> Iterator[ScriptedQueue]:
    with ScriptedQueue() as queue:
        yield queue


@pytest.fixture
def source(loop: Loop, queue: ScriptedQueue) -> Iterator[Source]:
    source = Source(AsyncioDriver(loop), queue, waiting=Waiting.FD)
    yield source
    source.close()


def test_tasks_go_on_at_the_end_of_the_turn_that_answered_them(
    loop: Loop, source: Source, queue: ScriptedQueue
) -> None:
    """Without another iteration: callbacks that the same pass schedules run after them."""
    order: list[str] = []
    waiter = source.driver.create_waiter()

    def complete() -> None:
        loop.call_soon(order.append, "next iteration")
        waiter.set_result(None)
        order.append("finished")

    async def main() -> None:
        source.operations[1000] = Completable(complete)
        source.prepare()
        loop.call_soon(queue.complete, 1000)
        await waiter
        order.append("task")
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert order == ["finished", "task", "next iteration"]


def test_tasks_that_a_descriptor_woke_go_on_with_the_turn_that_is_on_its_way(
    loop: Loop, source: Source, queue: ScriptedQueue
) -> None:
    """Once in an iteration: other callbacks wait for one run of tasks at most."""
    order: list[str] = []
    waiter = source.driver.create_waiter()

    def woken() -> None:
        source.touch()
        descriptor_is_readable(source)
        order.append("woken")
        loop.call_soon(order.append, "behind the turn")

    async def main() -> None:
        source.operations[1000] = Completable(lambda: waiter.set_result(None))
        queue.complete(1000)
        loop.call_soon(woken)
        await waiter
        order.append("task")
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert order == ["woken", "task", "behind the turn"]


def test_a_task_that_runs_after_an_empty_wake_up_may_close_the_queue(
    loop: Loop, source: Source, queue: ScriptedQueue
) -> None:
    """Hazard: the task was woken before, and the wake-up finds nothing. fi_trywait of a closed queue crashes."""
    waiter = source.driver.create_waiter()
    over: list[bool] = []

    def empty_wake_up() -> None:
        source.armed = True
        waiter.set_result(None)
        descriptor_is_readable(source)
        over.append(source.closed)

    async def main() -> None:
        loop.call_soon(empty_wake_up)
        await waiter
        source.close()
        queue.close()
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert over == [True]


def test_a_callback_that_closes_the_queue_has_nothing_retried(source: Source, queue: ScriptedQueue) -> None:
    """Hazard: queued operations would be posted on an endpoint that fi_close has freed."""
    retried: list[bool] = []

    class Queued:
        waiting: tuple[()] = ()
        refused = is_waiting = False

        def retry(self) -> int:
            retried.append(source.closed)
            return 0

    def close() -> None:
        source.close()
        queue.close()

    source.operations[1000] = Completable(close)
    queued: Any = Queued()
    source.enqueue(queued)
    queue.complete(1000)
    source.progress()
    assert source.closed
    assert retried == []


@pytest.mark.parametrize("where", ["the task", "a callback of the turn"])
def test_interrupt_in_a_turn_leaves_the_queue_watched(
    where: str, loop: Loop, source: Source, queue: ScriptedQueue
) -> None:
    first, second = source.driver.create_waiter(), source.driver.create_waiter()

    def interrupt(_: object = None) -> None:
        raise KeyboardInterrupt

    async def waits_for(waiter: Any, then: Callable[[], None] | None = None) -> None:
        await waiter
        if then is not None:
            then()

    source.operations[1000] = Completable(interrupt if where != "the task" else lambda: first.set_result(None))
    source.operations[2000] = Completable(lambda: second.set_result(None))
    interrupted = loop.create_task(waits_for(first, interrupt))
    other = loop.create_task(waits_for(second))
    queue.complete(1000)
    source.touch()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(5))
    queue.complete(2000)
    loop.run_until_complete(asyncio.wait_for(other, 5))
    if where == "the task":
        with pytest.raises(KeyboardInterrupt):
            interrupted.result()
    else:
        interrupted.cancel()


def test_turn_that_is_asked_for_inside_a_task_lets_no_other_one_go_on_inside_it(
    loop: Loop, source: Source, queue: ScriptedQueue
) -> None:
    order: list[str] = []
    waiter = source.driver.create_waiter()

    async def other() -> None:
        await waiter
        order.append("other")

    async def main() -> None:
        task = asyncio.ensure_future(other())
        await asyncio.sleep(0)
        source.operations[1000] = Completable(lambda: waiter.set_result(None))
        queue.complete(1000)
        source.progress()
        order.append("this one")
        await task

    loop.run_until_complete(main())
    assert order == ["this one", "other"]


def test_callback_that_fails_is_told_to_the_loop(loop: Loop, waker: Waker) -> None:
    told: list[Any] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    waiter = waker.create_waiter()
    future: Any = next(iter(waiter))

    def fails(_: Any) -> None:
        raise LookupError("a defect")

    future.add_done_callback(fails)
    waiter.set_result(None)
    loop.run_until_complete(asyncio.sleep(0))
    assert [str(error) for error in told] == ["a defect"]
    assert told[0].__traceback__.tb_frame.f_code.co_name == "fails"


READ = 64  # completions of one read
MANY = 2 * READ + 20


def many_waiting(
    loop: Loop,
    source: Source,
    queue: ScriptedQueue,
    goes_on: Callable[[int], object],
    finished: Callable[[int], object] = id,
) -> "list[asyncio.Task[None]]":
    """Tasks, each with an operation; their completions are there, and take more than two reads.

    However busy the machine is, one callback may resume them all.
    """
    assert source.driver.waker is not None
    source.driver.waker.longest_run = 1 << 60

    async def wait(number: int) -> None:
        waiter = source.driver.create_waiter()

        def complete() -> None:
            finished(number)
            waiter.set_result(None)

        source.operations[1000 + number] = Completable(complete)
        source.prepare()
        await waiter
        goes_on(number)

    tasks = [loop.create_task(wait(number)) for number in range(MANY)]
    loop.run_until_complete(asyncio.sleep(0))
    for number in range(MANY):
        queue.complete(1000 + number)
    return tasks


def call_in(loop: Loop, callback: Callable[[], object]) -> None:
    """Call ``callback`` as the loop calls it; tasks cannot resume elsewhere from Python 3.14 on."""
    loop.call_soon(callback)
    loop.run_until_complete(asyncio.sleep(0))


def test_a_pass_outside_of_the_loop_loses_no_wake_up(loop: Loop, source: Source, queue: ScriptedQueue) -> None:
    """Hazard: from Python 3.14 on, a task that resumes there raises, and would never get its result."""
    resumed: list[int] = []
    tasks = many_waiting(loop, source, queue, resumed.append)
    descriptor_is_readable(source)
    loop.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks), 5))
    assert resumed == list(range(MANY))


@pytest.mark.parametrize("by", ["descriptor", "progress"])
def test_tasks_go_on_before_the_next_read(by: str, loop: Loop, source: Source, queue: ScriptedQueue) -> None:
    order: list[str] = []
    at_its_end: list[str] = []
    tasks = many_waiting(loop, source, queue, lambda _: order.append("on"), lambda _: order.append("finished"))

    def one_pass() -> None:
        if by == "progress":
            source.touch()
            run_scheduled_pass(source)
        else:
            descriptor_is_readable(source)
        at_its_end.extend(order)

    call_in(loop, one_pass)
    reads = (READ, READ, MANY - 2 * READ)
    assert at_its_end == [what for n in reads for what in ["finished"] * n + ["on"] * n]
    loop.run_until_complete(asyncio.gather(*tasks))


def test_task_that_goes_on_between_two_reads_may_close_everything(
    loop: Loop, source: Source, queue: ScriptedQueue
) -> None:
    finished: list[int] = []

    def goes_on(number: int) -> None:
        if number == 5:
            source.close()
            queue.close()

    tasks = many_waiting(loop, source, queue, goes_on, finished.append)
    done: list[bool] = []

    def one_pass() -> None:
        descriptor_is_readable(source)
        done.extend(task.done() for task in tasks)

    call_in(loop, one_pass)
    assert finished == list(range(READ))
    assert done == [number < READ for number in range(MANY)]
    for task in tasks[READ:]:
        task.cancel()
    loop.run_until_complete(asyncio.wait(tasks))


def test_interrupt_between_two_reads_costs_nobody_an_answer(loop: Loop, source: Source, queue: ScriptedQueue) -> None:
    def goes_on(number: int) -> None:
        if number == 5:
            raise KeyboardInterrupt

    tasks = many_waiting(loop, source, queue, goes_on)
    with pytest.raises(KeyboardInterrupt):
        call_in(loop, lambda: descriptor_is_readable(source))
    with pytest.raises(KeyboardInterrupt):
        tasks.pop(5).result()
    loop.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks), 5))
    assert source.statistics().completions == MANY
