"""The queue of a listener's requests: who gets which, what is rejected, and what the counters of the listener count."""

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import Address, ConnectionRequest, FabricError, Listener
from aiofabric._ffi import constants
from aiofabric.cm.requests import RequestQueue
from aiofabric.observe import ended
from tests.cq.manual import Caller, Endpoint, ManualDriver

pytestmark = pytest.mark.once

COUNTED = ("requests", "accepted", "rejected", "overflowed", "cut_off")


class Queue(RequestQueue):
    """A listener without a provider; it records the rejections."""

    def __init__(self, backlog: int) -> None:
        self.endpoint = Endpoint()
        super().__init__(None, None, self.endpoint.source, backlog)  # type: ignore[arg-type]
        self.refused: list[tuple[ConnectionRequest, bytes]] = []
        self.unanswerable = False
        self.natively_closed = 0
        self.released_at_last = 0
        self.on_release = self._last

    def _last(self) -> None:
        self.released_at_last += 1

    @property
    def driver(self) -> ManualDriver:
        return self.endpoint.driver

    def address(self) -> Address:
        return Address.from_ip("127.0.0.1", 1)

    def refuse(self, request: ConnectionRequest, data: bytes) -> None:
        self.refused.append((request, data))
        if self.unanswerable:
            raise FabricError(constants.FI_ENOTCONN, "fi_reject")

    def release_native(self) -> None:
        self.natively_closed += 1

    def request(self, param: bytes = b"") -> ConnectionRequest:
        info: Any = SimpleNamespace(fabric_attr=SimpleNamespace(prov_name="none"))
        return ConnectionRequest(self, info, param, None)

    def come(self, count: int = 1) -> list[ConnectionRequest]:
        requests = [self.request() for _ in range(count)]
        for request in requests:
            self.arrived(request)
        return requests

    def counted(self) -> tuple[int, ...]:
        return tuple(self.counts[name] for name in COUNTED)


class Listening:
    """A listener and its queue."""

    def __init__(self, backlog: int) -> None:
        self.queue = Queue(backlog)
        self.accepted: list[tuple[ConnectionRequest, bytes, Any]] = []
        info: Any = None
        self.listener = Listener(self.queue, info, self.accept)

    async def accept(self, request: ConnectionRequest, data: bytes, options: Any) -> Any:
        self.accepted.append((request, data, options))

    def task(self) -> Caller:
        return Caller(self.queue.driver, self.listener.accept_request())


@pytest.fixture
def opened() -> Iterator[Callable[[int], Listening]]:
    """Opens a listener that keeps a number of requests."""
    every: list[Listening] = []

    def open_one(backlog: int) -> Listening:
        every.append(Listening(backlog))
        return every[-1]

    yield open_one
    for each in every:
        each.listener.close()
        each.queue.endpoint.close()


@pytest.fixture
def listening(opened: Callable[[int], Listening]) -> Listening:
    return opened(10)


@pytest.fixture
def queue(listening: Listening) -> Queue:
    return listening.queue


