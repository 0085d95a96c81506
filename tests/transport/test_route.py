"""How a route posts each form of an operation, and what it refuses before that: the calls of libfabric are recorded."""

# Doubles: fi_inject and fi_tinject answer as the test says.
# Privates: `_inject` and `_fence` are called from C.

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Caps, EndpointType, FabricError, MessageTooLongError, NotSupportedError, RemoteRegion
from aiofabric._core import ThreadCheck
from aiofabric._ffi import constants, ffi, lib
from aiofabric.features import Quirk
from aiofabric.memory import pin
from aiofabric.transport.buffers import Pieces
from aiofabric.transport.route import Route
from tests.cq.manual import Endpoint

pytestmark = pytest.mark.once

PEER = 7
INJECT, DELIVERY = constants.FI_INJECT, constants.FI_DELIVERY_COMPLETE
FENCE, COMMIT = constants.FI_FENCE, constants.FI_COMMIT_COMPLETE
COMPLETION, DATA = constants.FI_COMPLETION, constants.FI_REMOTE_CQ_DATA
REMOTE = RemoteRegion(address=4096, key=11, length=1000)


class Recorded(Route):
    """A route that records the calls instead of making them."""

    def _post_here(self, data: Any, tag: int | None) -> Any:
        return None

    def submit(self, what: str, function: Any, args: Any, pins: Any, *more: Any, **keywords: Any) -> Any:
        assert function is getattr(lib, what)
        transfer = SimpleNamespace(what=what, args=args, keep=pins, length=more[0], notify=None)  # `keep` is pointed to
        self.handle.posts.append(transfer)  # type: ignore[attr-defined]
        return transfer


class Sending:
    """The endpoint of a route: what it can do, as the test sets it."""

    def __init__(self) -> None:
        self.endpoint = Endpoint()
        self.posts: list[Any] = []
        handle: Any = SimpleNamespace(
            source=self.endpoint.source,
            fid=ffi.NULL,
            info=SimpleNamespace(
                tx_attr=SimpleNamespace(size=16, iov_limit=3),
                domain_attr=SimpleNamespace(cq_data_size=4, name="none"),
                fabric_attr=SimpleNamespace(prov_name="none", name="none"),
                ep_attr=SimpleNamespace(type=EndpointType.MSG),
                mode=0,
                caps=Caps.MSG | Caps.RMA,
            ),
            thread_check=ThreadCheck(),
            inject_size=64,
            injects=True,
            known=Quirk(0),
            tx_flags=0,
            longest=1000,
            max_message=1000,
            max_size=1000,
            regions=SimpleNamespace(busy=False, local_required=False, acquire=lambda *_: None),
            reaches_memory=True,
            last_access=None,
            posts=self.posts,
        )
        self.handle = handle
        self.route = Recorded(handle, PEER, "the peer")

    @property
    def post(self) -> Any:
        """The one call that was made."""
        (post,) = self.posts
        self.posts.clear()
        return post


@pytest.fixture
def sending() -> Iterator[Sending]:
    it = Sending()
    yield it
    it.endpoint.close()


# -- messages


@pytest.mark.parametrize(("tag", "call"), [(None, "fi_send"), (5, "fi_tsend")])
def test_a_message_is_one_buffer(tag: int | None, call: str, sending: Sending) -> None:
    sending.route.post(b"hello", tag)
    post = sending.post
    assert (post.what, post.length) == (call, 5)
    assert post.args[2:] == (5, ffi.NULL, PEER, *(() if tag is None else (tag,)))


@pytest.mark.parametrize(("tag", "call"), [(None, "fi_senddata"), (5, "fi_tsenddata")])
def test_a_message_may_carry_a_number(tag: int | None, call: str, sending: Sending) -> None:
    sending.route.post(b"hello", tag, remote_data=9)
    post = sending.post
    assert post.what == call
    assert post.args[2:] == (5, ffi.NULL, 9, PEER, *(() if tag is None else (tag,)))


@pytest.mark.parametrize(("tag", "call"), [(None, "fi_sendv"), (5, "fi_tsendv")])
@pytest.mark.parametrize("kind", [list, tuple])
def test_several_buffers_are_one_message(kind: Any, tag: int | None, call: str, sending: Sending) -> None:
    sending.route.post(kind([b"he", bytearray(b"llo")]), tag)
    post = sending.post
    assert (post.what, post.length, post.args[3]) == (call, 5, 2)


