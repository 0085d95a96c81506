"""A receive into the caller's memory, step by step: what it posts, which message it returns, and which it keeps."""

# Doubles: the error of a message that reached the overflow area, which would map that area.
# Privates: an object with the methods of `Receives` stands for the endpoint.

from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import FabricConnectionEndedError, Message, TruncatedMessageError
from aiofabric._ffi import constants, ffi
from aiofabric.cq.operation import State
from aiofabric.memory import pin
from aiofabric.transport.buffers import Pieces
from aiofabric.transport.failures import Refill
from aiofabric.transport.messages import receive as module
from aiofabric.transport.messages.receive import Receives
from aiofabric.transport.messages.undelivered import UndeliveredMessage
from tests.cq.manual import Caller, ManualDriver
from tests.fixtures.methods import Hashable, methods_of

pytestmark = pytest.mark.once

ANYBODY = constants.FI_ADDR_UNSPEC
ANY = (ANYBODY,)
DATA = constants.FI_REMOTE_CQ_DATA


@methods_of(
    Receives,
    "_receive",
    "_recv_direct",
    "_recv_into_direct",
    "_undelivered_for",
    "_post_receive",
    "_post_receive_into",
    "_kept_apart",
    "_keep",
    "_keep_view",
    "_keeper",
    "_annotated",
    "_room",
    "_check_receivable",
    "_pool",
    "recv_nowait",
    "__anext__",
)
class Endpoint:
    """An endpoint without a pool; `comes` says what each receive gets."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self._stash: list[Any] = []
        self.admits = True
        self.closed = False
        self.posts: list[Any] = []
        self.apart: list[tuple[int, int]] = []
        self.refills: list[Any] = []
        self.outcomes: list[Any] = []  # of the receives: a function of the transfer, or an exception
        self.checkpoints = 0
        self._handle: Any = SimpleNamespace(
            pool=None,
            checkpoint=None,
            gone=None,
            closed=False,
            ending=False,
            thread_check=SimpleNamespace(admits=lambda: self.admits),
            check_open=self.check_open,
            refuse=lambda call: OSError(f"{call} refused"),
            rx=SimpleNamespace(
                submit=self.submit,
                finished=lambda transfer: None,
                outcome=self.outcome,
                keep_apart=lambda start, size: self.apart.append((start, size)),
            ),
            receive_ranges=[],
            private={},
            recalled={},
            overflow=None,
            regions=SimpleNamespace(busy=False),
            fid=ffi.NULL,
            any_message=ANY,
            info=SimpleNamespace(rx_attr=SimpleNamespace(iov_limit=2)),
            refill=self.refills.append,
        )

    @property
    def handle(self) -> Any:
        return self._handle

    @property
    def stash(self) -> list[Any]:
        return self._stash

    def check_open(self) -> None:
        if self.closed:
            raise ClosedResourceError("closed")

    def _source_of(self, address: int | None) -> Any:
        return None if address is None else f"peer {address}"

    def submit(self, what: str, function: Any, args: Any, pinned: Any, length: int, registrations: Any) -> Any:
        transfer = Hashable(
            what=what, args=args, pinned=pinned, length=length, state=State.POSTED, tag=0, source=None, data=0, flags=0
        )
        self.posts.append(transfer)
        return transfer

    async def outcome(self, transfer: Any) -> None:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        outcome(transfer)

    # -- for the test

    def comes(self, data: bytes, *, tag: int = 0, source: int | None = None, number: int | None = None) -> None:
        def arrive(transfer: Any) -> None:
            room = transfer.args[1]
            ffi.memmove(room, data, min(len(data), len(room)))
            transfer.length, transfer.tag, transfer.source = len(data), tag, source
            if number is not None:
                transfer.data, transfer.flags = number, DATA

        self.outcomes.append(arrive)

    def call(self, coroutine: Any) -> Any:
        """The outcome of a call that need not wait."""
        caller = Caller(self.driver, coroutine)
        self.driver.settle_down()
        assert caller.done
        if isinstance(caller.outcome, BaseException):
            raise caller.outcome
        return caller.outcome

    def receive(self, size: int = 8, where: tuple[int, ...] = ANY, **more: Any) -> Any:
        self.memory = bytearray(size)
        own: Any = self
        return self.call(own._receive(pin(self.memory, writable=True), where, **more))


@pytest.fixture
def endpoint() -> Any:
    return Endpoint()


def kept(data: bytes, *, source: int | None = None, tag: int | None = None) -> UndeliveredMessage:
    return UndeliveredMessage(Message(data), source, tag)


# -- one message


def test_the_callers_memory_is_filled(endpoint: Any) -> None:
    endpoint.comes(b"hello")
    assert endpoint.receive().length == 5
    assert endpoint.memory == b"hello\0\0\0"
    ((post),) = endpoint.posts
    assert (post.what, post.args[2:]) == ("fi_recv", (8, ffi.NULL, ANYBODY))
    assert endpoint.apart == [(post.memory, 8)]
    assert post.room == 8


def test_memory_of_our_own_becomes_a_message(endpoint: Any) -> None:
    endpoint.comes(b"hello", source=7, number=9)
    message = endpoint.receive(private=True)
    assert (message, message.source, message.remote_data) == (b"hello", "peer 7", 9)
    assert not endpoint.handle.private
    endpoint.comes(b"again")
    assert endpoint.receive(private=True).remote_data is None


def test_a_receive_that_was_posted_already_is_awaited(endpoint: Any) -> None:
    transfer = endpoint.submit("fi_recv", None, (), None, 8, ())
    endpoint.handle.rx.finished = lambda _: pytest.fail("it was polled before")
    endpoint.outcomes = [lambda transfer: None]
    assert endpoint.receive(posted=transfer) is transfer
    assert len(endpoint.posts) == 1


def test_a_receive_that_a_poll_completes_is_not_awaited(endpoint: Any) -> None:
    endpoint.handle.rx.finished = lambda transfer: transfer
    assert endpoint.receive() is endpoint.posts[0]


@pytest.mark.parametrize("private", [False, True])
def test_a_receive_that_fails_leaves_nothing(private: bool, endpoint: Any) -> None:
    endpoint.outcomes = [OSError("failed")]
    with pytest.raises(OSError, match="failed"):
        endpoint.receive(private=private)
    assert (endpoint.handle.private, endpoint.handle.recalled) == ({}, {})


def test_a_receive_that_was_ended_for_a_reason_is_forgotten_by_it(endpoint: Any) -> None:
    def arrives(transfer: Any) -> None:
        endpoint.handle.recalled[transfer] = OSError  # the message came first

    endpoint.outcomes = [arrives]
    endpoint.receive()
    assert endpoint.handle.recalled == {}


def test_a_message_longer_than_its_memory_is_an_error(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "overflowed", lambda what, size, limit, peer: ValueError(what, size, limit, peer))
    endpoint.comes(b"hello", source=7)
    with pytest.raises(ValueError) as caught:
        endpoint.receive(4)
    assert caught.value.args == ("fi_recv", 5, 4, "peer 7")
    endpoint.comes(b"four")
    assert endpoint.receive(4).length == 4


def test_on_trio_each_receive_begins_with_a_checkpoint(endpoint: Any) -> None:
    async def checkpoint() -> None:
        endpoint.checkpoints += 1
        if endpoint.checkpoints == 2:
            raise TimeoutError("cancelled")

    endpoint.handle.checkpoint = checkpoint
    endpoint.comes(b"hello")
    endpoint.receive()
    with pytest.raises(TimeoutError):
        endpoint.receive()
    assert (endpoint.checkpoints, len(endpoint.posts)) == (2, 1)


# -- refusals


def test_a_receive_is_refused_as_the_endpoint_says(endpoint: Any) -> None:
    endpoint.admits = False
    with pytest.raises(OSError, match="fi_recv refused"):
        endpoint.receive()
    endpoint.closed = True
    with pytest.raises(ClosedResourceError):
        endpoint.receive()
    assert not endpoint.posts


def test_messages_that_came_before_the_end_are_received_after_it(endpoint: Any) -> None:
    endpoint.admits = False
    endpoint.handle.gone = lambda: ConnectionResetError("gone")
    endpoint.stash.append(kept(b"early"))
    assert endpoint.receive() == b"early"
    with pytest.raises(ConnectionResetError):
        endpoint.receive()
    assert not endpoint.posts


def test_a_receive_of_a_removed_peer_is_not_posted(endpoint: Any) -> None:
    with pytest.raises(ClosedResourceError, match="was removed"):
        endpoint.receive(source=SimpleNamespace(vector=None, address="there"))
    assert not endpoint.posts
    endpoint.comes(b"hello")
    endpoint.receive(source=SimpleNamespace(vector=object(), address="there"))


# -- kept messages


def test_a_kept_message_that_fits_is_received_first(endpoint: Any) -> None:
    other, fits = kept(b"tagged", tag=5), kept(b"plain")
    endpoint.stash.extend([other, fits])
    assert endpoint.receive() == b"plain"
    assert endpoint.stash == [other]
    endpoint.comes(b"new")
    assert endpoint.receive().length == 3
    assert endpoint.receive(where=(ANYBODY, 5, 0)) == b"tagged"


@pytest.mark.parametrize(("size", "fits"), [(5, True), (4, False)])
def test_a_kept_message_waits_for_memory_of_its_size(size: int, fits: bool, endpoint: Any) -> None:
    endpoint.stash.append(kept(b"plain"))
    if fits:
        assert endpoint.receive(size) == b"plain"
        return
    with pytest.raises(TruncatedMessageError) as caught:
        endpoint.receive(size)
    assert (caught.value.size, caught.value.limit, len(endpoint.stash)) == (5, 4, 1)


def test_a_message_with_another_tag_is_kept_and_the_receive_is_posted_again(endpoint: Any) -> None:
    """1.17's shm may give a receive a message that it did not ask for."""
    endpoint.comes(b"wrong", tag=0x14, source=7)
    endpoint.comes(b"right", tag=0x25)
    assert endpoint.receive(where=(ANYBODY, 0x05, 0xF0)).tag == 0x25
    assert endpoint.memory[:5] == b"right"
    assert [(each.message, each.tag, each.source) for each in endpoint.stash] == [(b"wrong", 0x14, 7)]
    assert endpoint.refills == endpoint.stash
    assert [post.what for post in endpoint.posts] == ["fi_trecv"] * 2
    assert endpoint.posts[0].args[4:] == (ANYBODY, 0x05, 0xF0)


