"""A connected endpoint's decisions: its preface and the peer's, the options of its socket, and each way to close."""

# Doubles: the workarounds that change the socket, and their switches.
# Privates: an object with the methods of `MessageEndpoint` stands for it.

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import Caps, Mode
from aiofabric.cm.preface import Preface
from aiofabric.transport.connected import endpoint as module
from aiofabric.transport.connected.closing import close_in_order
from aiofabric.transport.connected.endpoint import MessageEndpoint
from tests.cq.manual import Caller, PolledSource
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once


class Handle:
    """The handle of the endpoint; it records what happens, in order."""

    def __init__(self) -> None:
        self.order: list[Any] = []
        self.source = PolledSource()
        self.source.touch_events = lambda: self.order.append("events")  # type: ignore[attr-defined]
        self.pool: Any = SimpleNamespace(
            size=64, is_shared=False, end_mark=0, discard=lambda _: self.order.append("discarded")
        )
        self.end_mark = 0
        self.closes_in_order = self.ending = self.closed = False
        self.gone: Any = None
        self.gone_waiters: tuple[Any, ...] = ()
        self.close_timeout = 5.0
        self.thread_check = SimpleNamespace(thread=1)
        self.answers = True  # whether the peer ends too

    def limit_messages(self, size: int) -> None:
        self.order.append(size)

    def closed_error(self) -> BaseException:
        return ClosedResourceError()

    async def send_end(self) -> bool:
        self.order.append("end sent")
        return self.answers

    def shutdown(self) -> None:
        self.order.append("shut down")

    def check_usable(self, call: str) -> None:
        self.order.append(call)

    def check_open(self) -> None:
        if self.closed:
            raise ClosedResourceError

    def route_to(self, peer: Any) -> Any:
        async def drained() -> None:
            self.order.append("drained")
            await self.source.yield_to_loop()

        return SimpleNamespace(drained=drained)


@methods_of(MessageEndpoint, "_introduce", "_apply_preface", "_adjust", "shutdown")
class Endpoint:
    """A connected endpoint without libfabric."""

    def __init__(self) -> None:
        self.handle: Any = Handle()
        self._handle = self.handle
        self.info: Any = SimpleNamespace(
            caps=Caps.MSG,
            mode=Mode(0),
            domain_attr=SimpleNamespace(cq_data_size=8),
            tx_attr=SimpleNamespace(caps=0, tclass=SimpleNamespace(dscp=None)),
            rx_attr=SimpleNamespace(caps=0),
        )
        self._heartbeat: float | None = None

    @property
    def order(self) -> list[Any]:
        found: list[Any] = self.handle.order
        return found

    def call(self, coroutine: Any) -> Caller:
        return Caller(self.handle.source.driver, coroutine)


@pytest.fixture
def endpoint() -> Any:
    return Endpoint()


def options(*, preface: bool = True, heartbeat: float | None = None) -> Any:
    return SimpleNamespace(preface=preface, heartbeat=heartbeat)


# -- what this side tells


def test_without_a_preface_nothing_is_told(endpoint: Any) -> None:
    assert endpoint._introduce(options(preface=False, heartbeat=5.0)) is None
    assert endpoint.handle.pool.end_mark == 0


def test_a_pool_tells_the_size_of_its_receives_and_the_mark_of_the_end(endpoint: Any) -> None:
    preface = endpoint._introduce(options(heartbeat=3.5))
    assert (preface.heartbeat, preface.max_message) == (3500, 64)
    assert preface.end_mark == endpoint.handle.pool.end_mark != 0
    assert endpoint._introduce(options()).heartbeat == 0


@pytest.mark.parametrize("reason", ["shared", "prefix"])
def test_a_pool_that_sees_no_mark_tells_its_size_alone(reason: str, endpoint: Any) -> None:
    endpoint.handle.pool.is_shared = reason == "shared"
    endpoint.info.mode = Mode.MSG_PREFIX if reason == "prefix" else Mode.CONTEXT
    preface = endpoint._introduce(options())
    assert (preface.max_message, preface.end_mark, endpoint.handle.pool.end_mark) == (64, 0, 0)


def test_a_program_that_posts_each_receive_tells_no_size(endpoint: Any) -> None:
    endpoint.handle.pool = None
    preface = endpoint._introduce(options(heartbeat=4.0))
    assert (preface.heartbeat, preface.max_message, preface.end_mark) == (4000, 0, 0)


# -- what the peer tells


def test_a_peer_without_a_preface_gets_no_mark(endpoint: Any) -> None:
    endpoint._heartbeat = 7.0
    endpoint._apply_preface(None)
    handle = endpoint.handle
    assert (handle.closes_in_order, handle.end_mark, handle.order, endpoint._heartbeat) == (True, 0, [], 7.0)