def test_a_full_queue_of_requests_rejects_more_and_warns_once(
    opened: Callable[[int], Listening], caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(2).queue
    requests = queue.come(5)
    assert list(queue.pending) == requests[:2]
    assert queue.refused == [(request, b"") for request in requests[2:]]
    assert queue.counted() == (5, 0, 3, 3, 0)
    assert [request.answered for request in requests] == [False, False, True, True, True]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages[0].startswith("2 requests wait at the listener opened at")


def test_a_request_goes_to_the_task_that_waits_even_if_the_queue_may_keep_none(
    opened: Callable[[int], Listening],
) -> None:
    listening = opened(0)
    task = listening.task()
    requests = listening.queue.come(2)
    listening.queue.driver.settle_down()
    assert task.outcome is requests[0]
    assert listening.queue.refused == [(requests[1], b"")]


def test_a_request_that_arrived_before_its_task_lets_the_loop_iterate_first(listening: Listening) -> None:
    (request,) = listening.queue.come()
    task = listening.task()
    assert not task.done
    listening.queue.driver.settle_down()
    assert task.outcome is request
    assert not listening.queue.pending
    assert not request.answered


def test_a_listener_that_closes_in_that_iteration_gives_its_request_to_no_task(listening: Listening) -> None:
    listening.queue.come()
    task = listening.task()
    listening.listener.close()
    listening.queue.driver.settle_down()
    assert isinstance(task.outcome, ClosedResourceError)
    assert len(listening.queue.refused) == 1
    assert listening.listener.statistics().pending == 0


def test_a_request_of_a_task_that_is_cancelled_meanwhile_goes_to_the_next_task(listening: Listening) -> None:
    first, second = listening.task(), listening.task()
    (request,) = listening.queue.come()
    first.cancel()
    listening.queue.driver.settle_down()
    assert first.done
    assert second.outcome is request
    assert not listening.queue.pending


def test_a_request_of_a_cancelled_task_is_the_first_of_the_queue_again(listening: Listening) -> None:
    task = listening.task()
    requests = listening.queue.come(2)
    task.cancel()
    listening.queue.driver.settle_down()
    assert list(listening.queue.pending) == requests


def test_a_cancelled_task_waits_for_no_request_any_more(listening: Listening) -> None:
    first, second = listening.task(), listening.task()
    first.cancel()
    listening.queue.driver.settle_down()
    assert len(listening.queue.waiters) == 1
    (request,) = listening.queue.come()
    listening.queue.driver.settle_down()
    assert second.outcome is request


def test_a_request_that_was_answered_meanwhile_is_not_put_back_into_the_queue(queue: Queue) -> None:
    (request,) = queue.come()
    queue.pending.clear()
    request.reject(param=b"no")
    queue.requeue(request)
    assert not queue.pending
    assert queue.refused == [(request, b"no")]


@pytest.mark.parametrize(
    ("answer", "kept", "refused"),
    [
        (True, 1, []),
        (False, 0, [b""]),
        ("raises", 0, [b""]),
        ("rejects", 0, [b"busy"]),
        ("rejects, True", 0, [b"busy"]),
    ],
)
def test_a_request_that_the_predicate_does_not_accept_is_rejected_once(
    queue: Queue, answer: object, kept: int, refused: list[bytes]
) -> None:
    def screen(request: ConnectionRequest) -> bool:
        if answer == "raises":
            raise ArithmeticError("a mistake")
        if isinstance(answer, str):
            request.reject(param=b"busy")
        return answer in (True, "rejects, True")

    queue.screen = screen
    queue.come()
    assert len(queue.pending) == kept
    assert [data for _, data in queue.refused] == refused
    assert queue.counted() == (1, 0, len(refused), 0, 0)
    assert [type(error) for error in queue.driver.reports] == [ArithmeticError] * (answer == "raises")


def test_an_error_of_the_queue_reaches_each_task_that_still_waits_for_a_request(listening: Listening) -> None:
    error = FabricError(constants.FI_EIO, "fi_trywait")
    tasks = [listening.task() for _ in range(3)]
    answered = listening.queue.waiters[1]
    answered.set_result(None)
    assert listening.queue.fail_waiters(error) == 2
    assert listening.queue.fail_waiters(error) == 0
    listening.queue.driver.settle_down()
    assert [task.outcome for task in (tasks[0], tasks[2])] == [error] * 2
    later = listening.task()
    (request,) = listening.queue.come()
    listening.queue.driver.settle_down()
    assert later.outcome is request


def test_a_request_passes_over_tasks_that_were_answered_already(listening: Listening) -> None:
    first, second = listening.task(), listening.task()
    listening.queue.waiters[0].set_result(None)
    (request,) = listening.queue.come()
    listening.queue.driver.settle_down()
    assert isinstance(first.outcome, ClosedResourceError)
    assert second.outcome is request


def test_a_listener_that_closes_rejects_what_has_no_answer_and_wakes_its_tasks(listening: Listening) -> None:
    queue = listening.queue
    kept, taken, accepted = queue.come(3)
    queue.pending.remove(taken)  # by a task that has not answered it yet
    queue.pending.remove(accepted)
    queue.answered(accepted, "accepted")
    queue.pending.clear()
    tasks = [listening.task(), listening.task()]
    queue.waiters[0].set_result(None)
    queue.cut_off()
    before = ended.read()
    queue.unanswerable = True
    listening.listener.close()
    queue.driver.settle_down()
    assert [request for request, _ in queue.refused] == [kept, taken]
    assert [type(task.outcome) for task in tasks] == [ClosedResourceError] * 2
    assert (queue.natively_closed, queue.released_at_last) == (1, 1)
    counted = ended.read() - before
    assert {name: counted[name, ""] for name in COUNTED if counted[name, ""]} == {
        "requests": 3,
        "accepted": 1,
        "rejected": 2,
        "cut_off": 1,
    }
    with pytest.raises(ClosedResourceError):
        kept.reject()


def test_a_listener_whose_loop_has_ended_closes_without_waking_tasks(listening: Listening) -> None:
    listening.task()
    listening.queue.driver.is_closed = True  # its waiters refuse results
    listening.listener.close()
    assert listening.queue.released_at_last == 1


def test_a_listener_whose_native_close_fails_still_wakes_its_tasks(listening: Listening) -> None:
    task = listening.task()

    def fail() -> None:
        raise FabricError(constants.FI_EBUSY, "fi_close")

    listening.queue.release_native = fail  # type: ignore[method-assign]
    with pytest.raises(FabricError):
        listening.listener.close()
    listening.queue.driver.settle_down()
    assert isinstance(task.outcome, ClosedResourceError)
    assert listening.queue.released_at_last == 1


def test_a_request_is_accepted_once_with_the_data_and_the_options_of_the_caller(listening: Listening) -> None:
    queue = listening.queue
    queue.come()
    task = listening.task()
    queue.driver.settle_down()
    request = task.outcome
    with pytest.raises(ValueError, match="257 bytes; this provider carries at most"):
        request.reject(param=bytes(257))
    assert not request.answered
    Caller(queue.driver, request.accept(param=b"data", recv_count=3))
    assert listening.accepted == [(request, b"data", {"recv_count": 3})]
    assert queue.counted() == (1, 1, 0, 0, 0)
    with pytest.raises(RuntimeError, match="answered already"):
        request.reject()
    again = Caller(queue.driver, request.accept())
    assert isinstance(again.outcome, RuntimeError)
    assert queue.counted() == (1, 1, 0, 0, 0)
    assert queue.refused == []


def test_a_request_is_withdrawn_even_if_it_has_ended_by_itself(queue: Queue) -> None:
    (request,) = queue.come()
    queue.unanswerable = True
    queue.withdraw(request)
    assert queue.refused == [(request, b"")]


def test_a_listener_ends_with_the_loop_that_it_belongs_to_and_with_no_other(queue: Queue) -> None:
    queue.on_loop_end(ManualDriver())
    assert not queue.over
    queue.on_loop_end(queue.driver)
    assert queue.over
    queue.on_loop_end(ManualDriver())
    assert queue.over


def test_the_statistics_of_a_listener_count_the_requests_that_wait(listening: Listening) -> None:
    listening.queue.come(2)
    listening.queue.cut_off()
    statistics = listening.listener.statistics()
    assert (statistics.pending, statistics.requests, statistics.cut_off, statistics.accepted) == (2, 2, 1, 0)
