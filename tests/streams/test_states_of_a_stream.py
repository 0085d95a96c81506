"""Streams of bytes and of messages, step by step, without I/O: the test is the endpoint, the peer, and the loop."""

import itertools
from typing import Any

import anyio
import pytest

from aiofabric import FabricConnectionAbortedError, MessageTooLongError
from aiofabric.channel.frames import CLOSE, END, MESSAGES, PLAIN, Hello, header
from aiofabric.streams import FabricStream, MessageStream
from tests.channel.scripted import Channel

pytestmark = pytest.mark.once

COPIED = 8192  # bytes of the longest message that is copied behind its length
ARGUMENTS: dict[str, list[Any]] = {"receive": [], "receive_into": [bytearray(2)], "send": [b"x"]}


class Bytes(Channel):
    """A stream of bytes on a scripted channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = FabricStream(self.channel)


class Messages(Channel):
    """A stream of messages on a scripted channel."""

    def __init__(
        self, *, longest: int = 20_000, packing: tuple[bool, bool] = (True, True), strict: bool = False
    ) -> None:
        ours, theirs = (Hello(40_004, 100_000, MESSAGES, packs, longest) for packs in packing)
        super().__init__(ours, theirs, strict=strict)
        self.stream = MessageStream(self.channel)

    def message(self, *messages: bytes) -> None:
        self.comes(PLAIN + joined(*messages))

    def send(self, message: Any) -> Any:
        caller = self.call(self.stream.send(message))
        assert caller.done
        return caller.outcome

    def end_iteration(self) -> None:
        self.source.driver.iterate()


def joined(*messages: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in messages)


@pytest.fixture
def stream() -> Bytes:
    return Bytes()


@pytest.fixture
def messages() -> Messages:
    return Messages()


# -- a stream that was aborted


@pytest.mark.parametrize("kind", [Bytes, Messages])
def test_after_an_abort_the_stream_is_closed_whatever_broke_it_before(kind: Any) -> None:
    peer = kind()
    peer.comes(b"?")  # the peer breaks the protocol
    assert isinstance(peer.call(peer.stream.send(bytes(9000))).outcome, anyio.BrokenResourceError)
    peer.stream.abort()
    assert isinstance(peer.call(peer.stream.send(b"x")).outcome, anyio.ClosedResourceError)
    assert isinstance(peer.call(peer.stream.send(bytes(9000))).outcome, anyio.ClosedResourceError)
    assert isinstance(peer.call(peer.stream.wait_send_might_not_block()).outcome, anyio.ClosedResourceError)


def test_an_aborted_stream_is_readable_and_has_ended(stream: Bytes) -> None:
    stream.comes(PLAIN + b"data")
    assert (stream.stream.readable, stream.stream.ended) == (True, False)
    stream.stream.abort()
    assert (stream.stream.readable, stream.stream.ended) == (True, True)


def test_a_quiet_stream_is_neither_readable_nor_ended(stream: Bytes) -> None:
    assert (stream.stream.readable, stream.stream.ended) == (False, False)
    stream.comes(header(END, 0))
    assert (stream.stream.readable, stream.stream.ended) == (True, True)


# -- the errors of a stream of bytes


@pytest.mark.parametrize("way", ARGUMENTS)
def test_the_cause_of_a_broken_stream_has_the_details(way: str, stream: Bytes) -> None:
    error = stream.breaks()
    outcome = stream.call(getattr(stream.stream, way)(*ARGUMENTS[way])).outcome
    assert isinstance(outcome, anyio.BrokenResourceError)
    assert outcome.__cause__ is error
    assert str(outcome) == "broken"


@pytest.mark.parametrize("way", ARGUMENTS)
def test_a_second_task_is_refused(way: str, stream: Bytes) -> None:
    stream.spend(0)
    first, second = (stream.call(getattr(stream.stream, way)(*ARGUMENTS[way])) for _ in range(2))
    assert not first.done
    assert isinstance(second.outcome, anyio.BusyResourceError)
    first.collect()


@pytest.mark.parametrize("size", [0, -1])
def test_a_receive_of_nothing_is_refused(size: int, stream: Bytes) -> None:
    stream.comes(PLAIN + b"data")
    assert isinstance(stream.call(stream.stream.receive(size)).outcome, ValueError)
    assert isinstance(stream.call(stream.stream.receive_into(bytearray(0))).outcome, ValueError)
    assert stream.call(stream.stream.receive(1)).outcome == b"d"


@pytest.mark.parametrize("memory", [bytes(2), memoryview(bytearray(4))[::2]], ids=["read-only", "with gaps"])
def test_a_receive_into_other_memory_is_refused(memory: Any, stream: Bytes) -> None:
    stream.comes(PLAIN + b"data")
    assert isinstance(stream.call(stream.stream.receive_into(memory)).outcome, BufferError)
    assert stream.call(stream.stream.receive()).outcome == b"data"


def test_the_end_is_anyios(stream: Bytes) -> None:
    stream.comes(header(END, 0))
    assert isinstance(stream.call(stream.stream.receive()).outcome, anyio.EndOfStream)
    assert isinstance(stream.call(stream.stream.receive_into(bytearray(1))).outcome, anyio.EndOfStream)


# -- messages that leave


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_message_goes_behind_its_length(kind: Any, messages: Messages) -> None:
    for each in (b"one", b"", b"three"):
        assert messages.send(kind(each)) is None
    assert messages.sent == [PLAIN + joined(each) for each in (b"one", b"", b"three")]


@pytest.mark.parametrize("size", [100, 101])
def test_no_message_longer_than_the_peers_limit_is_sent(size: int) -> None:
    peer = Messages(longest=100)
    outcome = peer.send(bytes(size))
    if size == 100:
        assert outcome is None
        assert peer.sent == [PLAIN + joined(bytes(100))]
    else:
        assert isinstance(outcome, MessageTooLongError)
        assert "has 101 bytes; the peer accepts at most 100" in str(outcome)
        assert not peer.sent
        assert peer.send(b"x") is None


@pytest.mark.parametrize("size", [20_000, 20_001])
def test_no_large_message_longer_than_the_peers_limit_is_sent(size: int, messages: Messages) -> None:
    outcome = messages.send(bytes(size))
    assert isinstance(outcome, MessageTooLongError) is (size > 20_000)
    assert bool(messages.sent) is (size <= 20_000)


@pytest.mark.parametrize("size", [COPIED, COPIED + 1])
def test_a_short_message_is_one_frame_with_its_length(size: int) -> None:
    """A longer one is sent from where it is, behind a frame with its length."""
    peer = Messages(packing=(False, False))
    peer.call(peer.stream.send(bytearray(size)))
    assert peer.sizes == ([4 + size] if size == COPIED else [4, size])
    for each in peer.endpoint.transfers:
        each.complete()
    peer.source.driver.settle_down()


def test_no_message_overtakes_one_that_waits_for_credits(messages: Messages) -> None:
    messages.spend(0)
    caller = messages.call(messages.stream.send(b"waits"))
    assert not caller.done
    assert isinstance(messages.send(b"x"), anyio.BusyResourceError)
    messages.grant(1000)
    assert messages.sent == [PLAIN + joined(b"waits")]
    messages.source.driver.settle_down()
    assert caller.done


def test_a_message_that_the_provider_refuses_breaks_the_stream(messages: Messages) -> None:
    messages.endpoint.refusals.append(ConnectionResetError("gone"))
    for _ in range(2):
        assert isinstance(messages.send(b"lost"), anyio.BrokenResourceError)


@pytest.mark.parametrize("strict", [False, True])
def test_sends_and_receives_run_a_checkpoint_if_it_is_due(strict: bool) -> None:
    peer = Messages(strict=strict)
    peer.message(b"one", b"two")
    assert peer.call(peer.stream.receive()).done is not strict
    peer.source.driver.settle_down()
    peer.source.must_yield = not strict
    before = peer.source.checkpoints
    receiver = peer.call(peer.stream.receive())
    assert not receiver.done
    peer.source.driver.settle_down()
    assert receiver.outcome == b"two"
    assert peer.source.checkpoints == before + 1
    sender = peer.call(peer.stream.send(b"x"))
    assert not sender.done
    peer.source.driver.settle_down()
    assert sender.done
    assert peer.source.checkpoints == before + 2


def test_messages_are_dropped_by_an_abort(messages: Messages) -> None:
    messages.message(b"one", b"two")
    assert messages.call(messages.stream.receive()).outcome == b"one"
    messages.stream.abort()
    assert isinstance(messages.call(messages.stream.receive()).outcome, anyio.ClosedResourceError)


# -- messages that arrive


@pytest.mark.parametrize(
    "cuts", [(1,), (2, 3), (4,), (5,), (5, 7), (9,), (4, 9), (10,), (12, 13), (3, 11, 20), (18, 20, 21)]
)
def test_messages_are_whole_wherever_the_frames_are_cut(cuts: tuple[int, ...], messages: Messages) -> None:
    whole = joined(b"hello", b"", b"wonderful", b"x")
    ends = (0, *cuts, len(whole))
    receivers = []
    for start, end in itertools.pairwise(ends):
        receivers.append(messages.call(messages.stream.receive()))
        messages.comes(PLAIN + whole[start:end])
        messages.source.driver.settle_down()
        if not receivers[-1].done:
            receivers[-1].collect()
            receivers.pop()
    while len(receivers) < 4:
        receivers.append(messages.call(messages.stream.receive()))
    assert [each.outcome for each in receivers] == [b"hello", b"", b"wonderful", b"x"]


@pytest.mark.parametrize("part", [b"\5", b"\5\0\0\0", b"\5\0\0\0hell"])
def test_an_end_within_a_message_is_a_broken_stream(part: bytes, messages: Messages) -> None:
    messages.message(b"whole")
    messages.comes(PLAIN + part)
    messages.comes(header(END, 0))
    assert messages.call(messages.stream.receive()).outcome == b"whole"
    outcome = messages.call(messages.stream.receive()).outcome
    assert isinstance(outcome, anyio.BrokenResourceError)
    assert "within a message" in str(outcome)


def test_an_end_between_messages_is_the_end_of_the_stream(messages: Messages) -> None:
    messages.message(b"whole")
    messages.comes(header(END, 0))
    assert messages.call(messages.stream.receive()).outcome == b"whole"
    assert isinstance(messages.call(messages.stream.receive()).outcome, anyio.EndOfStream)


@pytest.mark.parametrize("size", [20_000, 20_001])
def test_a_message_may_be_as_long_as_this_side_said(size: int, messages: Messages) -> None:
    messages.comes(PLAIN + size.to_bytes(4, "little"))
    receiver = messages.call(messages.stream.receive())
    assert messages.endpoint.aborts == (size > 20_000)
    if size > 20_000:
        assert isinstance(receiver.outcome, anyio.BrokenResourceError)
        assert isinstance(receiver.outcome.__cause__, FabricConnectionAbortedError)
        assert "announced a message of 20001 bytes" in str(receiver.outcome)
    else:
        messages.comes(PLAIN + bytes(size))
        messages.source.driver.settle_down()
        assert receiver.outcome == bytes(size)


def test_a_lost_connection_is_a_broken_stream_after_the_messages(messages: Messages) -> None:
    messages.message(b"one", b"two")
    error = messages.breaks()
    assert [messages.call(messages.stream.receive()).outcome for _ in range(2)] == [b"one", b"two"]
    outcome = messages.call(messages.stream.receive()).outcome
    assert isinstance(outcome, anyio.BrokenResourceError)
    assert outcome.__cause__ is error


def test_the_close_of_the_peer_breaks_sends(messages: Messages) -> None:
    messages.comes(header(CLOSE, 0))
    messages.end_iteration()
    assert isinstance(messages.send(b"x"), anyio.BrokenResourceError)


def test_only_one_task_receives(messages: Messages) -> None:
    first = messages.call(messages.stream.receive())
    assert isinstance(messages.call(messages.stream.receive()).outcome, anyio.BusyResourceError)
    messages.message(b"one")
    messages.source.driver.settle_down()
    assert first.outcome == b"one"
