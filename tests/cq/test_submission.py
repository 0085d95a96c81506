"""A submission queue: posted operations, queued ones, and their order if the provider is full or refuses."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import FabricError
from aiofabric._ffi import constants
from aiofabric.cq.operation import State
from aiofabric.cq.polling import Waiting
from tests.cq.manual import Caller, Endpoint

pytestmark = pytest.mark.once

LIMIT = 4
AGAIN = -constants.FI_EAGAIN


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    it = Endpoint(limit=LIMIT)
    yield it
    it.close()


def finish(endpoint: Endpoint, *addresses: int) -> None:
    for address in addresses:
        endpoint.queue.complete(address)
    endpoint.driver.settle_down()


def test_above_the_limit_operations_park_and_leave_in_order(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(20)]
    assert [t.state for t in transfers] == [State.POSTED] * LIMIT + [State.QUEUED] * 16
    assert endpoint.source.statistics().queued == 16
    # Completions out of order make room, too; the oldest queued operation is posted next.
    finish(endpoint, endpoint.posted[2], endpoint.posted[0])
    assert endpoint.labels == [0, 1, 2, 3, 4, 5]
    while endpoint.source.statistics().in_flight:
        finish(endpoint, *(t.slot.address for t in list(endpoint.submissions.posted)))
    assert endpoint.labels == list(range(20))
    assert {t.state for t in transfers} == {State.FINISHED}
    assert endpoint.source.statistics().slots_in_use == 0


def test_an_operation_that_may_not_be_queued_gives_back_its_slot(endpoint: Endpoint) -> None:
    for number in range(LIMIT):
        endpoint.submit(number)
    endpoint.submissions.shut = lambda: ConnectionResetError("the connection ended")
    for _ in range(3):
        with pytest.raises(ConnectionResetError, match="ended"):
            endpoint.submit("too late")
    assert endpoint.source.statistics().slots_in_use == LIMIT
    assert endpoint.source.statistics().queued == 0
    endpoint.submissions.shut = None


def test_new_operation_never_overtakes_a_queued_one(endpoint: Endpoint) -> None:
    endpoint.answers.append(AGAIN)
    first = endpoint.submit("first")
    second = endpoint.submit("second")
    assert (first.state, second.state) == (State.QUEUED, State.QUEUED)
    endpoint.driver.settle_down()
    assert endpoint.labels == ["first", "second"]


def test_refused_post_is_tried_again_with_growing_delays_and_nothing_else_to_wake_it(endpoint: Endpoint) -> None:
    """An RDM peer that is still connecting refuses, and its connection wakes no descriptor."""
    endpoint.answers.extend([AGAIN] * 8)
    transfer = endpoint.submit()
    delays = []
    endpoint.driver.settle_down()
    while transfer.state is State.QUEUED:
        delays.append(endpoint.driver.pass_time())
        endpoint.driver.settle_down()
    assert delays == sorted(delays)
    assert len(delays) >= 4
    assert transfer.state is State.POSTED


@pytest.mark.parametrize("waiting", [Waiting.FD, Waiting.ADAPTIVE])
def test_completion_read_outside_a_turn_lets_the_queued_go_on(waiting: Waiting) -> None:
    """Closing or accepting one endpoint drains the queue of all: the room made there must be used."""
    endpoint = Endpoint(limit=1, waiting=waiting)
    first = endpoint.submit("first")
    endpoint.submit("second")
    endpoint.driver.settle_down(10_000)
    endpoint.queue.complete(first.slot.address)
    endpoint.source.drain()
    endpoint.driver.settle_down(10_000)
    assert endpoint.labels == ["first", "second"]
    endpoint.close()


def test_refusal_at_once_raises_and_leaves_nothing_behind(endpoint: Endpoint) -> None:
    memory = bytearray(8)
    endpoint.answers.append(-constants.FI_EMSGSIZE)
    with pytest.raises(OSError) as caught:
        endpoint.submit(pins=memoryview(memory))
    assert caught.value.errno == constants.FI_EMSGSIZE
    del caught
    statistics = endpoint.source.statistics()
    assert (statistics.slots_in_use, statistics.in_flight, statistics.queued) == (0, 0, 0)
    memory.append(1)


def test_refusal_of_a_queued_operation_is_its_own_answer(endpoint: Endpoint) -> None:
    endpoint.answers.extend([AGAIN, 0, -constants.FI_EMSGSIZE, 0])
    endpoint.answers.appendleft(AGAIN)
    transfers = [endpoint.submit(n) for n in range(3)]
    callers = [endpoint.await_(t) for t in transfers]
    endpoint.driver.settle_down()
    while endpoint.driver.delays:
        endpoint.driver.pass_time()
        endpoint.driver.settle_down()
    finish(endpoint, *endpoint.posted)
    assert callers[0].outcome is transfers[0]
    assert callers[1].outcome.errno == constants.FI_EMSGSIZE
    assert callers[2].outcome is transfers[2]
    assert endpoint.source.statistics().slots_in_use == 0


def test_endpoints_of_one_queue_take_turns() -> None:
    first = Endpoint(limit=1)
    second = Endpoint(limit=1, source=first.source)
    for n in range(5):
        first.submit(("first", n))
        second.submit(("second", n))
    for _ in range(5):
        finish(first, *first.source.operations)
    assert first.labels == [("first", n) for n in range(5)]
    assert second.labels == [("second", n) for n in range(5)]
    assert not first.source.queued
    second.submissions.end(lambda: AssertionError())
    first.close()


def test_end_settles_everything_and_quarantines_what_was_posted(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n, pins=object()) for n in range(LIMIT + 3)]
    callers = [endpoint.await_(t) for t in transfers]
    endpoint.submissions.end(lambda: ConnectionResetError("gone"))
    endpoint.driver.settle_down()
    assert {str(c.outcome) for c in callers} == {"gone"}
    assert all(t.pins is None for t in transfers)
    statistics = endpoint.source.statistics()
    assert (statistics.in_flight, statistics.slots_in_use, statistics.quarantined) == (0, 0, LIMIT)
    assert statistics.queued == 0


def test_end_goes_on_when_a_callback_raises(endpoint: Endpoint) -> None:
    def stumble(_: object) -> None:
        raise ValueError("the callback's own")

    transfers = [endpoint.submit(n) for n in range(LIMIT + 2)]
    transfers[0].notify = transfers[LIMIT].notify = stumble
    endpoint.submissions.end(lambda: ConnectionResetError("gone"))
    assert {t.state for t in transfers} == {State.FINISHED}
    assert len(endpoint.driver.reports) == 2


def test_end_after_the_loop_was_closed(endpoint: Endpoint) -> None:
    """The waiters belong to the loop; on asyncio, waking one after the loop's end raises."""
    transfer = endpoint.submit()
    endpoint.await_(transfer)
    transfer.notify = None  # as if its caller were of a closed loop
    endpoint.driver.is_closed = True
    endpoint.submissions.end(lambda: ConnectionResetError("gone"))
    assert transfer.state is State.FINISHED


