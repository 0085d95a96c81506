"""Messages that are sent, and sends that are refused, when a connection ends in order: the rules alone."""

# Privates: an object with the methods of `OrderlyEnd` stands for the endpoint.

from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import FabricBrokenPipeError, FabricError
from aiofabric._ffi import constants
from aiofabric.transport.orderly_end import OrderlyEnd
from tests.cq.manual import Caller, ManualDriver
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once

MARK = 77


class Route:
    """A route; it records what is posted, and what ended it."""

    def __init__(self, shut: Any = None) -> None:
        self.shut = shut
        self.waiting: list[str] = []
        self.posted: list[tuple[Any, ...]] = []
        self.refusal: BaseException | None = None
        self.sockets: list[int] = []
        self.keep_socket = self.sockets.append
        self.driver = ManualDriver()
        self.empty = self.driver.create_waiter()

    def post(self, *arguments: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.posted.append(arguments)

    def close_off(self, error: Any) -> None:
        self.shut = error

    async def drained(self) -> None:
        await self.empty


@methods_of(
    OrderlyEnd, "live", "peer_ended", "post_end", "end_at_once", "send_end", "shutdown", "send_no_more", "_shut_down"
)
class Endpoint:
    """The state of a connected endpoint that its end depends on."""

    peer_name = "the peer"

    def __init__(self) -> None:
        self.route = Route()
        self.tx: Route | None = self.route
        self.routes = [self.route]
        self.children: list[Any] = []
        self.end_mark = MARK
        self.gone: Any = None
        self.native_open = True
        self.closed = False
        self.ends = 0
        self.on_end: Any = self._end
        self.source = SimpleNamespace(driver=ManualDriver())
        self.shut_downs = 0

    def shut_down_native(self) -> None:
        self.shut_downs += 1

    def _end(self) -> None:
        self.ends += 1


class Alias(OrderlyEnd):
    """The handle of an alias, of which only the routes matter here."""

    peer_name = longest = cancel = explain = routes = shut_down_native = None  # type: ignore[assignment]


@pytest.fixture
def endpoint() -> Any:
    return Endpoint()


@pytest.mark.parametrize(
    ("native", "gone", "closed", "live"),
    [(True, None, False, True), (False, None, False, False), (True, OSError, False, False), (True, None, True, False)],
)
def test_an_endpoint_sends_until_it_or_its_peer_is_gone(
    native: bool, gone: Any, closed: bool, live: bool, endpoint: Any
) -> None:
    endpoint.native_open, endpoint.gone, endpoint.closed = native, gone, closed
    assert endpoint.live is live


@pytest.mark.parametrize(("gone", "closed", "ends"), [(None, False, 1), (OSError, False, 0), (None, True, 0)])
def test_the_peers_end_is_told_once_it_comes(gone: Any, closed: bool, ends: int, endpoint: Any) -> None:
    endpoint.gone, endpoint.closed = gone, closed
    endpoint.peer_ended()
    assert endpoint.ends == ends
    endpoint.on_end = None
    endpoint.peer_ended()
    assert endpoint.ends == ends


@pytest.mark.parametrize("refusal", [None, FabricError(constants.FI_ENOTCONN, "fi_send"), ClosedResourceError()])
def test_an_end_mark_that_cannot_be_sent_is_no_error(refusal: Any, endpoint: Any) -> None:
    endpoint.route.refusal = refusal
    endpoint.post_end()
    assert endpoint.route.posted == ([] if refusal else [(b"", None, MARK)])


def test_another_error_of_an_end_mark_is_raised(endpoint: Any) -> None:
    endpoint.route.refusal = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        endpoint.post_end()


# -- closing at once


def test_an_endpoint_that_closes_at_once_sends_its_end_mark(endpoint: Any) -> None:
    endpoint.end_at_once()
    assert endpoint.route.posted == [(b"", None, MARK)]


@pytest.mark.parametrize("reason", ["no mark", "no route", "queued sends", "closed loop"])
def test_otherwise_it_sends_nothing(reason: str, endpoint: Any) -> None:
    match reason:
        case "no mark":
            endpoint.end_mark = 0
        case "no route":
            endpoint.tx = None
        case "queued sends":
            endpoint.route.waiting.append("a send")
        case "closed loop":
            endpoint.source.driver.is_closed = True
    endpoint.end_at_once()
    assert not endpoint.route.posted


# -- closing in order


def test_a_peer_that_knows_the_mark_will_end_too(endpoint: Any) -> None:
    caller = Caller(endpoint.route.driver, endpoint.send_end())
    assert (caller.done, caller.outcome) == (True, True)
    assert endpoint.route.posted == [(b"", None, MARK)]


def test_for_another_peer_the_sends_are_awaited(endpoint: Any) -> None:
    endpoint.end_mark = 0
    caller = Caller(endpoint.route.driver, endpoint.send_end())
    assert not caller.done
    endpoint.route.empty.set_result(None)
    endpoint.route.driver.settle_down()
    assert (caller.done, caller.outcome) == (True, False)
    assert not endpoint.route.posted


# -- a shutdown


def test_a_shutdown_sends_the_mark_and_refuses_later_sends(endpoint: Any) -> None:
    endpoint.shutdown()
    assert (endpoint.route.posted, endpoint.shut_downs) == ([(b"", None, MARK)], 0)
    assert endpoint.route.sockets == [-1]
    error = endpoint.route.shut()
    assert isinstance(error, FabricBrokenPipeError)
    assert (error.peer, error.detail) == ("the peer", "shutdown() was called")


@pytest.mark.parametrize("connected", [True, False])
def test_without_a_mark_libfabric_shuts_down(connected: bool, endpoint: Any) -> None:
    endpoint.end_mark = 0
    if not connected:
        endpoint.tx = None
    endpoint.shutdown()
    assert endpoint.shut_downs == 1
    assert endpoint.route.sockets == ([-1] if connected else [])
    assert (endpoint.route.posted, endpoint.route.shut) == ([], None)


def test_aliases_send_no_more_either(endpoint: Any) -> None:
    earlier = object()
    own, ended, of_alias = Route(), Route(shut=earlier), Route()
    alias: Any = Alias.__new__(Alias)
    type(alias).routes = [of_alias]
    endpoint.routes = [own, ended]
    endpoint.children = [object(), alias]
    endpoint.send_no_more(OSError)
    assert (own.shut, ended.shut, of_alias.shut) == (OSError, earlier, OSError)
