"""Decisions of a handle by its state: limits, receives posted from C, refusals, and the order of its end."""

# Privates: an object with the handle's methods stands for it; `_end` and `_close_native` only record their call.

from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import FabricError, Mode, OpFlags
from aiofabric._core import ThreadCheck
from aiofabric._ffi import constants, ffi
from aiofabric.features import Quirk
from aiofabric.transport.handle import EndpointHandle
from tests.cq.manual import ManualDriver
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once


class Route:
    """A route: its limits, and whether operations are posted."""

    name = "the peer"
    socket = 9

    def __init__(self, posted: int = 0) -> None:
        self.posted = [0] * posted
        self.inject_size = 64
        self.max_size = 1000


@methods_of(
    EndpointHandle,
    "may_stay_readable",
    "peer_name",
    "routes",
    "route_to",
    "receive_from",
    "open_for_use",
    "refuse",
    "check_usable",
    "peer_gone",
    "_is_over",
    "_end_after_peer",
    "_may_inject",
    "tx_flags_set",
    "socket",
    "longest",
    "limit_messages",
    "end_came",
    "wake_gone_waiters",
    "on_loop_end",
    "_in_flight",
)
class Handle:
    """The state of a handle."""

    what = "Endpoint"
    plain_receives = True
    known = Quirk(0)
    released = False

    def __init__(self) -> None:
        self.order: list[str] = []
        self.driver = ManualDriver()
        self.source = SimpleNamespace(
            driver=self.driver,
            woke=lambda: self.order.append("woke"),
            drain=lambda: self.order.append("drained"),
            wait_owners={},
        )
        self.route = Route()
        self.tx: Route | None = self.route
        self.posted_here: list[Any] = []
        self.rx = SimpleNamespace(posted=[], _receive_here=lambda *arguments: self.posted_here.append(arguments))
        self.thread_check = ThreadCheck()
        self.loop_thread = ThreadCheck()
        self.thread = 4711
        self.pool: Any = None
        self.info = SimpleNamespace(mode=Mode(0))
        self.fid = ffi.NULL
        self.overflow: Any = None
        self.cuts_off = False
        self.tag_bits = 64
        self.checkpoint: Any = None
        self.fast_path = SimpleNamespace(open=lambda *arguments: self.opened.append(arguments))
        self.opened: list[Any] = []
        self.closed = self.ending = self.end_received = self.over = False
        self.gone: Any = None
        self.gone_waiters: tuple[Any, ...] = ()
        self.children: list[Any] = []
        self.tx_flags = 0
        self.injects = True
        self.inject_size, self.max_message = 64, 1000

    @property
    def owner(self) -> Any:
        return self

    def check_open(self) -> None:
        if self.closed:
            raise ClosedResourceError("closed")

    def lost_peer(self) -> BaseException:
        return ConnectionResetError("lost")

    def peer_ended(self) -> None:
        self.order.append("peer ended")

    def _close_native(self) -> None:
        self.order.append("native closed")

    def _end(self, error: Any) -> None:
        self.order.append(type(error()).__name__)


@pytest.fixture
def handle() -> Any:
    return Handle()


# -- the peer


def test_a_connected_endpoint_has_one_route(handle: Any) -> None:
    assert (handle.peer_name, handle.socket, list(handle.routes)) == ("the peer", 9, [handle.route])
    assert handle.route_to(None) is handle.route
    with pytest.raises(TypeError, match="sends only to its connected peer: omit to="):
        handle.route_to("another")
    with pytest.raises(TypeError, match="receives only from its connected peer"):
        handle.receive_from("another")


def test_an_endpoint_without_a_connection_has_no_peer(handle: Any) -> None:
    handle.tx = None
    assert (handle.peer_name, handle.socket, list(handle.routes)) == (None, -1, [])
    with pytest.raises(TypeError):
        handle.route_to(None)


# -- the descriptor of the queue


@pytest.mark.parametrize(
    ("thread", "receives", "pooled", "may"),
    [(1, 0, None, True), (0, 0, None, False), (1, 1, None, False), (1, 0, 0, True), (1, 0, 2, False), (1, 1, 0, False)],
)
def test_a_message_may_wait_while_no_receive_is_posted(
    thread: int, receives: int, pooled: int | None, may: bool, handle: Any
) -> None:
    handle.thread_check.thread = thread
    handle.rx.posted = [1] * receives
    handle.pool = None if pooled is None else SimpleNamespace(posted=pooled)
    assert handle.may_stay_readable is may


# -- opening


def test_an_open_endpoint_admits_its_thread_and_posts_from_c(handle: Any) -> None:
    handle.pool = SimpleNamespace(is_shared=False, peer=None)
    handle.open_for_use()
    assert handle.thread_check.thread == 4711
    assert handle.posted_here == [(0, handle.thread_check, (0, 0))]
    assert handle.opened == [(handle.route, handle.pool)]
    assert handle.pool.peer == "the peer"


@pytest.mark.parametrize(
    "reason",
    ["no plain receives", "shared", "cut off", "few tag bits", Mode.MSG_PREFIX, Mode.RX_CQ_DATA, Mode.ASYNC_IOV],
)
def test_receives_of_a_special_kind_are_not_posted_from_c(reason: Any, handle: Any) -> None:
    handle.plain_receives = reason != "no plain receives"
    handle.pool = SimpleNamespace(is_shared=reason == "shared", peer=None)
    handle.cuts_off = reason == "cut off"
    handle.tag_bits = 48 if reason == "few tag bits" else 64
    handle.info.mode = reason if isinstance(reason, Mode) else Mode.CONTEXT
    handle.open_for_use()
    assert not handle.posted_here
    assert handle.opened == [(handle.route, None if reason == "shared" else handle.pool)]


