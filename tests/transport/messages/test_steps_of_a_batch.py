"""A batch step by step: the flags of each send, what is held back, and which answers wake the task at its end."""

# Privates: a scripted route stands for one that reports few sends; the batch marks the silent ones for it.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric._ffi import constants
from aiofabric.transport.messages.batch import _SILENT, Batch
from tests.cq.manual import Caller, Endpoint

pytestmark = pytest.mark.once

MORE = constants.FI_MORE


class Sending:
    """A batch, and an endpoint whose provider is the test."""

    def __init__(self, *, selective: bool, limit: int = 16, small: bool = False) -> None:
        self.endpoint = Endpoint(limit=64)
        self.flags: list[int] = []
        self.checked: list[int] = []
        self.usable = True
        handle: Any = SimpleNamespace(
            source=self.endpoint.source,
            closed=False,
            gone=None,
            checkpoint=None,
            thread_check=SimpleNamespace(admits=lambda: True),
            check_usable=self.check_usable,
            tags=SimpleNamespace(check=self.checked.append),
        )
        route: Any = SimpleNamespace(
            inject=lambda *_: small,
            own_flags=lambda flags: flags or 0,
            post=self.post,
            check_size=lambda *_: None,
            check_data=lambda *_: None,
            waiting=[],
            limit=limit,
        )
        self.handle = handle
        self.route = route
        self.batch = Batch(handle, route)
        self.batch._silently = selective

    def check_usable(self, call: str) -> None:
        if not self.usable:
            raise ConnectionResetError(call)

    def post(self, _: Any, tag: int | None = None, remote_data: int | None = None, flags: int | None = None) -> Any:
        self.flags.append(flags or 0)
        return self.endpoint.submit(tag)

    def send(self, **options: Any) -> Caller:
        caller = Caller(self.endpoint.driver, self.batch.send(b"data", **options))
        self.endpoint.driver.settle_down()
        return caller

    def end(self, error: BaseException | None = None) -> Caller:
        kind = None if error is None else type(error)
        caller = Caller(self.endpoint.driver, self.batch.__aexit__(kind, error, None))
        self.endpoint.driver.settle_down()
        return caller

    def answer(self, number: int, code: int = 0) -> None:
        address = self.endpoint.posted[number]
        if code:
            self.endpoint.queue.fail(address, code)
        else:
            self.endpoint.queue.complete(address)
        self.endpoint.driver.settle_down()

    def close(self) -> None:
        self.endpoint.close()


def test_a_selective_batch_asks_for_one_completion_in_a_quarter_of_its_credits_and_for_the_last() -> None:
    sending = Sending(selective=True)
    for number in range(7):
        assert sending.send().outcome is None
        assert len(sending.flags) == number  # the newest is held back
    end = sending.end()
    silent = MORE | _SILENT
    assert sending.flags == [silent, silent, silent, MORE, silent, silent, 0]
    assert not end.done
    sending.close()


@pytest.mark.parametrize("limit", [1, 7])
def test_a_selective_batch_with_few_credits_asks_for_each_completion(limit: int) -> None:
    sending = Sending(selective=True, limit=limit)
    for _ in range(3):
        sending.send()
    sending.end()
    assert sending.flags == [MORE, MORE, 0]
    sending.close()


def test_another_batch_holds_no_message_back() -> None:
    sending = Sending(selective=False)
    for number in range(3):
        sending.send(remote_data=number)
        assert sending.flags == [0] * (number + 1)
    sending.close()


@pytest.mark.parametrize("why", ["closed", "gone"])
def test_a_batch_of_an_endpoint_that_has_ended_drops_the_message_held_back(why: str) -> None:
    sending = Sending(selective=True)
    sending.send()
    if why == "closed":
        sending.handle.closed = True
    else:
        sending.handle.gone = ConnectionResetError
    end = sending.end()
    assert end.done
    assert sending.flags == []
    sending.close()


def test_the_end_of_a_batch_waits_for_all_answers_and_is_woken_once() -> None:
    sending = Sending(selective=False)
    for _ in range(3):
        sending.send()
    end = sending.end()
    source = sending.endpoint.source
    assert source.interest == 4  # of three sends, and of the task that waits for them
    sending.answer(1)
    sending.answer(0)
    assert not end.done
    sending.answer(2)
    assert (end.done, end.outcome, source.interest) == (True, None, 0)
    sending.close()


def test_the_end_of_a_batch_raises_the_first_failure_and_waits_for_no_more() -> None:
    sending = Sending(selective=False)
    for _ in range(3):
        sending.send()
    end = sending.end()
    sending.answer(1, 5)
    assert isinstance(end.outcome, OSError)
    assert end.outcome.errno == 5
    sending.answer(0, 6)
    sending.answer(2)
    assert sending.endpoint.source.statistics().in_flight == 0
    sending.close()


def test_a_second_failure_of_a_batch_does_not_replace_the_first() -> None:
    sending = Sending(selective=False)
    sending.send()
    sending.send()
    sending.endpoint.queue.fail(sending.endpoint.posted[0], 5)
    sending.endpoint.queue.fail(sending.endpoint.posted[1], 6)
    end = sending.end()
    assert isinstance(end.outcome, OSError)
    assert end.outcome.errno == 5
    sending.close()


def test_a_batch_that_ends_with_an_error_of_its_block_waits_for_nothing() -> None:
    sending = Sending(selective=False)
    sending.send()
    end = sending.end(KeyError())
    assert (end.done, end.outcome) == (True, None)
    sending.close()


def test_a_cancelled_end_of_a_batch_leaves_no_interest_in_its_queue() -> None:
    sending = Sending(selective=False)
    sending.send()
    end = sending.end()
    end.cancel()
    sending.endpoint.driver.settle_down()
    assert end.done
    assert sending.endpoint.source.interest == 1  # of the send
    sending.answer(0)  # wakes no task
    assert sending.endpoint.source.interest == 0
    sending.close()


def test_a_batch_checks_the_tags_that_it_is_given() -> None:
    sending = Sending(selective=False, small=True)
    sending.send()
    sending.send(tag=0)
    sending.send(tag=5)
    assert sending.checked == [0, 5]
    sending.close()


def test_a_small_message_of_a_batch_is_posted_only_if_another_is_held_back() -> None:
    sending = Sending(selective=True, small=True)
    sending.send()
    assert sending.flags == []
    sending.send(remote_data=1)
    sending.send()  # must not overtake it
    assert sending.flags == [MORE | _SILENT]
    sending.end()
    assert sending.flags == [MORE | _SILENT, 0]
    sending.close()


@pytest.mark.parametrize("ends", ["by itself", "with a failure", "with the peer"])
def test_a_batch_whose_route_is_full_waits_until_all_are_posted(ends: str) -> None:
    sending = Sending(selective=True)
    posted = sending.endpoint.driver.create_waiter()
    sending.send()

    async def all_posted() -> None:
        await posted

    sending.route.waiting.append("message")
    sending.route.all_posted = all_posted
    caller = sending.send()
    assert (caller.done, sending.flags) == (False, [])
    if ends == "with a failure":
        sending.batch._error = OSError(5, "failed meanwhile")
    elif ends == "with the peer":
        sending.usable = False
    posted.set_result(None)
    sending.endpoint.driver.settle_down()
    assert caller.done
    expected = {"by itself": None, "with a failure": OSError, "with the peer": ConnectionResetError}[ends]
    assert type(caller.outcome) is (type(None) if expected is None else expected)
    assert len(sending.flags) == (ends == "by itself")
    sending.close()