def test_a_receive_whose_message_is_elsewhere_looks_there(endpoint: Any) -> None:
    def moved(transfer: Any) -> None:
        endpoint.stash.append(kept(b"kept"))
        raise Refill

    endpoint.outcomes = [moved]
    assert endpoint.receive() == b"kept"
    assert len(endpoint.posts) == 1


@pytest.mark.parametrize("abandoned", [False, True])
def test_a_receive_that_stays_with_the_provider_keeps_its_memory(abandoned: bool, endpoint: Any) -> None:
    def moved(transfer: Any) -> None:
        transfer.state = State.ABANDONED if abandoned else State.POSTED
        raise Refill

    endpoint.outcomes = [moved]
    endpoint.comes(b"hello")
    assert endpoint.receive(private=True) == b"hello"
    first, second = endpoint.posts
    assert (first.args[1] is second.args[1]) is not abandoned
    assert second.args[2] == 8


def test_a_cancelled_receive_that_got_a_message_keeps_it(endpoint: Any) -> None:
    endpoint.outcomes = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        endpoint.receive(where=(ANYBODY, 5, 0))
    (post,) = endpoint.posts
    ffi.memmove(post.args[1], b"late", 4)
    post.length, post.tag, post.source = 4, 5, 7
    post.orphaned(post)
    assert [(each.message, each.tag, each.source) for each in endpoint.stash] == [(b"late", 5, 7)]
    post.length = 9  # longer than its memory
    post.orphaned(post)
    assert len(endpoint.stash) == 1


