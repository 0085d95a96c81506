"""The inbox of one endpoint, step by step: the test delivers the messages, and is the loop and the endpoint."""

# Privates: a cancelled receive gives its message back by `_return_message`; `_returned` counts those in the inbox.

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import TruncatedMessageError
from aiofabric.cq.polling import Waiting
from aiofabric.cq.source.source import Source
from aiofabric.testing import ScriptedQueue
from aiofabric.transport.messages.inbox import Inbox
from aiofabric.transport.messages.loans import give_back_later
from tests.cq.manual import Caller, Endpoint, ManualDriver

pytestmark = pytest.mark.once


class Buffer:
    """A buffer of the pool with a message in it."""

    def __init__(self, data: bytes) -> None:
        self.view = memoryview(data)
        self.length = len(data)

    def __repr__(self) -> str:
        return bytes(self.view).decode()


class Messages(Inbox):
    """An inbox that records which buffers come back."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle, 64, 4)
        self.free: list[Any] = []
        self.refused = 0

    def recycle(self, buffer: Any) -> None:
        self.free.append(buffer)

    def message_refused(self) -> None:
        self.refused += 1


class Receiving:
    """An inbox on a loop that the test steps."""

    def __init__(self, *, strict: bool = False) -> None:
        self.driver = ManualDriver()
        self.checkpoints = 0
        if strict:
            self.driver.checkpoint_if_cancelled = self.checkpoint
        self.endpoint = Endpoint(source=Source(self.driver, ScriptedQueue(descriptor=True), waiting=Waiting.FD))
        self.handle: Any = SimpleNamespace(
            source=self.endpoint.source, closed=False, exhausted=0, lent_at={}, returned=[]
        )
        self.inbox = Messages(self.handle)

    async def checkpoint(self) -> None:
        self.checkpoints += 1

    def come(self, *texts: str) -> list[Buffer]:
        buffers = [Buffer(text.encode()) for text in texts]
        for buffer in buffers:
            self.inbox.deliver(buffer)
        return buffers

    def call(self, room: int | None = None) -> Caller:
        async def receive() -> Any:
            return await self.inbox.next(room)

        return Caller(self.driver, receive())

    @property
    def kept(self) -> str:
        return " ".join(str(each) if isinstance(each, Buffer) else "error" for each in self.inbox.inbox)


@pytest.fixture
def receiving() -> Iterator[Receiving]:
    it = Receiving()
    yield it
    it.endpoint.close()


def error() -> BaseException:
    return ConnectionResetError("lost")


# -- waiting


def test_a_task_waits_for_a_message(receiving: Receiving) -> None:
    caller = receiving.call()
    assert (caller.done, receiving.inbox.waiting) == (False, 1)
    (message,) = receiving.come("one")
    receiving.driver.settle_down()
    assert caller.outcome is message
    assert (receiving.inbox.waiting, receiving.kept) == (0, "")


def test_a_task_that_took_many_lets_the_loop_iterate_first(receiving: Receiving) -> None:
    """Such a call comes here although a message is there."""
    (message,) = receiving.come("one")
    caller = receiving.call()
    assert not caller.done
    receiving.driver.settle_down()
    assert caller.outcome is message


def test_a_task_lets_the_loop_iterate_before_it_polls_again(receiving: Receiving) -> None:
    receiving.endpoint.source.must_iterate = True
    caller = receiving.call()
    assert receiving.inbox.waiting == 0  # it yields first
    receiving.driver.settle_down()
    assert not caller.done
    assert receiving.inbox.waiting == 1
    (message,) = receiving.come("one")
    receiving.driver.settle_down()
    assert caller.outcome is message


def test_a_task_that_need_not_iterate_waits_at_once(receiving: Receiving) -> None:
    receiving.call()
    assert receiving.inbox.waiting == 1


def test_on_trio_each_receive_is_a_checkpoint() -> None:
    receiving = Receiving(strict=True)
    (message,) = receiving.come("one")
    caller = receiving.call()
    assert (receiving.checkpoints, caller.done) == (1, False)
    receiving.driver.settle_down()
    assert caller.outcome is message
    waits = receiving.call()
    receiving.driver.settle_down()
    assert (receiving.checkpoints, waits.done, receiving.inbox.waiting) == (2, False, 1)
    waits.collect()
    receiving.endpoint.close()


def test_tasks_are_served_in_order(receiving: Receiving) -> None:
    first, second = receiving.call(), receiving.call()
    one, two, three = receiving.come("one", "two", "three")
    receiving.driver.settle_down()
    assert (first.outcome, second.outcome, receiving.kept) == (one, two, "three")
    assert receiving.inbox.first() is three


def test_a_message_that_does_not_fit_stays_the_next_one(receiving: Receiving) -> None:
    caller = receiving.call(2)
    (message,) = receiving.come("one")
    receiving.driver.settle_down()
    assert isinstance(caller.outcome, TruncatedMessageError)
    assert (caller.outcome.size, caller.outcome.limit) == (3, 2)
    assert receiving.kept == "one"
    receiving.come("two")
    assert receiving.inbox.first(3) is message


# -- messages that come back


def test_a_message_that_was_not_taken_goes_to_the_task_that_waits_longest(receiving: Receiving) -> None:
    caller = receiving.call()
    message: Any = Buffer(b"back")
    receiving.inbox._return_message(message)
    receiving.driver.settle_down()
    assert caller.outcome is message


def test_messages_that_were_not_taken_come_before_later_ones_in_their_order(receiving: Receiving) -> None:
    receiving.come("three", "four")
    for text in (b"one", b"two"):
        message: Any = Buffer(text)
        receiving.inbox._return_message(message)
    assert receiving.kept == "one two three four"
    assert str(receiving.inbox.first()) == "one"
    message = Buffer(b"again")
    receiving.inbox._return_message(message)
    assert receiving.kept == "two again three four"


def test_an_error_that_was_not_raised_comes_back_until_the_end(receiving: Receiving) -> None:
    receiving.inbox._return_message(error())
    assert receiving.kept == "error"
    receiving.inbox.end(error)
    receiving.inbox._return_message(error())  # the end: every later receive raises it, too
    assert receiving.kept == "error"
    with pytest.raises(ConnectionResetError):
        receiving.inbox.first()
    assert receiving.inbox.refused == 1


# -- the end


def test_the_end_wakes_all_tasks(receiving: Receiving) -> None:
    callers = [receiving.call() for _ in range(2)]
    receiving.inbox.end(error)
    receiving.driver.settle_down()
    assert [type(each.outcome) for each in callers] == [ConnectionResetError] * 2
    later = receiving.call()
    receiving.driver.settle_down()
    assert isinstance(later.outcome, ConnectionResetError)


def test_messages_that_came_before_the_end_are_received(receiving: Receiving) -> None:
    (message,) = receiving.come("one")
    receiving.inbox.end(error)
    for outcome in (message, ConnectionResetError):
        caller = receiving.call()
        receiving.driver.settle_down()
        assert caller.outcome is message if outcome is message else isinstance(caller.outcome, ConnectionResetError)


def test_an_endpoint_that_its_owner_closes_drops_them(receiving: Receiving) -> None:
    receiving.come("one")
    message: Any = Buffer(b"back")
    receiving.inbox._return_message(message)
    receiving.handle.closed = True
    receiving.inbox.end(error)
    assert receiving.kept == ""
    assert receiving.inbox._returned == 0


def test_the_end_of_the_loop_wakes_no_task(receiving: Receiving) -> None:
    caller = receiving.call()
    receiving.driver.is_closed = True
    receiving.inbox.end(error)
    assert receiving.inbox.waiting == 1
    receiving.driver.is_closed = False
    caller.collect()


def test_a_closed_inbox_keeps_its_counts_and_no_memory(receiving: Receiving) -> None:
    receiving.inbox.messages, receiving.inbox.bytes = 3, 12
    receiving.inbox.end(error)
    closed = receiving.inbox.without_memory()
    said = closed.statistics()
    assert (said.messages, said.bytes, closed.size, closed.count) == (3, 12, 64, 4)
    assert closed.ended is error
    closed.recycle(Buffer(b"late"))
    assert not receiving.inbox.free


# -- callbacks instead of tasks


def test_a_sink_gets_each_message_and_the_end_once(receiving: Receiving) -> None:
    got: list[bytes] = []
    ends: list[BaseException] = []
    early = receiving.come("one", "two")
    receiving.inbox.set_sink(lambda view: got.append(bytes(view)), ends.append)
    late = receiving.come("three")
    assert got == [b"one", b"two", b"three"]
    assert receiving.inbox.free == [*early, *late]
    receiving.inbox.end(error)
    receiving.inbox.end(error)
    assert [type(each) for each in ends] == [ConnectionResetError]


def test_a_sink_that_comes_after_the_end_is_told(receiving: Receiving) -> None:
    got: list[bytes] = []
    ends: list[BaseException] = []
    receiving.come("one")
    receiving.inbox.end(error)
    receiving.inbox.set_sink(lambda view: got.append(bytes(view)), ends.append)
    assert (got, len(ends)) == ([b"one"], 1)


def test_an_error_among_the_messages_ends_the_sink(receiving: Receiving) -> None:
    got: list[bytes] = []
    ends: list[BaseException] = []
    receiving.come("one")
    truncated = OverflowError("too long")
    receiving.inbox.hand_out(truncated)
    receiving.come("two")
    receiving.inbox.set_sink(lambda view: got.append(bytes(view)), ends.append)
    assert (got, ends) == ([b"one", b"two"], [truncated])


def test_a_sink_that_is_removed_gets_no_more(receiving: Receiving) -> None:
    got: list[bytes] = []

    def once(view: memoryview) -> None:
        got.append(bytes(view))
        receiving.inbox.set_sink(None, None)

    receiving.come("one", "two")
    receiving.inbox.set_sink(once, None)
    assert (got, receiving.kept) == ([b"one"], "two")
    receiving.come("three")
    assert receiving.kept == "two three"
    receiving.inbox.end(error)  # no callback is left for it


def test_messages_that_came_back_before_a_sink_was_set_are_in_order_after_it(receiving: Receiving) -> None:
    for text in (b"one", b"two"):
        message: Any = Buffer(text)
        receiving.inbox._return_message(message)
    got: list[bytes] = []
    receiving.inbox.set_sink(lambda view: got.append(bytes(view)), None)
    receiving.inbox.set_sink(None, None)
    assert got == [b"one", b"two"]
    receiving.come("three")
    message = Buffer(b"back")
    receiving.inbox._return_message(message)
    assert receiving.kept == "back three"


def test_a_sink_that_fails_is_reported_and_its_buffer_is_free(receiving: Receiving) -> None:
    def fails(_: Any) -> None:
        raise OSError("sink")

    receiving.inbox.set_sink(fails, fails)
    (message,) = receiving.come("one")
    assert receiving.inbox.free == [message]
    assert len(receiving.driver.reports) == 1
    receiving.inbox.end(error)
    assert len(receiving.driver.reports) == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_a_sink_is_raised(kind: type[BaseException], receiving: Receiving) -> None:
    def interrupted(_: Any) -> None:
        raise kind

    receiving.inbox.set_sink(interrupted, None)
    with pytest.raises(kind):
        receiving.come("one")
    assert len(receiving.inbox.free) == 1
    assert not receiving.driver.reports


@pytest.mark.parametrize("sink", [False, True])
def test_an_endpoint_that_closes_in_order_drops_messages(sink: bool, receiving: Receiving) -> None:
    got: list[Any] = []
    ends: list[BaseException] = []
    if sink:
        receiving.inbox.set_sink(got.append, ends.append)
    waiting = [receiving.call() for _ in range(2)]
    receiving.inbox.discard(error)
    receiving.driver.settle_down()
    assert [type(each.outcome) for each in waiting] == [ConnectionResetError] * 2
    assert len(ends) == sink
    late = receiving.come("late")
    assert (got, receiving.inbox.free, receiving.kept) == ([], late, "")
    receiving.inbox.end(error)
    assert len(ends) == sink


# -- statistics and loans


def test_statistics_count_messages_and_no_errors(receiving: Receiving) -> None:
    receiving.come("one", "two")
    receiving.inbox.hand_out(error())
    receiving.inbox.posted, receiving.inbox._lent, receiving.handle.exhausted = 3, 1, 5
    said = receiving.inbox.statistics()
    assert (said.filled, said.posted, said.lent, said.exhausted) == (2, 3, 1, 5)


@pytest.mark.parametrize("lent", [3, 4])
def test_a_task_that_waits_while_all_buffers_are_lent_is_warned(lent: int, receiving: Receiving) -> None:
    receiving.handle.what, receiving.handle.opened_at = "Endpoint", "here"
    receiving.inbox._lent = lent
    if lent == 4:
        with pytest.warns(RuntimeWarning, match="all 4 receive buffers"):
            receiving.call().collect()
    else:
        receiving.call().collect()
    assert receiving.handle.exhausted == (lent == 4)


def test_a_pool_of_large_buffers_is_not_warned_of(receiving: Receiving) -> None:
    receiving.inbox.one_message_each = False  # type: ignore[misc]
    receiving.inbox._lent = 4
    receiving.call().collect()
    assert receiving.handle.exhausted == 0


@pytest.mark.parametrize("handle", [None, SimpleNamespace()], ids=["none", "cleared"])
def test_a_loan_that_is_collected_with_its_endpoint_gives_nothing_back(handle: Any) -> None:
    """The collector clears the fields of objects that end together, in any order."""
    give_back_later(SimpleNamespace(handle=handle), Buffer(b"x"))  # type: ignore[arg-type]
