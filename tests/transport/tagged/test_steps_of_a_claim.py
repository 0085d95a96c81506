"""Peeks and claims, step by step: which receive is posted, whose slot it uses, and what becomes of the message."""

# Doubles: the class of receives of claimed messages, whose instances belong to the native core.
# Privates: an object with the methods of `Peeks` stands for the endpoint.

from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import FabricError, Message, NotSupportedError, TruncatedMessageError
from aiofabric._ffi import constants, ffi
from aiofabric.features import Quirk
from aiofabric.transport.failures import Refill
from aiofabric.transport.messages.undelivered import UndeliveredMessage
from aiofabric.transport.tagged import peek as module
from aiofabric.transport.tagged.peek import Claim, Peeks, _Reserving
from aiofabric.transport.tagged.tagged import Envelope
from tests.cq.manual import done
from tests.fixtures.methods import Hashable, methods_of

pytestmark = pytest.mark.once

PEEK, CLAIM, DISCARD = constants.FI_PEEK, constants.FI_CLAIM, constants.FI_DISCARD
WHERE = (7, 5, 0)
NO_MESSAGE = FabricError(constants.FI_ENOMSG, "fi_trecvmsg")


@methods_of(
    Peeks,
    "peek_tagged",
    "claim_tagged",
    "discard_tagged",
    "_left",
    "_examine",
    "_answer",
    "_receive_claimed",
    "_receive_at_once",
    "_claimed_for_nobody",
    "_receive_for_nobody",
    "_left_behind",
)
class Endpoint:
    """An endpoint; `answers` has the outcome of each receive that is posted."""

    def __init__(self) -> None:
        self._stash: list[Any] = []
        self.info = SimpleNamespace(fabric_attr=SimpleNamespace(prov_name="none"))
        self.posts: list[Any] = []
        self.answers: list[Any] = []
        self.refusals: list[Any] = []
        self.kept_numbers: list[Any] = []
        self.slots: list[Any] = []
        self.kept: list[Any] = []
        self.order: list[Any] = []
        self.admits = True
        self.handle: Any = SimpleNamespace(
            known=Quirk(0),
            fid=ffi.NULL,
            regions=SimpleNamespace(busy=False),
            thread_check=SimpleNamespace(admits=lambda: self.admits),
            recalled={},
            recall=lambda receive, error: self.order.append("recalled"),
            source=SimpleNamespace(
                slots=SimpleNamespace(
                    reuse=lambda slot: self.slots.append(("reuse", slot)),
                    reserve=lambda slot: self.slots.append(("reserve", slot)),
                ),
                drain=lambda: self.order.append("drained"),
            ),
            rx=SimpleNamespace(
                submit=self.submit,
                outcome=self.outcome,
                fail_waiting=lambda error, fits: self.order.append("withdrawn"),
                all_posted=self.all_posted,
            ),
        )
        self._handle = self.handle

    def submit(
        self,
        what: str,
        function: Any,
        args: Any,
        keep: Any,
        size: int,
        registrations: Any,
        *,
        kind: Any,
        slot: Any,
        message: Any,
    ) -> Any:
        if self.refusals:
            raise self.refusals.pop(0)
        assert what == "fi_trecvmsg"
        post = Hashable(
            flags=args[2], size=size, slot=slot or "new slot", message=message, tag=5, source=7, data=0, error=None
        )
        post.kind = kind
        post.length = size
        self.posts.append(post)
        return post

    async def outcome(self, transfer: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        transfer.length = answer
        return transfer

    async def all_posted(self) -> None:
        self.order.append("all posted")

    def _where(self, tag: int, ignore: int, source: Any) -> tuple[int, int, int]:
        return 7, tag, ignore

    def _keep_number(self, number: int) -> None:
        self.kept_numbers.append(number)

    def _release_number(self, number: int) -> None:
        self.kept_numbers.remove(number)

    def _check_receivable(self) -> None:
        self.order.append("checked")

    def _envelope(self, got: Any, source: Any) -> Envelope:
        return Envelope(got.length, got.tag, source, None)

    def _source_of(self, address: Any) -> Any:
        return f"peer {address}"

    def _annotated(self, data: Any, transfer: Any) -> Message:
        return Message(bytes(data), None, transfer.tag)

    def _keep(self, pins: Any, tagged: bool, transfer: Any) -> None:
        assert tagged
        self.kept.append(transfer)

    def _post_receive(self, handle: Any, pins: Any, where: Any) -> Any:
        post = Hashable(flags=0, size=len(pins), where=where, tag=where[1], source=7, slot=None, data=0)
        self.posts.append(post)
        return post

    @property
    def flags(self) -> list[int]:
        return [post.flags for post in self.posts]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "_ClaimReceive", Hashable)
    return Endpoint()


def kept(data: bytes) -> UndeliveredMessage:
    return UndeliveredMessage(Message(data, None, 5), 7, 5)