@pytest.mark.parametrize("tagged", [False, True])
def test_a_receive_posted_from_c_keeps_its_message_too(tagged: bool, endpoint: Any) -> None:
    memory = bytearray(b"hello...")
    posted = Hashable(pins=None, tagged=tagged, length=5, tag=9, source=None, data=0, flags=0)
    keep: Any = endpoint._keeper(posted, memory)
    keep(posted)
    assert [(each.message, each.tag) for each in endpoint.stash] == [(b"hello", 9 if tagged else None)]


# -- the memory


@pytest.mark.parametrize(
    ("start", "size", "apart"), [(0, 4, True), (12, 4, True), (0, 5, False), (11, 5, False), (5, 2, False)]
)
def test_two_receives_do_not_share_memory(start: int, size: int, apart: bool, endpoint: Any) -> None:
    memory = bytearray(16)
    (waiting,) = endpoint._kept_apart(pin(memoryview(memory)[4:12], writable=True))
    endpoint.handle.receive_ranges.append([waiting])
    other = pin(memoryview(memory)[start : start + size], writable=True)
    if apart:
        assert endpoint._kept_apart(other) == [(waiting[0] - 4 + start, waiting[0] - 4 + start + size)]
    else:
        with pytest.raises(ValueError, match="overlapping memory"):
            endpoint._kept_apart(other)