def test_interest_ends_with_the_last_operation() -> None:
    """A queue without a descriptor is polled rarely once no operation needs it."""
    endpoint = Endpoint(limit=2, descriptor=False)
    source = endpoint.source
    transfers = [endpoint.submit(n) for n in range(5)]
    callers = [endpoint.await_(t) for t in transfers]
    callers[4].cancel()
    callers[0].cancel()
    endpoint.driver.settle_down(10_000)
    for _ in range(20):
        for address in list(source.operations):
            endpoint.queue.complete(address)
        if endpoint.driver.delays:
            endpoint.driver.pass_time()
        endpoint.driver.settle_down(10_000)
    assert source.interest == 0
    assert [delay for delay, _ in endpoint.driver.delays] == [0.005]
    endpoint.close()


@pytest.mark.parametrize("way", ["completion", "cancel", "refusal", "end"])
def test_a_task_that_waits_for_an_empty_queue_is_woken(endpoint: Endpoint, way: str) -> None:
    endpoint.answers.append(AGAIN)
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    empty = Caller(endpoint.driver, endpoint.submissions.drained())
    room = Caller(endpoint.driver, endpoint.submissions.all_posted())
    assert not empty.done
    assert not room.done
    if way == "cancel":
        endpoint.answers.extend([AGAIN] * 2)
        endpoint.driver.iterate()
        caller.cancel()
    elif way == "refusal":
        endpoint.answers.append(-constants.FI_EMSGSIZE)
    elif way == "end":
        endpoint.submissions.end(lambda: ConnectionResetError())
    else:
        endpoint.driver.settle_down()
        assert room.done
        assert not empty.done
        finish(endpoint, transfer.slot.address)
    endpoint.driver.settle_down()
    assert empty.done
    assert room.done
    assert caller.done