# -- peeks


def test_a_peek_reports_the_envelope(endpoint: Any) -> None:
    endpoint.answers = [9]
    assert done(endpoint.peek_tagged(5)) == (9, 5, None, None)
    (post,) = endpoint.posts
    assert (post.flags, post.size, post.kind) == (PEEK, 0, None)
    assert (post.message.addr, post.message.tag, post.message.ignore, post.message.iov_count) == (*WHERE, 1)


def test_a_peek_without_a_message_reports_none(endpoint: Any) -> None:
    endpoint.answers = [NO_MESSAGE]
    assert done(endpoint.peek_tagged(5)) is None
    endpoint.answers = [FabricError(constants.FI_EIO, "fi_trecvmsg")]
    with pytest.raises(FabricError):
        done(endpoint.peek_tagged(5))


def test_a_kept_message_is_reported_first(endpoint: Any) -> None:
    endpoint._stash.append(kept(b"kept"))
    assert done(endpoint.peek_tagged(5)).length == 4
    assert (endpoint.posts, len(endpoint._stash)) == ([], 1)
    endpoint.answers = [NO_MESSAGE]
    assert done(endpoint.peek_tagged(6)) is None


def test_a_provider_that_takes_a_peek_for_a_receive_is_refused(endpoint: Any) -> None:
    endpoint.handle.known = Quirk.PEEK_RECEIVES
    with pytest.raises(NotSupportedError, match="would take FI_PEEK for a receive"):
        done(endpoint.peek_tagged(5))


# -- claims


def claimed(endpoint: Any, size: int = 9) -> Claim:
    endpoint.answers = [size]
    claim = done(endpoint.claim_tagged(5))
    assert isinstance(claim, Claim)
    endpoint.posts.clear()
    return claim


def test_a_claim_keeps_the_slot_and_the_number_of_the_peer(endpoint: Any) -> None:
    endpoint.answers = [9]
    claim = done(endpoint.claim_tagged(5))
    (post,) = endpoint.posts
    assert (post.flags, post.kind, endpoint.kept_numbers) == (PEEK | CLAIM, _Reserving, [7])
    assert claim.envelope.length == 9


@pytest.mark.parametrize("answer", [NO_MESSAGE, KeyboardInterrupt()])
def test_a_claim_of_nothing_holds_nothing(answer: BaseException, endpoint: Any) -> None:
    endpoint.answers = [answer]
    if answer is NO_MESSAGE:
        assert done(endpoint.claim_tagged(5)) is None
    else:
        with pytest.raises(KeyboardInterrupt):
            done(endpoint.claim_tagged(5))
    assert endpoint.kept_numbers == []


def test_a_claimed_message_is_received_once(endpoint: Any) -> None:
    claim = claimed(endpoint)
    endpoint.answers = [9]
    assert len(done(claim.recv())) == 9
    (post,) = endpoint.posts
    assert (post.flags, post.size, post.slot, post.message.tag) == (CLAIM, 9, "new slot", 5)
    assert (endpoint.slots, endpoint.kept_numbers) == ([("reuse", "new slot")], [])
    post.orphaned(post)  # a cancel: the next receive gets the message
    assert endpoint.kept == [post]
    for again in (claim.recv(), claim.discard(), claim.recv_into(bytearray(9))):
        with pytest.raises(ValueError, match="was received or discarded already"):
            done(again)
    assert len(endpoint.posts) == 1


@pytest.mark.parametrize(("size", "fits"), [(9, True), (8, False)])
def test_a_claimed_message_is_received_into_memory_of_its_size(size: int, fits: bool, endpoint: Any) -> None:
    claim = claimed(endpoint)
    endpoint.answers = [9]
    if fits:
        assert done(claim.recv_into(bytearray(size))) == (9, 5, "peer 7", None)
        return
    with pytest.raises(TruncatedMessageError):
        done(claim.recv_into(bytearray(size)))
    assert not endpoint.posts
    done(claim.recv())  # the claim is still valid


def test_a_claimed_message_is_dropped(endpoint: Any) -> None:
    claim = claimed(endpoint)
    endpoint.answers = [0]
    done(claim.discard())
    (post,) = endpoint.posts
    assert (post.flags, post.size, endpoint.kept_numbers) == (CLAIM | DISCARD, 0, [])
    assert not hasattr(post, "orphaned")  # a cancel drops it too


def test_a_message_whose_sender_waits_is_received_and_dropped(endpoint: Any) -> None:
    endpoint.handle.known = Quirk.DISCARD_STALLS_SENDER
    claim = claimed(endpoint)
    endpoint.answers = [9]
    done(claim.discard())
    (post,) = endpoint.posts
    assert (post.flags, post.size) == (CLAIM, 9)
    assert not hasattr(post, "orphaned")