def test_one_buffer_in_a_list_is_a_plain_message(sending: Sending) -> None:
    sending.route.post([b"hello"])
    assert sending.post.what == "fi_send"
    sending.route.post([])
    assert (post := sending.post).what == "fi_send"
    assert post.length == 0


@pytest.mark.parametrize(("data", "count"), [(b"hello", 1), ([b"he", b"llo"], 2)])
@pytest.mark.parametrize(("tag", "call"), [(None, "fi_sendmsg"), (5, "fi_tsendmsg")])
@pytest.mark.parametrize(("number", "flags"), [(None, FENCE), (9, FENCE), (9, None), (None, 0)])
def test_flags_need_the_form_with_a_structure(
    number: int | None, flags: int | None, tag: int | None, call: str, data: Any, count: int, sending: Sending
) -> None:
    sending.handle.info.caps |= Caps.FENCE
    sending.route.post(data, tag, number, flags)
    post = sending.post
    if flags is None and count == 1:
        assert post.what == call.replace("msg", "data")
        return
    _, message, posted = post.args
    assert (post.what, post.length) == (call, 5)
    assert (message.addr, message.iov_count) == (PEER, count)
    assert message.data == (number or 0)
    assert posted == (flags or 0) | (0 if number is None else DATA)
    if tag is not None:
        assert message.tag == tag


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_message_is_as_long_as_the_peers_receives(parts: int, size: int, fits: bool, sending: Sending) -> None:
    sending.handle.max_message = 100
    data: Any = bytes(size) if parts == 1 else [bytes(size - 1), b"x"]
    if fits:
        sending.route.post(data)
        assert sending.post.length == 100
        return
    with pytest.raises(MessageTooLongError, match="the peer's receives take at most 100 bytes") as caught:
        sending.route.post(data)
    assert (caught.value.size, caught.value.limit, caught.value.peer) == (101, 100, "the peer")
    assert not sending.posts


@pytest.mark.parametrize("rma", [True, False])
def test_a_message_is_as_long_as_the_provider_carries(rma: bool, sending: Sending) -> None:
    sending.handle.info.caps = Caps.MSG | Caps.RMA if rma else Caps.MSG
    sending.route.post(bytes(1000))
    assert sending.post.length == 1000
    with pytest.raises(MessageTooLongError, match="the provider carries at most 1000 bytes") as caught:
        sending.route.post(bytes(1001))
    assert ("memory region" in caught.value.cure) is rma


def test_an_endpoint_whose_default_is_to_inject_sends_short_messages_only(sending: Sending) -> None:
    sending.handle.tx_flags = INJECT
    sending.route.post(bytes(64))
    assert sending.post.length == 64
    with pytest.raises(MessageTooLongError, match=r"FI_INJECT \(a default flag of the endpoint\) takes at most 64"):
        sending.route.post(bytes(65))
    sending.handle.info.caps |= Caps.FENCE
    sending.route.post(bytes(65), flags=FENCE)  # its own flags count, not the default
    assert sending.post.length == 65


# -- flags


def test_only_flags_of_sends_are_allowed(sending: Sending) -> None:
    assert sending.route.check_flags(DELIVERY, 5) == DELIVERY
    with pytest.raises(ValueError, match="cannot have the flags"):
        sending.route.check_flags(constants.FI_MULTI_RECV | DELIVERY, 5)


@pytest.mark.parametrize(("flag", "caps"), [(FENCE, Caps.FENCE), (COMMIT, Caps.RMA_PMEM)])
def test_flags_of_other_capabilities_need_them(flag: int, caps: Caps, sending: Sending) -> None:
    with pytest.raises(NotSupportedError):
        sending.route.check_flags(flag, 5)
    sending.handle.info.caps |= caps
    assert sending.route.check_flags(flag, 5) == flag


