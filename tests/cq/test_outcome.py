"""The awaitable of an operation: its result, its success alone, and the end if no task awaits it any more."""

import asyncio
from collections.abc import Iterator

import anyio
import pytest

from aiofabric.cq.loops.drivers import current_driver
from aiofabric.cq.operation import State
from aiofabric.cq.polling import Waiting
from aiofabric.cq.source.source import Source
from aiofabric.cq.submission import SubmissionQueue
from aiofabric.testing import ScriptedQueue
from tests.cq.manual import Caller, Endpoint
from tests.cq.test_cancel_of_a_task_that_is_always_answered import Owner

pytestmark = pytest.mark.once


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    it = Endpoint()
    yield it
    it.close()


def test_it_is_awaited_once(endpoint: Endpoint) -> None:
    transfer = endpoint.submit()
    outcome = endpoint.submissions.outcome(transfer)
    caller = Caller(endpoint.driver, outcome)
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert caller.outcome is transfer
    assert isinstance(Caller(endpoint.driver, outcome).outcome, RuntimeError)


def test_never_awaited_it_changes_nothing(endpoint: Endpoint) -> None:
    transfer = endpoint.submit()
    interest = endpoint.source.interest
    endpoint.submissions.outcome(transfer).close()
    del transfer
    assert endpoint.source.interest == interest
    assert endpoint.source.statistics().abandoned == 0


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_left_behind_by_a_task_that_never_ends_it_is_abandoned(how: str, endpoint: Endpoint) -> None:
    transfer = endpoint.submit(pins=object())
    interest = endpoint.source.interest
    outcome = endpoint.submissions.outcome(transfer)
    next(iter(outcome.__await__()))
    assert endpoint.source.interest == interest + 1
    if how == "closed":
        outcome.close()
    del outcome
    assert transfer.state is State.ABANDONED
    assert transfer.pins is not None
    assert (endpoint.source.interest, endpoint.source.statistics().abandoned) == (interest, 1)
    assert endpoint.asked == []  # no native call where a collector runs


def test_cancelled_again_while_the_provider_is_asked_it_is_abandoned() -> None:
    """asyncio's own cancel goes through the shield that the wait for the provider has."""

    async def main() -> None:
        with ScriptedQueue() as queue:
            source = Source(current_driver(), queue, waiting=Waiting.FD)
            submissions = SubmissionQueue(source, Owner(), 4, receives=True, grace=60.0)
            transfer = submissions.submit("fi_test", lambda _: 0, (), object(), 0)
            interest = source.interest
            task = asyncio.ensure_future(submissions.outcome(transfer))
            await asyncio.sleep(0)
            task.cancel("first")
            await asyncio.sleep(0)
            assert transfer.state is State.CANCELLING
            assert not task.done()
            task.cancel("second")
            with pytest.raises(asyncio.CancelledError, match="second"):
                await task
            assert (transfer.state, source.interest) == (State.ABANDONED, interest)
            submissions.end(ConnectionResetError)
            source.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("length", "errno", "well"), [(0, 0, True), (5, 0, False), (0, 5, False)], ids=["fits", "too long", "failed"]
)
def test_arrival_tells_whether_it_came_well(length: int, errno: int, well: bool, endpoint: Endpoint) -> None:
    kept: list[int] = []
    transfer = endpoint.submit(pins=object())
    caller = Caller(endpoint.driver, endpoint.submissions.arrives(transfer, lambda it: kept.append(it.length)))
    if errno:
        endpoint.queue.fail(transfer.slot.address, errno)
    else:
        endpoint.queue.complete(transfer.slot.address, length=length)
    endpoint.driver.settle_down()
    assert caller.outcome is well
    assert kept == []


def test_message_for_a_caller_who_was_cancelled_is_kept_once_and_what_keeps_it_is_released(endpoint: Endpoint) -> None:
    kept: list[int] = []
    transfer = endpoint.submit(pins=object())
    caller = Caller(endpoint.driver, endpoint.submissions.arrives(transfer, lambda it: kept.append(it.length)))
    endpoint.queue.complete(transfer.slot.address, length=9)
    endpoint.source.progress()
    caller.cancel()
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, asyncio.CancelledError)
    assert (kept, transfer.orphaned) == ([9], None)


@pytest.mark.anyio
async def test_cancel_comes_out_when_the_grace_of_a_silent_provider_is_over() -> None:
    with ScriptedQueue() as queue:
        source = Source(current_driver(), queue, waiting=Waiting.FD)
        submissions = SubmissionQueue(source, Owner(), 4, receives=True, grace=0.01)
        transfer = submissions.submit("fi_test", lambda _: 0, (), object(), 0)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()

                tasks.start_soon(cancel)
                await submissions.outcome(transfer)
                raise AssertionError("there was no answer")
        assert scope.cancelled_caught
        assert transfer.state is State.ABANDONED
        submissions.end(ConnectionResetError)
        source.close()


def test_arrival_that_is_never_awaited_leaves_its_receive_behind(endpoint: Endpoint) -> None:
    """Ctrl-C before the await: the message is kept."""
    kept: list[int] = []
    transfer = endpoint.submit(pins=object())
    endpoint.submissions.arrives(transfer, lambda it: kept.append(it.length)).close()
    assert transfer.state is State.ABANDONED
    endpoint.queue.complete(transfer.slot.address, length=9)
    endpoint.driver.settle_down()
    assert kept == [9]


def test_exception_thrown_before_the_first_step_is_what_comes_out(endpoint: Endpoint) -> None:
    outcome = endpoint.submissions.outcome(endpoint.submit())
    with pytest.raises(LookupError):
        outcome.throw(LookupError())


@pytest.mark.anyio
async def test_a_scope_that_stays_cancelled_leaves_a_provider_its_grace() -> None:
    states: list[State] = []
    with ScriptedQueue() as queue:
        source = Source(current_driver(), queue, waiting=Waiting.FD)
        submissions = SubmissionQueue(source, Owner(), 4, receives=True, grace=60)
        transfer = submissions.submit("fi_test", lambda _: 0, (), object(), 0)
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def wait() -> None:
                with scope:
                    await submissions.outcome(transfer)

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            states.append(transfer.state)
            queue.complete(transfer.slot.address)
        assert scope.cancelled_caught
        assert (states, transfer.state, source.abandoned) == ([State.CANCELLING], State.FINISHED, 0)
        source.close()