def test_queued_operations_end_in_the_next_pass_after_the_peer_can_take_no_more(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(LIMIT + 1)]
    endpoint.submissions.close_off(lambda: ConnectionResetError("shut"))
    endpoint.driver.settle_down()
    assert [t.state for t in transfers] == [State.POSTED] * LIMIT + [State.FINISHED]
    assert str(transfers[LIMIT].error) == "shut"


def test_the_end_wakes_a_task_that_waits_for_posted_operations(endpoint: Endpoint) -> None:
    endpoint.submit()
    empty = Caller(endpoint.driver, endpoint.submissions.drained())
    endpoint.driver.settle_down()
    assert not empty.done
    endpoint.submissions.end(lambda: ConnectionResetError())
    endpoint.driver.settle_down()
    assert empty.done


@pytest.mark.parametrize("way", ["end", "hand_over", "fail_waiting"])
def test_operations_end_after_their_loop_was_closed_and_wake_no_task(endpoint: Endpoint, way: str) -> None:
    transfers = [endpoint.submit(n) for n in range(2 * LIMIT)]
    callers = [endpoint.await_(transfer) for transfer in transfers]
    callers.append(Caller(endpoint.driver, endpoint.submissions.drained()))
    callers.append(Caller(endpoint.driver, endpoint.submissions.all_posted()))
    endpoint.driver.settle_down()
    endpoint.driver.is_closed = True
    successor = Endpoint(source=endpoint.source).submissions
    if way == "hand_over":
        endpoint.submissions.hand_over(lambda: ConnectionResetError("ended"), successor)
        successor.end(lambda: ConnectionResetError("ended"))
    elif way == "fail_waiting":
        endpoint.submissions.fail_waiting(lambda: ConnectionResetError("ended"))
    endpoint.submissions.end(lambda: ConnectionResetError("ended"))
    assert {(transfer.state, str(transfer.error)) for transfer in transfers} == {(State.FINISHED, "ended")}
    assert not any(caller.done for caller in callers)
    assert endpoint.driver.reports == []
    assert (endpoint.source.slots.in_use, endpoint.source.statistics().abandoned) == (0, 0)


def test_queued_operations_that_fail_give_their_slots_back(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(2 * LIMIT)]
    endpoint.submissions.fail_waiting(lambda: ConnectionResetError("ended"))
    assert [t.state for t in transfers] == [State.POSTED] * LIMIT + [State.FINISHED] * LIMIT
    assert [str(t.error) for t in transfers[LIMIT:]] == ["ended"] * LIMIT
    assert endpoint.source.statistics().slots_in_use == LIMIT


def test_a_receive_that_a_write_consumed_gives_its_slot_back_if_it_cannot_be_posted_again(endpoint: Endpoint) -> None:
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    endpoint.submissions.consumed(transfer)
    assert endpoint.posted == [transfer.slot.address] * 2
    assert (transfer.state, endpoint.source.slots.in_use) == (State.POSTED, 1)
    endpoint.answers.append(-constants.FI_EMSGSIZE)
    endpoint.submissions.consumed(transfer)
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, FabricError)
    assert caller.outcome.errno == constants.FI_EMSGSIZE
    assert (list(endpoint.submissions.posted), endpoint.source.slots.in_use) == ([], 0)