@pytest.mark.parametrize("second", [4, 3])
def test_the_pieces_of_one_receive_do_not_share_memory(second: int, endpoint: Any) -> None:
    memory = memoryview(bytearray(16))
    pieces = Pieces.room([memory[:4], memory[second:8]], 2)
    if second == 4:
        assert len(endpoint._kept_apart(pieces)) == 2
    else:
        with pytest.raises(ValueError, match="overlapping memory"):
            endpoint._kept_apart(pieces)


def test_pieces_are_filled_in_turn_and_kept_apart_meanwhile(endpoint: Any) -> None:
    parts = [bytearray(3), bytearray(5)]
    seen: list[Any] = []

    def arrives(transfer: Any) -> None:
        seen.extend(endpoint.handle.receive_ranges)
        transfer.length = 6

    endpoint.outcomes = [arrives]
    assert endpoint.call(endpoint._recv_into_direct(Pieces.room(parts, 2), None)) == 6
    (post,) = endpoint.posts
    assert (post.what, post.args[3:]) == ("fi_recvv", (2, ANYBODY))
    assert len(seen[0]) == len(endpoint.apart) == 2
    assert endpoint.handle.receive_ranges == []
    endpoint.stash.append(kept(b"kept"))
    assert endpoint.call(endpoint._recv_into_direct(Pieces.room(parts, 2), None)) == 4
    assert b"".join(parts) == b"kept\0\0\0\0"
    assert endpoint.handle.receive_ranges == []


@pytest.mark.parametrize(("overflow", "most"), [(None, 5), (object(), 3)])
def test_the_overflow_area_is_one_of_the_pieces(overflow: Any, most: int, endpoint: Any) -> None:
    endpoint.handle.info.rx_attr.iov_limit = 5
    endpoint.handle.overflow = overflow
    assert len(endpoint._room([bytearray(1) for _ in range(most)])) == most
    with pytest.raises(ValueError, match=f"1 to {most} buffers"):
        endpoint._room(tuple(bytearray(1) for _ in range(most + 1)))
    assert len(endpoint._room(bytearray(7))) == 7


# -- other calls


def test_a_direct_receive_needs_a_size(endpoint: Any) -> None:
    endpoint.comes(b"hello")
    assert endpoint.call(endpoint._recv_direct(5)) == b"hello"
    with pytest.raises(TypeError, match="pass the size of the largest message"):
        endpoint.call(endpoint._recv_direct(None))
    endpoint.handle.pool = object()
    with pytest.raises(TypeError, match="this one has a pool"):
        endpoint.call(endpoint._recv_direct(5))


def test_only_a_pool_has_messages_at_hand(endpoint: Any) -> None:
    with pytest.raises(TypeError, match="has no pool"):
        endpoint.recv_nowait()
    endpoint.handle.pool = pool = SimpleNamespace(
        inbox=[], ended=None, first=lambda: "buffer", unpack=lambda receiver, buffer: (receiver, buffer)
    )
    assert endpoint.recv_nowait() is None
    pool.inbox.append("buffer")
    assert endpoint.recv_nowait() == (endpoint, "buffer")
    pool.ended = lambda: ConnectionResetError("gone")
    assert endpoint.recv_nowait() == (endpoint, "buffer")
    pool.inbox.clear()
    with pytest.raises(ConnectionResetError):
        endpoint.recv_nowait()


@pytest.mark.parametrize(
    ("error", "state", "ends"),
    [
        (FabricConnectionEndedError(104, "recv"), "", True),
        (ClosedResourceError(), "closed", True),
        (ClosedResourceError(), "ending", True),
        (ClosedResourceError(), "", False),
        (ConnectionResetError(), "closed", False),
    ],
)
def test_an_iteration_ends_with_the_peers_end_or_the_programs(
    error: Exception, state: str, ends: bool, endpoint: Any
) -> None:
    async def recv() -> Any:
        raise error

    endpoint.recv = recv
    if state:
        setattr(endpoint.handle, state, True)
    with pytest.raises(StopAsyncIteration if ends else type(error)):
        endpoint.call(endpoint.__anext__())
