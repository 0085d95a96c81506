"""Hazard: Ctrl-C, or a closed loop, after the provider accepted an operation. Its buffer must stay pinned.

If the operation were given up, the provider would still read the buffer, and its slot could name another operation.
"""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiofabric._core import FrameOutput
from aiofabric._ffi import constants
from aiofabric.cq.operation import State
from aiofabric.cq.source.source import Source
from aiofabric.testing import ScriptedQueue
from tests.cq.manual import Endpoint, ManualDriver

pytestmark = pytest.mark.once

AGAIN = -constants.FI_EAGAIN


class InterruptedDriver(ManualDriver):
    """Its `call_soon` raises the next of `errors`; `queues`: after it has queued the callback."""

    def __init__(self, *, queues: bool = False) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self.queues = queues

    def call_soon(self, callback: Callable[[], None]) -> None:
        if self.errors and not self.queues:
            raise self.errors.pop()
        super().call_soon(callback)
        if self.errors:
            raise self.errors.pop()

    call_soon_threadsafe = call_soon


@pytest.fixture
def interrupts() -> Iterator[list[int]]:
    """SIGINT is recorded instead of raised."""
    found: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGINT, before)


def interrupted(**how: Any) -> tuple[Endpoint, InterruptedDriver]:
    driver = InterruptedDriver(**how)
    return Endpoint(limit=1, source=Source(driver, ScriptedQueue())), driver


def is_pinned(memory: bytearray) -> bool:
    try:
        memory.append(0)
    except BufferError:
        return True
    return False


@pytest.mark.parametrize("queues", [False, True])
def test_ctrl_c_while_a_pass_is_scheduled_comes_after_the_call(queues: bool, interrupts: list[int]) -> None:
    endpoint, driver = interrupted(queues=queues)
    memory = bytearray(8)
    driver.errors.append(KeyboardInterrupt())
    transfer = endpoint.submit("sent", pins=memoryview(memory), length=8)
    assert interrupts == [signal.SIGINT], "the signal was raised again, not dropped"
    assert (endpoint.labels, transfer.state) == (["sent"], State.POSTED)
    assert is_pinned(memory)
    caller = endpoint.await_(transfer)
    endpoint.queue.complete(transfer.slot.address, length=8)
    driver.settle_down()
    assert caller.done
    assert not is_pinned(memory)
    assert endpoint.source.statistics().slots_in_use == 0
    endpoint.close()


def test_ctrl_c_while_a_pass_is_scheduled_loses_no_pass() -> None:
    """The loop may run again after Ctrl-C: the operation that was posted before must still be finished."""
    endpoint, driver = interrupted()
    transfer = endpoint.submit("before")
    caller = endpoint.await_(transfer)
    driver.settle_down()
    driver.errors.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        endpoint.source.touch()
    assert driver.soon, "no pass was scheduled, and none is left that would arm the descriptor"
    endpoint.queue.complete(transfer.slot.address)
    driver.settle_down()
    assert caller.done
    endpoint.close()


@pytest.mark.parametrize("error", [RuntimeError("Event loop is closed"), KeyboardInterrupt()], ids=["closed", "ctrl-c"])
def test_a_queued_operation_that_the_provider_accepted_is_not_finished_by_an_error(
    error: BaseException, interrupts: list[int]
) -> None:
    endpoint, driver = interrupted()
    memory = bytearray(8)
    first = endpoint.submit("first")
    second = endpoint.submit("second", pins=memoryview(memory), length=8)
    third = endpoint.submit("third")
    driver.settle_down()
    endpoint.submissions.limit = 2
    driver.errors.append(error)
    if isinstance(error, KeyboardInterrupt):
        endpoint.submissions.retry()
        assert interrupts == [signal.SIGINT]
    else:
        endpoint.source.queued.clear()  # as in a pass
        endpoint.submissions.is_waiting = False
        with pytest.raises(RuntimeError, match="closed"):
            endpoint.submissions.retry()
        assert endpoint.submissions in endpoint.source.queued
    assert endpoint.labels == ["first", "second"]
    assert (second.state, third.state) == (State.POSTED, State.QUEUED)
    assert second.error is None
    assert is_pinned(memory)
    endpoint.submissions.limit = 3
    for each in (first, second):
        endpoint.queue.complete(each.slot.address)
    endpoint.source.touch()
    driver.settle_down()
    assert (first.state, second.state, third.state) == (State.FINISHED, State.FINISHED, State.POSTED)
    endpoint.close()


def test_an_operation_that_the_provider_refuses_is_not_counted() -> None:
    endpoint = Endpoint(limit=1)
    endpoint.answers.extend([AGAIN, -constants.FI_EINVAL])
    transfer = endpoint.submit()
    assert (endpoint.source.interest, len(endpoint.source.operations), len(endpoint.submissions.posted)) == (0, 0, 0)
    endpoint.driver.settle_down()
    while transfer.state is State.QUEUED:
        endpoint.driver.pass_time()
        endpoint.driver.settle_down()
    assert isinstance(transfer.error, OSError)
    assert (endpoint.source.interest, len(endpoint.source.operations), len(endpoint.submissions.posted)) == (0, 0, 0)
    assert endpoint.source.statistics().slots_in_use == 0
    endpoint.close()


@pytest.mark.parametrize("queues", [False, True])
def test_ctrl_c_while_the_end_of_a_pass_is_scheduled_loses_no_frame(queues: bool) -> None:
    driver = InterruptedDriver(queues=queues)
    with ScriptedQueue() as queue:
        source = Source(driver, queue)
        sent: list[bytes] = []
        waiting: list[bytes] = []
        interrupts: list[bool] = []

        def pass_ends() -> None:
            interrupts.append(output.pass_ended())
            sent.extend(waiting)
            waiting.clear()

        output = FrameOutput(source, None, sent.append, pass_ends)
        assert output(b"first")
        driver.errors.append(KeyboardInterrupt())
        assert not output(b"second"), "the caller keeps it"
        waiting.append(b"second")
        driver.settle_down()
        assert sent == [b"first", b"second"]
        assert interrupts[0], "the transport raises the signal again"
        assert not any(interrupts[1:])
        source.close()


def test_a_loop_that_has_ended_schedules_no_frame() -> None:
    driver = InterruptedDriver()
    with ScriptedQueue() as queue:
        source = Source(driver, queue)
        output = FrameOutput(source, None, lambda _: None, lambda: None)
        assert output(b"first")
        driver.errors.append(RuntimeError("Event loop is closed"))
        with pytest.raises(RuntimeError, match="closed"):
            output(b"second")
        assert not output.scheduled
        source.close()
