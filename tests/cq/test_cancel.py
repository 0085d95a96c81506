"""Hazard: a caller is cancelled, at every point at which that is possible. No message is lost, and no result is given
twice.
"""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from aiofabric._ffi import constants
from aiofabric.cq.operation import Operation, State
from aiofabric.cq.submission import Transfer
from tests.cq.manual import Caller, Endpoint

pytestmark = pytest.mark.once

CANCELED = constants.FI_ECANCELED


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    it = Endpoint()
    yield it
    it.close()


@pytest.fixture
def kept() -> list[int]:
    """Lengths of messages that arrived for cancelled callers."""
    return []


@pytest.fixture
def receive(endpoint: Endpoint, kept: list[int]) -> Callable[[], tuple[Transfer, Caller]]:
    def keep(transfer: Operation) -> None:
        kept.append(transfer.length)

    def start() -> tuple[Transfer, Caller]:
        transfer = endpoint.submit(pins=object())
        transfer.orphaned = keep
        return transfer, endpoint.await_(transfer)

    return start


Receive = Callable[[], tuple[Transfer, Caller]]


def test_provider_answers_the_cancel(endpoint: Endpoint, receive: Receive, kept: list[int]) -> None:
    transfer, caller = receive()
    endpoint.on_cancel = lambda address: endpoint.queue.fail(address, CANCELED)
    caller.cancel()
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, asyncio.CancelledError)
    assert endpoint.asked == [transfer.slot.address]
    assert (transfer.state, kept) == (State.FINISHED, [])
    assert endpoint.source.statistics().abandoned == 0


def test_completion_wins_the_race_against_the_cancel(endpoint: Endpoint, receive: Receive, kept: list[int]) -> None:
    """The provider answers fi_cancel with the message."""
    _, caller = receive()
    endpoint.on_cancel = lambda address: endpoint.queue.complete(address, length=7)
    caller.cancel()
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, asyncio.CancelledError)
    assert kept == [7]


def test_cancel_comes_after_the_answer_and_before_the_caller_runs(
    endpoint: Endpoint, receive: Receive, kept: list[int]
) -> None:
    transfer, caller = receive()
    endpoint.queue.complete(transfer.slot.address, length=9)
    endpoint.source.progress()
    assert transfer.state is State.FINISHED
    caller.cancel()
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, asyncio.CancelledError)
    assert kept == [9]
    assert endpoint.asked == []


def test_cancel_while_an_answer_at_once_lets_the_loop_go_round(
    endpoint: Endpoint, receive: Receive, kept: list[int]
) -> None:
    """The result arrives inside the call, which then lets the loop iterate: no task has the message yet."""
    for length in range(200):
        transfer = endpoint.submit(pins=object())
        transfer.orphaned = lambda t: kept.append(t.length)
        endpoint.queue.complete(transfer.slot.address, length=length)
        endpoint.source.drain()
        caller = endpoint.await_(transfer)
        if not caller.done:
            caller.cancel()
            endpoint.driver.settle_down()
            assert isinstance(caller.outcome, asyncio.CancelledError)
            assert kept == [length]
            return
    raise AssertionError("200 answers in a row without a loop iteration")


def test_silent_provider_keeps_the_operation_until_it_answers(
    endpoint: Endpoint, receive: Receive, kept: list[int]
) -> None:
    transfer, caller = receive()
    caller.cancel()
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, asyncio.CancelledError)
    assert transfer.state is State.ABANDONED
    assert transfer.pins is not None
    statistics = endpoint.source.statistics()
    assert (statistics.abandoned, statistics.slots_in_use) == (1, 1)
    endpoint.queue.complete(transfer.slot.address, length=3)
    endpoint.driver.settle_down()
    statistics = endpoint.source.statistics()
    assert (statistics.abandoned, statistics.slots_in_use, kept) == (0, 0, [3])
    assert transfer.pins is None