@pytest.mark.parametrize("known", [Quirk(0), Quirk.INJECT_NEVER_COMPLETES, Quirk.INJECT_WAITS])
def test_an_injected_message_is_short(known: Quirk, sending: Sending) -> None:
    """With some providers, it would never complete, or would wait for the peer: then the flag is left out."""
    sending.handle.known = known
    assert sending.route.check_flags(INJECT | DELIVERY, 64) == (DELIVERY if known else INJECT | DELIVERY)
    with pytest.raises(MessageTooLongError, match="FI_INJECT takes at most 64") as caught:
        sending.route.check_flags(INJECT, 65)
    assert (caught.value.size, caught.value.limit) == (65, 64)


@pytest.mark.parametrize(
    ("known", "flags", "size", "hangs"),
    [
        (Quirk.EMPTY_DELIVERY_HANGS, DELIVERY, 0, True),
        (Quirk.EMPTY_DELIVERY_HANGS, DELIVERY, 1, False),
        (Quirk.EMPTY_DELIVERY_HANGS, 0, 0, False),
        (Quirk(0), DELIVERY, 0, False),
    ],
)
def test_an_empty_message_that_would_never_be_delivered_is_refused(
    known: Quirk, flags: int, size: int, hangs: bool, sending: Sending
) -> None:
    sending.handle.known = known
    if not hangs:
        assert sending.route.check_flags(flags, size) == flags
        return
    with pytest.raises(NotSupportedError, match="would never complete over this provider"):
        sending.route.check_flags(flags, size)


# -- numbers beside the data


@pytest.mark.parametrize("number", [0, (1 << 32) - 1])
def test_a_number_fits_the_providers_bits(number: int, sending: Sending) -> None:
    sending.route.check_data(number)


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_another_number_is_refused(number: int, sending: Sending) -> None:
    with pytest.raises(ValueError, match="this provider carries 32 bits"):
        sending.route.post(b"hello", remote_data=number)
    assert not sending.posts


def test_a_text_is_no_number(sending: Sending) -> None:
    with pytest.raises(TypeError, match="remote_data must be an int or None, not '9'"):
        sending.route.check_data("9")  # type: ignore[arg-type]


def test_a_provider_without_such_numbers_is_told(sending: Sending) -> None:
    sending.handle.info.domain_attr.cq_data_size = 0
    with pytest.raises(NotSupportedError, match="no remote completion data"):
        sending.route.check_data(0)


# -- memory of a peer


@pytest.mark.parametrize("what", ["fi_read", "fi_write"])
def test_one_buffer_is_read_or_written(what: str, sending: Sending) -> None:
    sending.route.post_rma(what, pin(bytearray(10), writable=True), REMOTE, None, None)
    post = sending.post
    assert (post.what, post.length) == (what, 10)
    assert post.args[2:] == (10, ffi.NULL, PEER, 4096, 11)
    assert sending.handle.last_access == (what, 10)


@pytest.mark.parametrize("what", ["fi_read", "fi_write"])
def test_several_buffers_are_read_or_written(what: str, sending: Sending) -> None:
    sending.route.post_rma(what, pieces(), REMOTE, None, None)
    post = sending.post
    assert (post.what, post.length) == (f"{what}v", 7)
    assert post.args[3:] == (2, PEER, 4096, 11)


def pieces() -> Pieces:
    pins = [pin(bytearray(3), writable=True), pin(bytearray(4), writable=True)]
    return Pieces(pins, ffi.new("struct iovec[]", [(each, len(each)) for each in pins]))


def test_a_write_may_carry_a_number(sending: Sending) -> None:
    sending.route.post_rma("fi_write", pin(bytearray(10)), REMOTE, 9, None)
    post = sending.post
    assert post.what == "fi_writedata"
    assert post.args[4:] == (9, PEER, 4096, 11)


@pytest.mark.parametrize(
    ("several", "number", "flags"),
    [
        (False, None, DELIVERY),
        (False, 9, DELIVERY),
        (True, None, DELIVERY),
        (True, 9, DELIVERY),
        (True, 9, None),
        (False, None, 0),
    ],
)
def test_other_writes_need_the_form_with_a_structure(
    several: bool, number: int | None, flags: int | None, sending: Sending
) -> None:
    sending.route.post_rma("fi_write", pieces() if several else pin(bytearray(7)), REMOTE, number, flags)
    post = sending.post
    _, message, posted = post.args
    assert (post.what, post.length) == ("fi_writemsg", 7)
    assert (message.addr, message.iov_count, message.rma_iov_count) == (PEER, 1 + several, 1)
    assert (message.rma_iov.addr, message.rma_iov.len, message.rma_iov.key) == (4096, 7, 11)
    assert message.data == (number or 0)
    assert posted == (flags or 0) | (0 if number is None else DATA)