def test_every_task_that_waits_for_the_posts_is_woken(endpoint: Endpoint) -> None:
    for number in range(LIMIT + 1):
        endpoint.submit(number)
    waiting = [Caller(endpoint.driver, endpoint.submissions.all_posted()) for _ in range(3)]
    endpoint.driver.settle_down()
    assert [caller.done for caller in waiting] == [False] * 3
    finish(endpoint, endpoint.posted[0])
    assert [caller.done for caller in waiting] == [True] * 3


def test_a_call_that_raises_leaves_nothing_behind(endpoint: Endpoint) -> None:
    """An argument that is no C number; a stale entry would take the completion of the slot's next operation."""

    def fail(*_: object) -> int:
        raise LookupError("call")

    memory = bytearray(8)
    with pytest.raises(LookupError, match="call"):
        endpoint.submissions.submit("fi_test", fail, (), memoryview(memory), 8)
    source = endpoint.source
    assert (len(source.operations), source.interest, source.slots.in_use) == (0, 0, 0)
    memory.append(0)


def test_a_call_that_raises_is_reported_although_its_operation_is_no_longer_posted(endpoint: Endpoint) -> None:
    """Removing it a second time is no error that replaces the first."""

    def fail(*_: object) -> int:
        endpoint.submissions.posted.clear()
        raise LookupError("call")

    with pytest.raises(LookupError, match="call"):
        endpoint.submissions.submit("fi_test", fail, (), None, 0)
    assert (len(endpoint.source.operations), endpoint.source.slots.in_use) == (0, 0)


def test_ctrl_c_in_one_completion_does_not_skip_those_behind_it(endpoint: Endpoint) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    transfers = [endpoint.submit() for _ in range(3)]
    transfers[0].notify = interrupt
    callers = [endpoint.await_(each) for each in transfers[1:]]
    for each in transfers:
        endpoint.queue.complete(each.slot.address)
    with pytest.raises(KeyboardInterrupt):
        endpoint.source.drain()
    assert [each.state for each in transfers] == [State.FINISHED] * 3
    endpoint.driver.settle_down()
    assert all(each.done for each in callers)
    assert endpoint.source.slots.in_use == 0


def test_a_cancel_that_comes_with_the_error_of_a_dismissed_operation_leaves_it_abandoned(endpoint: Endpoint) -> None:
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    endpoint.submissions.dismiss(transfer, ConnectionResetError("dismissed"))
    caller.cancel()
    endpoint.driver.settle_down()
    assert isinstance(caller.outcome, asyncio.CancelledError)
    assert (transfer.state, endpoint.asked) == (State.ABANDONED, [])
    assert endpoint.source.statistics().abandoned == 1
    finish(endpoint, transfer.slot.address)
    assert endpoint.source.statistics().abandoned == 0


def test_queued_operations_get_the_error_of_a_queue_that_cannot_be_waited_for(endpoint: Endpoint) -> None:
    """Nothing is posted: the provider refused the first one."""

    def fails() -> bool:
        raise FabricError(constants.FI_EIO, "fi_trywait")

    endpoint.answers.extend([AGAIN] * 10)
    callers = [endpoint.await_(endpoint.submit(n)) for n in range(2)]
    endpoint.queue.quiet = fails  # type: ignore[method-assign]
    endpoint.driver.settle_down()
    assert [(c.outcome.errno, c.outcome.call) for c in callers] == [(constants.FI_EIO, "fi_trywait")] * 2
    assert callers[0].outcome is not callers[1].outcome
    assert (endpoint.driver.reports, endpoint.labels) == ([], [])


def test_an_operation_that_may_not_be_queued_lets_its_memory_and_registrations_go(endpoint: Endpoint) -> None:
    ended: list[str] = []
    region: Any = SimpleNamespace(begin_use=lambda: None, end_use=lambda: ended.append("use"))
    memory = bytearray(8)
    endpoint.submissions.close_off(lambda: ConnectionResetError("shut"))
    with pytest.raises(ConnectionResetError) as caught:
        endpoint.submissions.submit("fi_test", endpoint.post, ("late",), memoryview(memory), 8, (region,))
    assert ended == ["use"]
    del caught
    memory.append(0)
    assert (endpoint.labels, endpoint.source.statistics().queued) == ([], 0)