def test_a_claim_whose_receive_is_refused_stays_valid(endpoint: Any) -> None:
    claim = claimed(endpoint)
    endpoint.refusals = [FabricError(constants.FI_EINVAL, "fi_trecvmsg")]
    with pytest.raises(FabricError):
        done(claim.recv())
    assert (endpoint.slots, endpoint.kept_numbers) == ([("reuse", "new slot"), ("reserve", "new slot")], [7])
    endpoint.answers = [9]
    done(claim.recv())
    assert endpoint.kept_numbers == []


def test_a_kept_message_is_claimed_without_the_provider(endpoint: Any) -> None:
    for way in ("recv", "recv_into", "discard"):
        endpoint._stash.append(kept(b"kept"))
        claim = done(endpoint.claim_tagged(5))
        assert (endpoint._stash, endpoint.kept_numbers, claim.envelope.length) == ([], [], 4)
        memory = bytearray(6)
        outcome = done(getattr(claim, way)(*([memory] if way == "recv_into" else [])))
        if way == "recv":
            assert outcome == b"kept"
        if way == "recv_into":
            assert (bytes(memory), outcome) == (b"kept\0\0", claim.envelope)
        with pytest.raises(ValueError, match="already"):
            done(claim.recv())
    assert not endpoint.posts


def test_a_discard_reports_the_envelope_of_the_message(endpoint: Any) -> None:
    endpoint.answers = [9, 0]
    assert done(endpoint.discard_tagged(5)).length == 9
    assert endpoint.flags == [PEEK | CLAIM, CLAIM | DISCARD]
    endpoint.answers = [NO_MESSAGE]
    assert done(endpoint.discard_tagged(5)) is None


# -- claims whose task is gone


def test_a_claim_that_was_cancelled_is_received_for_the_next_receive(endpoint: Any) -> None:
    endpoint.answers = [9]
    done(endpoint.claim_tagged(5))
    (post,) = endpoint.posts
    post.orphaned(post)
    receive = endpoint.posts[1]
    assert (receive.flags, receive.size, receive.slot) == (CLAIM, 9, "new slot")
    receive.notify(receive)
    assert endpoint.kept == [receive]
    receive.error = OSError("lost")
    receive.notify(receive)
    assert len(endpoint.kept) == 1


@pytest.mark.parametrize("way", ["recv", "discard"])
def test_a_receive_that_was_cancelled_while_it_was_queued_is_posted_again(way: str, endpoint: Any) -> None:
    claim = claimed(endpoint)
    endpoint.answers = [9]
    done(getattr(claim, way)())
    first = endpoint.posts[0]
    first.post_again()
    second = endpoint.posts[1]
    assert (second.flags, second.size, second.slot) == (first.flags, first.size, first.slot)
    assert hasattr(second, "notify") is (way == "recv")


def test_a_closed_endpoint_receives_no_claimed_message(endpoint: Any) -> None:
    endpoint.answers = [9]
    done(endpoint.claim_tagged(5))
    endpoint.admits = False
    endpoint.posts[0].orphaned(endpoint.posts[0])
    assert len(endpoint.posts) == 1
    endpoint.admits = True
    endpoint.refusals = [FabricError(constants.FI_EINVAL, "fi_trecvmsg")]
    endpoint.posts[0].orphaned(endpoint.posts[0])  # the provider keeps the message
    assert len(endpoint.posts) == 1


# -- a provider whose claims crash


@pytest.fixture
def crashing(endpoint: Any) -> Any:
    endpoint.handle.known = Quirk.CLAIMS_CRASH
    return endpoint


def test_such_a_claim_receives_at_once(crashing: Any) -> None:
    crashing.answers = [9, 9]
    claim = done(crashing.claim_tagged(5))
    assert crashing.flags == [PEEK, 0]
    assert crashing.posts[1].where == (7, 5, 0)
    assert crashing.order == ["drained", "checked", "recalled", "withdrawn"]
    assert len(done(claim.recv())) == 9
    assert crashing.kept_numbers == []


def test_such_a_claim_of_nothing_receives_nothing(crashing: Any) -> None:
    crashing.answers = [NO_MESSAGE]
    assert done(crashing.claim_tagged(5)) is None
    assert crashing.flags == [PEEK]


def test_such_a_claim_looks_again_if_another_task_got_the_message(crashing: Any) -> None:
    crashing.answers = [9, Refill(), 9, 9]
    crashing.handle.recalled["another"] = OSError
    done(crashing.claim_tagged(5))
    assert crashing.flags == [PEEK, 0, PEEK, 0]
    assert crashing.order.count("all posted") == 1
    assert crashing.handle.recalled == {"another": OSError}


def test_such_a_claim_of_a_removed_peer_ends(crashing: Any) -> None:
    crashing.answers = [9]
    with pytest.raises(ClosedResourceError, match="was removed"):
        done(crashing.claim_tagged(5, source=SimpleNamespace(vector=None, address="there")))
    assert crashing.flags == [PEEK]
