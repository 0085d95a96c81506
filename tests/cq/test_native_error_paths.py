"""Hazard: an error in the native core prevents the steps that must follow, such as the wake-up of a waiter."""

from typing import Any, cast

import pytest

from aiofabric import Message
from aiofabric.cq.operation import Operation, State
from aiofabric.cq.slots import Slot
from tests.cq.manual import Endpoint

pytestmark = pytest.mark.once


class Refusing:
    """A region whose release fails."""

    def end_use(self) -> None:
        raise LookupError("end_use")


def left_behind(registrations: tuple[Any, ...] = ()) -> tuple[Operation, list[Any]]:
    """An operation whose caller was cancelled, and a waiter of another task."""
    told: list[Any] = []
    it = Operation("fi_test", None, Slot(None, 0), "pins", 0, registrations)
    it.state = State.ABANDONED
    it.notify = told.append
    return it, told


def test_a_failing_orphaned_call_still_drops_the_pins_and_tells_the_waiter() -> None:
    def fail(_: Operation) -> None:
        raise LookupError("orphaned")

    it, told = left_behind()
    it.orphaned = fail
    with pytest.raises(LookupError, match="orphaned"):
        it.finish()
    assert (it.pins, told, it.state) == (None, [it], State.FINISHED)


def test_a_region_that_cannot_be_released_still_has_the_waiter_told() -> None:
    it, told = left_behind((Refusing(),))
    with pytest.raises(LookupError, match="end_use"):
        it.finish()
    assert (it.pins, told) == (None, [it])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_of_two_failures_the_first_comes_out() -> None:
    def fail(_: Operation) -> None:
        raise LookupError("first")

    it, told = left_behind((Refusing(),))
    it.orphaned = fail
    with pytest.raises(LookupError, match="first"):
        it.finish()
    assert told == [it]


def test_an_operation_that_cannot_be_made_gives_its_slot_back() -> None:
    def kind(*_: object) -> Any:
        raise LookupError("kind")

    endpoint = Endpoint()
    for _ in range(3):
        with pytest.raises(LookupError, match="kind"):
            endpoint.submissions.submit("fi_test", endpoint.post, ("label",), None, 0, kind=cast("Any", kind))
    assert endpoint.source.statistics().slots_in_use == 0
    endpoint.close()


def test_a_message_hashes_as_bytes_do() -> None:
    for data in (b"", b"x", b"some text", bytes(1000)):
        message = Message(data)
        assert hash(message) == bytes.__hash__(message) == hash(data)
        assert {data: 1}[message] == 1


class Unwakeable:
    """A waiter whose loop is interrupted while it is told."""

    def done(self) -> bool:
        return False

    def set_result(self, _: object) -> None:
        raise LookupError("set_result")


def test_a_completion_that_cannot_wake_another_task_still_wakes_its_own() -> None:
    endpoint = Endpoint()
    memory = bytearray(4)
    transfer = endpoint.submit(pins=memoryview(memory), length=4)
    caller = endpoint.await_(transfer)
    unwakeable: Any = Unwakeable()
    waiter = endpoint.driver.create_waiter()
    endpoint.submissions.idle.extend([unwakeable, waiter])
    with pytest.raises(LookupError, match="set_result"):
        transfer.complete((transfer.slot.address, 0, 4, 0, 0, 0))
    endpoint.driver.settle_down()
    assert (transfer.state, caller.done, transfer.pins) == (State.FINISHED, True, None)
    memory.append(0)
    source = endpoint.source
    assert (source.interest, source.slots.in_use, len(source.operations)) == (0, 0, 0)
    assert not waiter.done()
    endpoint.submissions.idle.remove(unwakeable)
    endpoint.queue.complete(endpoint.submit().slot.address)
    endpoint.driver.settle_down()
    assert waiter.done(), "the other tasks that wait for an empty queue stay in the list"
    endpoint.close()