def test_operations_of_an_ended_peer_stay_with_its_successor_until_the_provider_answers(endpoint: Endpoint) -> None:
    successor = Endpoint(source=endpoint.source)
    posted = [(transfer := endpoint.submit(pins=object()), endpoint.await_(transfer)) for _ in range(4)]
    queued = [endpoint.await_(endpoint.submit(pins=object())) for _ in range(2)]
    posted[0][1].cancel()  # the provider does not answer
    endpoint.driver.settle_down()
    endpoint.submissions.hand_over(lambda: ConnectionResetError("gone"), successor.submissions)
    endpoint.driver.settle_down()
    assert isinstance(posted[0][1].outcome, asyncio.CancelledError)
    for caller in (*(caller for _, caller in posted[1:]), *queued):
        assert isinstance(caller.outcome, ConnectionResetError)
    assert not endpoint.submissions.posted
    assert list(successor.submissions.posted) == [transfer for transfer, _ in posted]
    assert {transfer.state for transfer, _ in posted} == {State.ABANDONED}
    assert all(transfer.pins is not None for transfer, _ in posted)
    assert sorted(endpoint.asked) == sorted(transfer.slot.address for transfer, _ in posted)
    statistics = endpoint.source.statistics()
    assert (statistics.abandoned, statistics.slots_in_use) == (4, 4)
    for transfer, _ in posted:
        endpoint.queue.complete(transfer.slot.address, length=3)
    endpoint.driver.settle_down()
    statistics = endpoint.source.statistics()
    assert (statistics.abandoned, statistics.slots_in_use) == (0, 0)
    assert not successor.submissions.posted
    assert all(transfer.pins is None for transfer, _ in posted)


def test_silent_provider_and_close(endpoint: Endpoint, receive: Receive, kept: list[int]) -> None:
    transfer, caller = receive()
    caller.cancel()
    endpoint.driver.settle_down()
    endpoint.submissions.end(lambda: ConnectionResetError())
    assert transfer.state is State.FINISHED
    assert endpoint.source.statistics().abandoned == 0
    endpoint.queue.complete(transfer.slot.address, length=3)  # the last echo
    endpoint.driver.settle_down()
    statistics = endpoint.source.statistics()
    assert (statistics.stale, statistics.quarantined, kept) == (1, 1, [])


def test_cancelled_while_queued_it_is_never_posted(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(6)]
    callers = [endpoint.await_(t) for t in transfers]
    callers[4].cancel()
    endpoint.driver.settle_down()
    assert isinstance(callers[4].outcome, asyncio.CancelledError)
    assert transfers[4].state is State.FINISHED
    for transfer in transfers[:4]:
        endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert endpoint.labels == [0, 1, 2, 3, 5]
    assert endpoint.asked == []


def test_cancelled_while_the_provider_refuses_it(endpoint: Endpoint) -> None:
    endpoint.answers.extend([-constants.FI_EAGAIN] * 3)
    transfer = endpoint.submit("refused")
    caller = endpoint.await_(transfer)
    endpoint.driver.settle_down()
    caller.cancel()
    endpoint.driver.settle_down()
    while endpoint.driver.delays:
        endpoint.driver.pass_time()
        endpoint.driver.settle_down()
    assert endpoint.labels == []
    assert endpoint.source.statistics().slots_in_use == 0
    endpoint.answers.clear()
    endpoint.submit("next")
    assert endpoint.labels == ["next"]


def test_everybody_leaves_at_once(endpoint: Endpoint, receive: Receive, kept: list[int]) -> None:
    """Results and cancels in one iteration, in every order."""
    pairs = [receive() for _ in range(4)]
    endpoint.on_cancel = lambda address: endpoint.queue.complete(address, length=address)
    endpoint.queue.complete(pairs[1][0].slot.address, length=pairs[1][0].slot.address)
    for _, caller in pairs:
        caller.cancel()
    endpoint.driver.settle_down()
    assert sorted(kept) == sorted(t.slot.address for t, _ in pairs)
    assert endpoint.source.statistics().slots_in_use == 0


def test_task_that_the_collector_finds_makes_no_native_call(
    endpoint: Endpoint, receive: Receive, kept: list[int]
) -> None:
    transfer, caller = receive()
    caller.collect()
    assert endpoint.asked == []
    assert transfer.state is State.ABANDONED
    endpoint.source.touch()
    endpoint.queue.complete(transfer.slot.address, length=5)
    endpoint.driver.settle_down()
    assert kept == [5]


def test_an_answer_to_the_cancel_that_is_there_at_once_is_read_at_once(endpoint: Endpoint, receive: Receive) -> None:
    """tcp completes the operation within fi_cancel."""
    transfer, caller = receive()
    endpoint.driver.settle_down()
    endpoint.on_cancel = lambda address: endpoint.queue.fail(address, CANCELED)
    caller.cancel()
    endpoint.driver.iterate()
    assert (caller.done, transfer.state) == (True, State.FINISHED)


def test_a_cancel_is_followed_by_a_pass_that_arms_the_queue(endpoint: Endpoint, receive: Receive) -> None:
    def cancel(_: int) -> None:
        endpoint.queue.armed = False  # as a call may do that signals the queue

    _, caller = receive()
    endpoint.driver.settle_down()
    endpoint.on_cancel = cancel
    caller.cancel()
    endpoint.driver.settle_down()
    assert caller.done
    assert endpoint.queue.armed
