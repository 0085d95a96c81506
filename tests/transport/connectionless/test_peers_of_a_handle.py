"""Routes, numbers and receives of peers that come and go, and memberships in groups: the state alone."""

# Doubles: the routes of peers, which peers are endpoints of this process, and calls of libfabric.
# Privates: objects with the methods of the handle, and of a membership, stand for them.

import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import Address, Caps, NotSupportedError
from aiofabric._ffi import constants, ffi
from aiofabric.address_vector import Peer
from aiofabric.cm.events import JOIN_COMPLETE
from aiofabric.features import Quirk
from aiofabric.transport.connectionless import handle as module
from aiofabric.transport.connectionless import multicast
from aiofabric.transport.connectionless.handle import ConnectionlessHandle
from aiofabric.transport.connectionless.multicast import _Membership
from tests.cq.manual import Caller, EndingRoute, ManualDriver
from tests.fixtures.methods import Hashable, methods_of

pytestmark = pytest.mark.once

THERE = Address.from_ip("127.0.0.1", 7)


class Recorded(EndingRoute):
    """A route of the handle."""

    def __init__(self, handle: Any, native: int, address: Any) -> None:
        self.made_for = (native, address)
        super().__init__()
        self.peer = native
        self.posted: list[int] = []


class InProcess(Recorded):
    """A route to an endpoint of this process."""


class Prefixed(Recorded):
    """A route that puts a prefix before each message."""


class Receives:
    """A queue of receives; each asks for a number."""

    def __init__(self, owner: Any, *, receives: bool = True) -> None:
        self.owner = owner
        self.receives = receives
        self.posted: list[Any] = []
        self.waiting: list[Any] = []
        self.failed: list[Any] = []

    def fail_waiting(self, error: Any, fits: Any) -> None:
        self.failed += [receive for receive in self.waiting if fits(receive)]
        self.waiting = [receive for receive in self.waiting if not fits(receive)]


@methods_of(
    ConnectionlessHandle,
    "routes",
    "route_to",
    "forget",
    "_closes_early",
    "_reads",
    "_handle_arrived",
    "_end_receives",
    "peer_removed",
    "keep_numbers",
    "release_numbers",
    "numbers_in_use",
    "receive_from",
    "wait_until_quiet",
    "_receive_queues",
)
class Handle:
    """The state of an endpoint."""

    what = "RdmEndpoint"

    def __init__(self) -> None:
        self.by_peer: dict[Any, Any] = {}
        self.known = Quirk(0)
        self.enabled = True
        self.info = SimpleNamespace(caps=0)
        self.vector = SimpleNamespace(check=self.check, remove=lambda peer: self.order.append(peer), absent=None)
        self.order: list[Any] = []
        self.kept_numbers: Counter[int] = Counter()
        self.leaving: list[Any] = []
        self.orphans: list[Any] = []
        self.rx: Any = Receives(self)
        self.recalled: dict[Any, Any] = {}
        self.recalls: list[Any] = []
        self.kept = ["memory"]
        self.send_notices: Any = None

    def check(self, peer: Any) -> None:
        if peer.vector is None:
            raise ValueError("was removed")

    def recall(self, receive: Any, error: Any) -> None:
        self.recalls.append(receive)


@pytest.fixture
def local() -> set[Any]:
    """Addresses of this process's endpoints; `"closed"` is among them if they are closed."""
    return set()