def test_a_checkpoint_of_each_call_leaves_sends_to_python(handle: Any) -> None:
    handle.checkpoint = object()
    handle.open_for_use()
    assert handle.opened == [(None, None)]
    assert len(handle.posted_here) == 1


# -- refusals


def test_a_call_is_refused_for_the_first_reason_that_applies(handle: Any) -> None:
    assert "not connected yet" in str(handle.refuse("fi_send"))
    assert isinstance(handle.refuse("fi_send"), FabricError)
    handle.ending = True
    assert "is being closed" in str(handle.refuse("fi_send"))
    reason = OSError("gone")
    handle.gone = lambda: reason
    assert handle.refuse("fi_send") is reason
    handle.closed = True
    with pytest.raises(ClosedResourceError, match="closed"):
        handle.refuse("fi_send")


def test_only_the_thread_of_the_endpoint_may_call(handle: Any) -> None:
    with pytest.raises(FabricError) as caught:
        handle.check_usable("fi_send")
    assert caught.value.errno == constants.FI_EOPBADSTATE


# -- limits


def test_the_peers_receives_limit_messages(handle: Any) -> None:
    handle.limit_messages(100)
    assert (handle.max_message, handle.inject_size, handle.longest) == (100, 64, 100)
    assert (handle.route.max_size, handle.route.inject_size) == (100, 64)
    handle.limit_messages(50)
    assert (handle.max_message, handle.inject_size, handle.route.inject_size) == (50, 50, 50)
    handle.limit_messages(80)
    assert (handle.max_message, handle.route.max_size) == (50, 50)


def test_a_route_that_injects_nothing_still_does_not(handle: Any) -> None:
    handle.route.inject_size = -1
    handle.limit_messages(100)
    assert handle.route.inject_size == -1


@pytest.mark.parametrize(
    ("flags", "injects", "longest"),
    [
        (OpFlags(0), True, 1000),
        (OpFlags.INJECT, True, 64),
        (OpFlags.INJECT_COMPLETE, True, 1000),
        (OpFlags.TRANSMIT_COMPLETE, False, 1000),
        (OpFlags.DELIVERY_COMPLETE, False, 1000),
        (OpFlags.COMMIT_COMPLETE, False, 1000),
        (OpFlags.MATCH_COMPLETE, False, 1000),
    ],
)
def test_small_messages_are_injected_unless_the_program_asks_for_more(
    flags: OpFlags, injects: bool, longest: int, handle: Any
) -> None:
    handle.tx_flags_set(int(flags))
    assert (handle.tx_flags, handle.injects) == (int(flags), injects)
    assert (handle.route.inject_size, handle.route.max_size) == (64 if injects else -1, longest)


def test_no_message_is_injected_if_that_waits_for_the_peer(handle: Any) -> None:
    handle.known = Quirk.INJECT_WAITS
    handle.tx_flags_set(0)
    assert (handle.injects, handle.route.inject_size) == (False, -1)


# -- the end


def test_the_end_of_the_peer_is_handled_after_the_pass(handle: Any) -> None:
    handle.end_came()
    assert (handle.end_received, handle.order) == (True, [])
    handle.driver.iterate()
    assert handle.order == ["peer ended"]


def test_a_lost_peer_ends_everything_in_order(handle: Any) -> None:
    handle.thread_check.thread = 4711
    handle.children = [SimpleNamespace(close=lambda: handle.order.append("alias closed"))]
    waiter = handle.driver.create_waiter()
    handle.gone_waiters = (waiter,)
    handle.peer_gone()
    assert handle.order == ["drained", "alias closed", "native closed", "ConnectionResetError", "woke"]
    assert (handle.thread_check.thread, waiter.done(), handle.gone_waiters) == (0, True, ())
    assert isinstance(handle.gone(), ConnectionResetError)
    handle.peer_gone()
    assert len(handle.order) == 5


def test_a_closed_endpoint_loses_no_peer(handle: Any) -> None:
    handle.closed = True
    handle.peer_gone()
    assert (handle.order, handle.gone) == ([], None)


@pytest.mark.parametrize("reason", ["done", "loop closed"])
def test_only_tasks_that_can_wake_are_woken(reason: str, handle: Any) -> None:
    waiter = handle.driver.create_waiter()
    if reason == "done":
        waiter.set_result("before")
    handle.driver.is_closed = reason == "loop closed"
    handle.gone_waiters = (waiter,)
    handle.wake_gone_waiters()
    assert (handle.order, handle.gone_waiters) == ([], ())


@pytest.mark.parametrize(
    ("sends", "receives", "pooled", "in_flight"),
    [(0, 0, None, False), (1, 0, None, True), (0, 1, None, True), (0, 0, 0, False), (0, 0, 1, True)],
)
def test_operations_of_all_queues_are_in_flight(
    sends: int, receives: int, pooled: int | None, in_flight: bool, handle: Any
) -> None:
    handle.route.posted = [1] * sends
    handle.rx.posted = [1] * receives
    handle.pool = None if pooled is None else SimpleNamespace(posted=pooled)
    assert handle._in_flight() is in_flight


def test_the_end_of_its_own_loop_stops_an_endpoint(handle: Any) -> None:
    handle.thread_check.thread = 4711
    handle.on_loop_end(ManualDriver())
    assert (handle.over, handle.thread_check.thread) == (False, 4711)
    handle.on_loop_end(handle.driver)
    assert (handle.over, handle.thread_check.thread, handle.loop_thread.thread) == (True, 0, 0)
