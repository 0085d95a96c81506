"""The queue of a peer's writes, without I/O: who gets which event, what is lost, and how waiting ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Caps, Hints, NotSupportedError, QueueOverrunError, getinfo
from aiofabric._ffi import constants
from aiofabric.transport.rma.remote_writes import RemoteWriteQueue
from tests.cq.manual import Caller, PolledSource

pytestmark = pytest.mark.once

WRITE, DATA = constants.FI_REMOTE_WRITE, constants.FI_REMOTE_CQ_DATA


class Target:
    """An endpoint whose memory is written to; the test reports the writes."""

    def __init__(self, limit: int = 3, *, strict: bool = False, caps: Caps = Caps.MSG | Caps.RMA) -> None:
        self.source = PolledSource()
        self.source.interest = 0
        if strict:
            self.source.driver.checkpoint_if_cancelled = self.source.checkpoint
        self.unmatched = self.source.unmatched = SimpleNamespace(peer_wrote=None)  # type: ignore[attr-defined]
        self.info = getinfo(hints=Hints(caps=caps))[0]
        self.closed = False
        handle: Any = self
        self.queue = RemoteWriteQueue(handle, limit)

    def written(self, *numbers: int, flags: int = WRITE | DATA) -> None:
        for number in numbers:
            self.unmatched.peer_wrote((0, flags, 0, 0, number, 0))

    def call(self) -> Caller:
        return Caller(self.source.driver, self.queue.next())

    def taken(self) -> Any:
        """The number of the next write, or the error; the call must not wait."""
        caller = self.call()
        self.source.driver.settle_down()
        assert caller.done
        return caller.outcome[4] if isinstance(caller.outcome, tuple) else caller.outcome


@pytest.fixture
def target() -> Target:
    return Target()


def test_writes_are_taken_in_order(target: Target) -> None:
    target.written(1, 2)
    target.written(3)
    assert [target.taken() for _ in range(3)] == [1, 2, 3]
    assert (target.source.polls, target.source.yields) == (0, 0)


@pytest.mark.parametrize("flags", [WRITE, DATA, 0])
def test_other_accesses_are_no_events(flags: int, target: Target) -> None:
    target.written(1, flags=flags)
    target.written(2)
    assert target.taken() == 2


def test_a_poll_may_find_the_event(target: Target) -> None:
    target.source.at_polls.append(lambda: target.written(1))
    assert target.taken() == 1
    assert (target.source.polls, target.source.prepared) == (1, 0)


def test_a_task_waits_and_is_woken(target: Target) -> None:
    caller = target.call()
    assert not caller.done
    assert (target.source.interest, target.source.prepared, target.source.polls) == (1, 1, 1)
    target.written(1)
    assert target.source.wakes == 1
    target.source.driver.settle_down()
    assert caller.outcome[4] == 1
    assert target.source.interest == 0


def test_tasks_are_served_in_order(target: Target) -> None:
    first, second = target.call(), target.call()
    assert target.source.interest == 2
    target.written(1)
    target.source.driver.settle_down()
    assert (first.done, second.done) == (True, False)
    target.written(2)
    target.source.driver.settle_down()
    assert (first.outcome[4], second.outcome[4]) == (1, 2)
    assert (target.source.interest, target.source.wakes) == (0, 2)


def test_a_task_that_wakes_too_late_waits_again(target: Target) -> None:
    late = target.call()
    target.written(1)
    assert target.call().outcome[4] == 1  # of a task that came before the other one ran
    target.source.driver.settle_down()
    assert not late.done
    target.written(2)
    target.source.driver.settle_down()
    assert late.outcome[4] == 2


def test_a_cancelled_task_leaves_the_queue(target: Target) -> None:
    first, second = target.call(), target.call()
    first.cancel()
    target.source.driver.settle_down()
    assert first.done
    assert target.source.interest == 1
    target.written(1)
    assert target.source.wakes == 1
    target.source.driver.settle_down()
    assert second.outcome[4] == 1


def test_a_task_that_is_woken_and_cancelled_passes_the_event_on(target: Target) -> None:
    first, second = target.call(), target.call()
    first.cancel()
    target.written(1)  # wakes the first one, which is cancelled in this iteration
    target.source.driver.settle_down()
    assert second.outcome[4] == 1
    assert target.source.interest == 0


def test_a_cancelled_task_that_leaves_no_event_wakes_nobody(target: Target) -> None:
    first, second = target.call(), target.call()
    target.written(1)
    first.cancel()
    assert target.queue.events
    target.queue.events.clear()
    target.source.driver.settle_down()
    assert first.done
    assert not second.done
    assert target.source.wakes == 1


def test_nobody_is_woken_after_the_end_of_the_loop(target: Target) -> None:
    first, _second = target.call(), target.call()
    target.written(1)
    target.source.driver.is_closed = True  # its waiters take no results any more
    first.cancel()
    target.source.driver.settle_down()
    assert isinstance(first.outcome, asyncio.CancelledError)  # a waiter that was given a result would raise another one
    assert target.source.wakes == 1
    target.queue.end(lambda: ConnectionResetError("lost"))
    assert target.source.wakes == 1


# -- too many writes


def test_writes_above_the_limit_are_counted_in_their_place(target: Target) -> None:
    target.written(1, 2, 3, 4, 5)
    assert target.taken() == 1
    target.written(6)
    assert [target.taken() for _ in range(2)] == [2, 3]
    error = target.taken()
    assert isinstance(error, QueueOverrunError)
    assert "2 remote writes came while 3 waited" in str(error)
    assert target.taken() == 6
    target.written(7, 8, 9)
    assert [target.taken() for _ in range(3)] == [7, 8, 9]


def test_one_too_many_is_counted_as_one(target: Target) -> None:
    target.written(1, 2, 3, 4)
    for _ in range(3):
        target.taken()
    assert "1 remote writes came" in str(target.taken())


# -- checkpoints


def test_a_task_that_took_many_yields(target: Target) -> None:
    target.source.must_yield = True
    target.written(1)
    caller = target.call()
    assert not caller.done
    target.source.driver.settle_down()
    assert (caller.outcome[4], target.source.yields) == (1, 1)


def test_a_task_that_will_wait_need_not_yield(target: Target) -> None:
    target.source.must_yield = True
    target.call()
    assert (target.source.yields, target.source.prepared) == (0, 1)


def test_on_trio_each_call_is_a_checkpoint() -> None:
    target = Target(strict=True)
    target.written(1)
    caller = target.call()
    assert not caller.done
    target.source.driver.settle_down()
    assert (target.source.checkpoints, target.source.yields) == (1, 1)
    assert caller.outcome[4] == 1


# -- the end


def test_the_end_wakes_all_and_what_came_before_is_taken(target: Target) -> None:
    waiting = [target.call() for _ in range(2)]
    error = ConnectionResetError("lost")
    target.queue.end(lambda: error)
    target.source.driver.settle_down()
    assert [each.outcome for each in waiting] == [error, error]
    assert target.source.interest == 0


def test_events_before_the_end_are_taken_first(target: Target) -> None:
    target.written(1)
    error = ConnectionResetError("lost")
    target.queue.end(lambda: error)
    assert [target.taken(), target.taken(), target.taken()] == [1, error, error]
    assert target.source.polls == 0


def test_a_closed_endpoint_drops_its_events(target: Target) -> None:
    target.written(1)
    target.closed = True
    error = ConnectionResetError("closed")
    target.queue.end(lambda: error)
    assert target.taken() is error


# -- endpoints that report none


@pytest.mark.parametrize("caps", [Caps.MSG, Caps.MSG | Caps.RMA | Caps.READ])
def test_an_endpoint_that_peers_cannot_write_to_is_refused(caps: Caps) -> None:
    with pytest.raises(NotSupportedError):
        Target(caps=caps)