@pytest.fixture
def handle(local: set[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    it = Handle()
    monkeypatch.setattr(module, "Route", Recorded)
    monkeypatch.setattr(module, "PrefixRoute", Prefixed)
    monkeypatch.setattr(module, "prefix_of", lambda info: info.caps)
    in_process = SimpleNamespace(
        reads_ours=lambda _, address: address in local,
        SameProcessRoute=InProcess,
        is_closed=lambda address: "closed" in local,
        closed=OSError,
        sweep=lambda: it.order.append("swept"),
    )
    monkeypatch.setattr(module, "shm_same_process", in_process)
    return it


def peer(number: int = 5, *, removed: bool = False) -> Peer:
    vector: Any = None if removed else object()
    return Peer(THERE, number, vector)


# -- routes


def test_a_peer_has_one_route(handle: Any) -> None:
    there = peer()
    route = handle.route_to(there)
    assert handle.route_to(there) is route
    assert list(handle.routes) == [route]
    assert (type(route), route.made_for, route.closed_off) == (Recorded, (5, THERE), None)


@pytest.mark.parametrize(("prefix", "near", "kind"), [(0, False, Recorded), (4, False, Prefixed), (0, True, InProcess)])
def test_some_peers_have_routes_of_their_own_kind(
    prefix: int, near: bool, kind: type, handle: Any, local: set[Any]
) -> None:
    handle.info.caps = prefix
    if near:
        local.add(THERE)
    assert type(handle.route_to(peer())) is kind


@pytest.mark.parametrize("known", [Quirk(0), Quirk.CLOSED_LOCAL_PEER_CRASHES])
@pytest.mark.parametrize("closed", [False, True])
def test_nothing_is_sent_to_a_closed_endpoint_of_this_process(
    closed: bool, known: Quirk, handle: Any, local: set[Any]
) -> None:
    handle.known = known
    if closed:
        local.add("closed")
    assert (handle.route_to(peer()).closed_off is not None) is (closed and bool(known))


@pytest.mark.parametrize(
    ("given", "words"), [(None, "a RdmEndpoint may have many peers: name the peer"), ("there", "'there' is no Peer")]
)
def test_a_send_names_a_peer(given: Any, words: str, handle: Any) -> None:
    with pytest.raises(TypeError, match=words):
        handle.route_to(given)
    with pytest.raises(ValueError, match="was removed"):
        handle.route_to(peer(removed=True))
    assert not handle.by_peer


def test_a_receive_names_a_peer_only_if_the_provider_can(handle: Any) -> None:
    named = SimpleNamespace(prov_name="none", name="none", type=SimpleNamespace(name="RDM"))
    handle.info = SimpleNamespace(caps=0, fabric_attr=named, domain_attr=named, ep_attr=named)
    with pytest.raises(NotSupportedError):
        handle.receive_from(peer())
    handle.info.caps = Caps.DIRECTED_RECV
    assert handle.receive_from(peer(5)) == 5
    with pytest.raises(ValueError, match="was removed"):
        handle.receive_from(peer(removed=True))


# -- peers that are removed


def receive(number: int, what: str = "fi_trecv") -> Any:
    """A receive of tagged messages, from this number alone."""
    arguments = (None, None, 8, None, number, 3, 0, None)
    if what == "fi_trecvmsg":
        arguments = (None, SimpleNamespace(addr=number, tag=3, ignore=0), 0)  # type: ignore[assignment]
    return Hashable(what=what, post=(None, arguments))


def test_the_sends_and_receives_of_a_removed_peer_end(handle: Any) -> None:
    there = peer(5)
    route = handle.route_to(there)
    ours, others, claim = receive(5), receive(6), receive(5, "fi_trecvmsg")
    waiting, stays = receive(5), receive(constants.FI_ADDR_UNSPEC)
    handle.rx.posted, handle.rx.waiting = [ours, others, claim], [waiting, stays]
    handle.peer_removed(there)
    assert isinstance(route.closed_off(), ClosedResourceError)
    assert route.failed is route.closed_off
    assert (handle.by_peer, handle.leaving) == ({}, [route])
    assert (handle.recalls, handle.rx.failed) == ([ours], [waiting])
    assert handle.rx.waiting == [stays]


def test_a_receive_that_ends_already_gets_the_better_reason(handle: Any) -> None:
    ours = receive(5)
    handle.rx.posted, handle.recalled[ours] = [ours], OSError
    handle.peer_removed(peer(5))
    assert isinstance(handle.recalled[ours](), ClosedResourceError)
    assert (handle.recalls, handle.leaving) == ([], [])  # no route was made for it


def test_receives_of_closed_aliases_end_with_their_peer(handle: Any) -> None:
    alias: Any = Handle()
    queue, sends = Receives(alias), Receives(alias, receives=False)
    ours = receive(5)
    queue.posted = sends.posted = [ours]
    handle.orphans = [queue, sends]
    handle.peer_removed(peer(5))
    assert (alias.recalls, handle.recalls) == ([ours], [])


@pytest.mark.parametrize("known", [Quirk(0), Quirk.CLOSED_LOCAL_PEER_CRASHES])
def test_a_peer_is_forgotten_and_closed_endpoints_may_go(known: Quirk, handle: Any) -> None:
    handle.known = known
    there = peer()
    handle.forget(there)
    assert handle.order == ([there, "swept"] if known else [there])


def test_arrived_messages_are_handled_before_a_connection_closes(handle: Any) -> None:
    """rxm over verbs would post their buffers at the freed connection; the crash is shown by make test-rdma."""
    handle.known = Quirk.CLOSE_POSTS_RECEIVES
    driver = SimpleNamespace(closed=lambda: False)
    handle.source = SimpleNamespace(driver=driver, drain=lambda: handle.order.append("read"))
    there = peer()
    handle.forget(there)
    assert handle.order.count("read") > 64
    assert handle.order[-1] is there


@pytest.mark.parametrize("known", [Quirk(0), Quirk.CLOSE_POSTS_RECEIVES])
def test_receives_are_cancelled_before_a_close_and_large_messages_end(known: Quirk, handle: Any) -> None:
    """rxm over verbs would answer a large message over the freed connection; the crash is shown by make test-rdma."""
    handle.rx.posted = [SimpleNamespace(slot=SimpleNamespace(pointer=name)) for name in ("plain", "large")]
    handle.known = known
    handle.cancel = handle.order.append

    def drain() -> None:
        handle.order.append("read")
        handle.rx.posted.pop()

    handle.source = SimpleNamespace(driver=SimpleNamespace(closed=lambda: False), drain=drain)
    handle._end_receives()
    assert handle.order == (["plain", "large", "read", "read"] if known else [])


def test_a_close_waits_for_large_messages_for_a_short_time(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGE_MESSAGES", 0.0)
    handle.known = Quirk.CLOSE_POSTS_RECEIVES
    handle.rx.posted = [SimpleNamespace(slot=SimpleNamespace(pointer="large"))]
    handle.cancel = handle.order.append
    handle.source = SimpleNamespace(driver=SimpleNamespace(closed=lambda: False), drain=lambda: None)
    handle._end_receives()
    assert handle.order == ["large"]


# -- numbers that the provider may still use


def test_numbers_are_in_use_while_an_operation_may_name_them(handle: Any) -> None:
    leaving, idle = Recorded(handle, 1, None), Recorded(handle, 2, None)
    leaving.posted = [1]
    handle.leaving = [leaving, idle]
    of_alias, ended = Recorded(handle, 3, None), Recorded(handle, 4, None)
    of_alias.posted = [1]
    receives = Receives(handle)
    receives.posted = [receive(8)]
    for each in (of_alias, ended):
        each.receives = False  # type: ignore[attr-defined]
    handle.orphans = [of_alias, ended, receives]
    handle.rx.posted, handle.rx.waiting = [receive(5), receive(6, "fi_trecvmsg")], [receive(7)]
    handle.keep_numbers(9, 9)
    assert handle.numbers_in_use() == {1, 3, 5, 6, 7, 8, 9}
    assert handle.leaving == [leaving]


def test_a_number_is_held_as_often_as_it_was_asked_for(handle: Any) -> None:
    handle.keep_numbers(9, 10, 9)
    handle.release_numbers(9)
    assert set(handle.kept_numbers) == {9, 10}
    handle.release_numbers(9, 10)
    assert set(handle.kept_numbers) == set()


def test_memory_that_peers_read_is_kept_until_the_close_if_no_notice_can_be_sent(handle: Any) -> None:
    handle.wait_until_quiet()
    assert handle.kept == ["memory"]


def test_an_endpoint_that_carries_connections_sends_notices_for_memory_that_peers_read(handle: Any) -> None:
    begun: list[str] = []
    handle.send_notices = lambda: begun.append("notices")
    handle.wait_until_quiet()
    assert begun == ["notices"]


# -- memberships


@methods_of(_Membership, "joined", "event", "event_error", "wait_failed", "release", "_answered")
class Membership:
    """The state of a membership."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.error: Any = None
        self.waiter: Any = None
        self.fid = ffi.NULL
        self.forgotten: list[int] = []
        self.endpoint = SimpleNamespace(
            source=SimpleNamespace(driver=self.driver, touch_events=lambda: None),
            events=SimpleNamespace(forget=self.forgotten.append),
        )

    def call(self) -> Caller:
        own: Any = self
        return Caller(self.driver, own.joined())


def answer(code: int | None = None) -> Any:
    """An event of udp: with an error entry, if there is a code."""
    param = b"" if code is None else struct.pack("=8xi", code)
    return SimpleNamespace(kind=JOIN_COMPLETE, param=param)


@pytest.mark.parametrize(("code", "errno"), [(None, 0), (0, 0), (-19, 19), (19, 19)])
def test_a_group_is_joined_or_refused_with_its_event(code: int | None, errno: int) -> None:
    membership: Any = Membership()
    caller = membership.call()
    membership.event(SimpleNamespace(kind=JOIN_COMPLETE + 1, param=b""))
    membership.driver.settle_down()
    assert not caller.done
    membership.event(answer(code))
    membership.event(answer(code))
    membership.driver.settle_down()
    assert caller.done
    assert (getattr(caller.outcome, "errno", 0), bool(membership.error)) == (errno, bool(errno))


def test_eight_bytes_are_no_error_entry() -> None:
    membership: Any = Membership()
    caller = membership.call()
    membership.event(SimpleNamespace(kind=JOIN_COMPLETE, param=bytes(8)))
    membership.driver.settle_down()
    assert (caller.done, caller.outcome) == (True, None)


def test_a_join_ends_with_the_error_of_its_events() -> None:
    membership: Any = Membership()
    caller = membership.call()
    membership.event_error(SimpleNamespace(errno=19))
    membership.driver.settle_down()
    assert caller.outcome.errno == 19
    other: Any = Membership()
    caller = other.call()
    error = OSError("no events")
    assert (other.wait_failed(error), other.wait_failed(error)) == (1, 0)
    other.driver.settle_down()
    assert caller.outcome is error
    idle: Any = Membership()
    assert idle.wait_failed(error) == 0
    idle.event(answer(-19))
    assert idle.error is not None


@pytest.mark.parametrize("refused", [False, True])
def test_a_refused_membership_need_not_be_left(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multicast, "lib", SimpleNamespace(fi_close=lambda fid: -constants.FI_EINVAL))
    membership: Any = Membership()
    membership.error = OSError("refused") if refused else None
    if refused:
        membership.release()
    else:
        with pytest.raises(OSError, match="fi_close"):
            membership.release()
    assert membership.forgotten == [0]