@pytest.mark.parametrize("sends", [True, False])
def test_the_peers_mark_is_used_by_an_endpoint_that_sends(sends: bool, endpoint: Any) -> None:
    endpoint.info.caps = Caps.MSG if sends else Caps.MSG | Caps.RECV
    endpoint._apply_preface(Preface(0, 100, 77))
    assert endpoint.handle.end_mark == (77 if sends else 0)
    assert endpoint.order == [100]


def test_a_peer_without_a_pool_limits_nothing(endpoint: Any) -> None:
    endpoint._apply_preface(Preface(0))
    assert endpoint.order == []


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"), [(None, 0, None), (None, 5000, 5.0), (7.0, 5000, 5.0), (4.0, 5000, 4.0)]
)
def test_the_shorter_heartbeat_holds(ours: float | None, theirs: int, agreed: float | None, endpoint: Any) -> None:
    endpoint._heartbeat = ours
    endpoint._apply_preface(Preface(theirs))
    assert endpoint._heartbeat == agreed


# -- the socket


@pytest.mark.parametrize("on", ["", "pacing", "keepalive", "traffic_class", "coalescing"])
@pytest.mark.parametrize("wanted", [True, False])
def test_each_workaround_changes_the_socket_if_it_is_on_and_wanted(
    wanted: bool, on: str, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Any] = []
    monkeypatch.setattr(module, "is_on", lambda name: name == on)
    monkeypatch.setattr(module, "never_paced", lambda _: changes.append("pacing"))
    monkeypatch.setattr(module, "notice_silence", lambda _, seconds: changes.append(("keepalive", seconds)))
    monkeypatch.setattr(module, "mark", lambda _, dscp: changes.append(("traffic_class", dscp)))
    route = SimpleNamespace(keep_socket=lambda number: changes.append(("coalescing", number)))
    if wanted:
        endpoint._heartbeat = 5.0
        endpoint.info.tx_attr.tclass.dscp = 0
    endpoint._adjust(SimpleNamespace(fileno=lambda: 9), route)
    optional = {"keepalive": [("keepalive", 5.0)], "traffic_class": [("traffic_class", 0)]}
    always = {"": [], "pacing": ["pacing"], "coalescing": [("coalescing", 9)]}
    assert changes == (always[on] if on in always else optional[on] if wanted else [])


# -- a shutdown


def test_a_shutdown_waits_until_the_provider_has_everything(endpoint: Any) -> None:
    caller = endpoint.call(endpoint.shutdown())
    assert (caller.done, endpoint.order) == (False, ["fi_shutdown", "drained"])
    endpoint.handle.source.driver.settle_down()
    assert caller.done
    assert endpoint.order == ["fi_shutdown", "drained", "shut down", "events"]


@pytest.mark.parametrize("reason", ["gone", "ending", "closed"])
def test_an_end_that_comes_meanwhile_needs_no_shutdown(reason: str, endpoint: Any) -> None:
    caller = endpoint.call(endpoint.shutdown())
    setattr(endpoint.handle, reason, OSError if reason == "gone" else True)
    endpoint.handle.source.driver.settle_down()
    assert caller.done
    assert endpoint.order == ["fi_shutdown", "drained"]
    assert isinstance(caller.outcome, ClosedResourceError) is (reason == "closed")


# -- closing in order


def close_now(endpoint: Any) -> None:
    """Close in order on asyncio, which the time limit needs; nothing has to be awaited."""
    asyncio.run(close_in_order(endpoint.handle))


def test_a_peer_that_does_not_end_is_not_awaited(endpoint: Any) -> None:
    handle = endpoint.handle
    handle.answers = False
    close_now(endpoint)
    assert endpoint.order == ["discarded", "end sent"]
    assert (handle.ending, handle.thread_check.thread, handle.source.interest) == (True, 0, 1)


@pytest.mark.parametrize("reason", ["gone", "closed"])
def test_an_end_that_has_come_is_not_awaited(reason: str, endpoint: Any) -> None:
    handle = endpoint.handle
    setattr(handle, reason, OSError if reason == "gone" else True)
    close_now(endpoint)
    assert endpoint.order == ["discarded", "end sent"]
    assert handle.source.interest == 1


def test_a_second_close_sends_no_second_end(endpoint: Any) -> None:
    handle = endpoint.handle
    handle.ending, handle.gone = True, OSError
    close_now(endpoint)
    assert endpoint.order == []


def test_an_endpoint_without_a_pool_drops_no_messages(endpoint: Any) -> None:
    handle = endpoint.handle
    handle.pool, handle.answers = None, False
    close_now(endpoint)
    assert endpoint.order == ["end sent"]