@pytest.mark.parametrize("kind", ["drained", "all_posted"])
def test_a_task_that_waits_for_an_empty_queue_has_it_armed_again_after_a_poll(kind: str) -> None:
    endpoint = Endpoint(limit=1, waiting=Waiting.ADAPTIVE)
    endpoint.submit("first")
    if kind == "all_posted":
        endpoint.submit("second")
    endpoint.driver.settle_down(10_000)
    assert endpoint.source.armed
    endpoint.source.loop_iterated()
    endpoint.source.poll()  # which finds nothing, and disarms the queue
    assert not endpoint.source.armed
    assert not endpoint.driver.soon
    empty = Caller(endpoint.driver, getattr(endpoint.submissions, kind)())
    endpoint.driver.settle_down(10_000)
    assert endpoint.source.armed
    assert not empty.done
    finish(endpoint, endpoint.posted[0])
    assert empty.done
    endpoint.close()


def test_only_the_chosen_queued_operations_fail_and_the_others_keep_their_order(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(LIMIT + 4)]
    endpoint.submissions.fail_waiting(lambda: ConnectionResetError("chosen"), lambda it: it is transfers[LIMIT + 1])
    assert str(transfers[LIMIT + 1].error) == "chosen"
    assert list(endpoint.submissions.waiting) == [transfers[LIMIT], *transfers[LIMIT + 2 :]]
    assert endpoint.source.statistics().slots_in_use == LIMIT + 3


@pytest.mark.parametrize("way", ["fail_waiting", "hand_over"])
def test_a_task_that_waits_for_an_empty_queue_is_woken_when_its_operations_leave_it(
    endpoint: Endpoint, way: str
) -> None:
    for number in range(LIMIT + 1 if way == "fail_waiting" else LIMIT):
        endpoint.submit(number)
    kind = endpoint.submissions.all_posted if way == "fail_waiting" else endpoint.submissions.drained
    waiting = Caller(endpoint.driver, kind())
    endpoint.driver.settle_down()
    assert not waiting.done
    woken = endpoint.source.wakes
    successor = Endpoint(source=endpoint.source).submissions
    if way == "fail_waiting":
        endpoint.submissions.fail_waiting(lambda: ConnectionResetError("ended"))
    else:
        endpoint.submissions.hand_over(lambda: ConnectionResetError("ended"), successor)
    assert endpoint.source.wakes == woken + 1  # it counts as one of the tasks that have work
    endpoint.driver.settle_down()
    assert waiting.done
    assert not endpoint.submissions.idle
    successor.end(lambda: ConnectionResetError("ended"))


def test_an_ended_queue_has_no_operations_left(endpoint: Endpoint) -> None:
    for number in range(LIMIT + 1):
        endpoint.submit(number)
    endpoint.submissions.end(lambda: ConnectionResetError("ended"))
    assert (len(endpoint.submissions.posted), len(endpoint.submissions.waiting)) == (0, 0)


def test_a_receive_that_a_write_consumed_is_not_posted_on_a_closed_endpoint(endpoint: Endpoint) -> None:
    """Flushed completions are read after fi_close."""
    transfer = endpoint.submit()
    endpoint.native_open = False
    endpoint.submissions.consumed(transfer)
    assert endpoint.posted == [transfer.slot.address]
    assert transfer.state is State.POSTED


def test_a_slot_and_a_kind_of_another_type_are_refused() -> None:
    endpoint = Endpoint(limit=1)
    wrong: Any
    function: Any = print
    for wrong in ({"slot": 5}, {"kind": lambda *_: 5}, {"kind": int}, {"kind": object}):
        with pytest.raises(TypeError):
            endpoint.submissions.submit("wrong", function, (), None, 0, **wrong)
    assert endpoint.source.statistics().slots_in_use == 0
    endpoint.close()