def test_a_write_of_pieces_with_a_number_has_the_default_flags(sending: Sending) -> None:
    """libfabric does not apply them to the form with a structure."""
    sending.handle.tx_flags = DELIVERY
    sending.route.post_rma("fi_write", pieces(), REMOTE, 9, None)
    assert sending.post.args[2] == DELIVERY | DATA
    sending.route.post_rma("fi_write", pieces(), REMOTE, 9, 0)
    assert sending.post.args[2] == DATA


def test_an_endpoint_without_access_to_memory_says_so(sending: Sending) -> None:
    sending.handle.reaches_memory = False
    sending.handle.info.caps = Caps.MSG
    with pytest.raises(NotSupportedError):
        sending.route.post_rma("fi_write", pin(bytearray(7)), REMOTE, None, None)
    assert sending.handle.last_access is None


@pytest.mark.parametrize("what", ["fi_read", "fi_write"])
def test_the_default_to_inject_is_for_short_writes(what: str, sending: Sending) -> None:
    sending.handle.tx_flags = INJECT | DELIVERY
    sending.route.post_rma(what, pin(bytearray(64), writable=True), REMOTE, None, None)
    post = sending.post
    assert post.what == ("fi_readmsg" if what == "fi_read" else "fi_write")
    if what == "fi_read":
        assert post.args[2] == DELIVERY  # without FI_INJECT
        return
    with pytest.raises(MessageTooLongError):
        sending.route.post_rma(what, pin(bytearray(65)), REMOTE, None, None)
    sending.route.post_rma(what, pin(bytearray(65)), REMOTE, None, DELIVERY)
    assert sending.post.what == "fi_writemsg"


# -- injected messages


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The answer of the provider, and the calls."""
    state: dict[str, Any] = {"answer": 0, "calls": []}

    def answer(*arguments: Any) -> Any:
        state["calls"].append(arguments)
        return state["answer"]

    monkeypatch.setattr(lib, "fi_inject", answer)
    monkeypatch.setattr(lib, "fi_tinject", answer)
    return state


@pytest.mark.parametrize("tag", [None, 5])
def test_an_injected_message_is_counted(tag: int | None, injected: dict[str, Any], sending: Sending) -> None:
    assert sending.route._inject(b"hello", tag)
    assert injected["calls"] == [(ffi.NULL, b"hello", 5, PEER, *(() if tag is None else (tag,)))]
    assert sending.route.untracked == 1


@pytest.mark.parametrize("tag", [None, 5])
def test_a_message_that_finds_no_room_is_not_counted(
    tag: int | None, injected: dict[str, Any], sending: Sending
) -> None:
    injected["answer"] = -constants.FI_EAGAIN
    assert not sending.route._inject(b"hello", tag)
    assert sending.route.untracked == 0
    injected["answer"] = -constants.FI_ENOTCONN
    with pytest.raises(FabricError) as caught:
        sending.route._inject(b"hello", tag)
    assert caught.value.call == ("fi_inject" if tag is None else "fi_tinject")


def test_a_message_with_a_completion_covers_those_before_it(injected: dict[str, Any], sending: Sending) -> None:
    for _ in range(5):
        sending.route._inject(b"x", None)
    assert sending.route._fence(b"y", None)
    first = sending.post
    sending.route._inject(b"x", None)
    assert (sending.route.covered, sending.route.untracked) == (5, 6)
    assert sending.route._fence(b"y", None)
    second = sending.post
    assert (sending.route.covered, sending.route.unfenced) == (6, 0)
    first.notify(first)
    assert sending.route.untracked == 1
    second.notify(second)
    assert sending.route.untracked == 0
    assert len(injected["calls"]) == 6


@pytest.mark.parametrize("count", [255, 256])
def test_the_number_of_injected_messages_is_bounded(count: int, injected: dict[str, Any], sending: Sending) -> None:
    for _ in range(count):
        sending.route._inject(b"x", None)
    assert sending.route._fence(b"y", None) is (count < 256)
    assert len(sending.posts) == (count < 256)
