"""A send, step by step: by which route, in which form, and when it returns."""

# Privates: an object with the methods of `Sends` stands for the endpoint.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import OpFlags
from aiofabric.transport.messages.send import Sends
from tests.cq.manual import Caller, PolledSource
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once


class Route:
    """A route that answers as the test says."""

    def __init__(self) -> None:
        self.shut: Any = None
        self.fast: Any = None  # False or True: sent, without or with a yield; None: to be posted
        self.injects = True
        self.completes = True  # during the poll
        self.order: list[Any] = []

    def send(self, data: Any, tag: Any) -> Any:
        self.order.append(("send", data, tag))
        return self.fast

    def inject(self, data: Any) -> bool:
        self.order.append(("inject", data))
        return self.injects

    def post(self, *arguments: Any) -> Any:
        self.order.append(("post", *arguments))
        return SimpleNamespace(error=None, notify=None)

    def finished(self, transfer: Any) -> Any:
        return transfer if self.completes else None

    async def outcome(self, transfer: Any) -> None:
        self.order.append("awaited")


@methods_of(Sends, "_send", "try_send", "send_nowait")
class Endpoint:
    """An endpoint of one route; `handle` says which."""

    def __init__(self) -> None:
        self.route, self.other = Route(), Route()
        self.asked: list[Any] = []
        self.checked: list[Any] = []
        self.admits = True
        self._handle: Any = SimpleNamespace(
            tx=self.route,
            source=PolledSource(),
            tag_bits=8,
            tags=SimpleNamespace(check=self.wrong_tag),
            checkpoint=None,
            check_usable=self.checked.append,
            thread_check=SimpleNamespace(admits=lambda: self.admits),
            refuse=lambda call: OSError(f"{call} refused"),
            route_to=self.route_to,
        )

    @property
    def handle(self) -> Any:
        return self._handle

    def wrong_tag(self, tag: int) -> None:
        raise ValueError(f"wrong tag {tag}")

    def route_to(self, peer: Any) -> Route:
        self.asked.append(peer)
        return self.route if peer is None else self.other

    def send(
        self, data: bytes = b"data", tag: Any = None, to: Any = None, number: Any = None, flags: Any = None
    ) -> Any:
        own: Any = self
        call = "fi_send" if tag is None else "fi_tsend"
        return Caller(self.handle.source.driver, own._send(call, data, tag, to, number, flags))


@pytest.fixture
def endpoint() -> Any:
    return Endpoint()


# -- an awaited send


def test_a_small_message_is_sent_at_once(endpoint: Any) -> None:
    endpoint.route.fast = False
    caller = endpoint.send()
    assert (caller.done, caller.outcome) == (True, None)
    assert endpoint.route.order == [("send", b"data", None)]
    assert (endpoint.asked, endpoint.checked, endpoint.handle.source.yields) == ([], [], 0)


def test_a_task_that_sent_many_lets_the_loop_iterate(endpoint: Any) -> None:
    endpoint.route.fast = True
    caller = endpoint.send()
    assert not caller.done
    endpoint.handle.source.driver.settle_down()
    assert (caller.done, endpoint.handle.source.yields) == (True, 1)
    assert len(endpoint.route.order) == 1


@pytest.mark.parametrize("completes", [True, False])
def test_another_message_is_posted_and_awaited_unless_a_poll_completes_it(completes: bool, endpoint: Any) -> None:
    endpoint.route.completes = completes
    assert endpoint.send().done
    assert endpoint.route.order[:2] == [("send", b"data", None), ("post", b"data", None, None, None)]
    assert ("awaited" in endpoint.route.order) is not completes


@pytest.mark.parametrize(
    ("number", "flags", "posted"), [(9, None, None), (None, OpFlags.FENCE, int(OpFlags.FENCE)), (None, OpFlags(0), 0)]
)
def test_a_number_or_flags_need_a_post(number: Any, flags: Any, posted: int | None, endpoint: Any) -> None:
    assert endpoint.send(number=number, flags=flags).done
    assert endpoint.route.order == [("post", b"data", None, number, posted)]
    assert endpoint.checked == ["fi_send"]


def test_the_peer_chooses_the_route(endpoint: Any) -> None:
    endpoint.other.fast = False
    assert endpoint.send(to="peer").done
    assert (endpoint.asked, endpoint.route.order) == (["peer"], [])
    assert endpoint.other.order == [("send", b"data", None)]


def test_an_endpoint_without_a_connection_asks_for_the_peer(endpoint: Any) -> None:
    endpoint.handle.tx, endpoint.route.fast = None, False
    endpoint.send()
    assert endpoint.asked == [None]


@pytest.mark.parametrize(("tag", "fits"), [(0, True), (255, True), (256, False), (-1, False)])
def test_a_tag_fits_the_providers_bits(tag: int, fits: bool, endpoint: Any) -> None:
    endpoint.route.fast = False
    caller = endpoint.send(tag=tag)
    assert isinstance(caller.outcome, ValueError) is not fits
    assert endpoint.route.order == ([("send", b"data", tag)] if fits else [])


def test_on_trio_each_send_is_a_checkpoint_before_anything_is_sent(endpoint: Any) -> None:
    async def checkpoint() -> None:
        raise TimeoutError("cancelled")

    endpoint.handle.checkpoint = checkpoint
    assert isinstance(endpoint.send().outcome, TimeoutError)
    assert not endpoint.route.order


# -- sends that do not wait


def test_a_small_message_leaves_or_does_not(endpoint: Any) -> None:
    assert endpoint.try_send(b"data")
    endpoint.route.injects = False
    assert not endpoint.try_send(b"data")
    endpoint.route.shut = lambda: ConnectionResetError("lost")
    with pytest.raises(ConnectionResetError):
        endpoint.try_send(b"data")
    endpoint.route.injects = True
    assert endpoint.try_send(b"data", to="peer")
    assert endpoint.other.order == [("inject", b"data")]


@pytest.mark.parametrize("call", ["try_send", "send_nowait"])
def test_another_thread_is_refused(call: str, endpoint: Any) -> None:
    endpoint.admits = False
    with pytest.raises(OSError, match="fi_send refused"):
        getattr(endpoint, call)(b"data")
    assert not endpoint.route.order


@pytest.mark.parametrize("tells", [True, False])
def test_a_message_that_was_copied_is_reported_at_once(tells: bool, endpoint: Any) -> None:
    told: list[Any] = []
    endpoint.send_nowait(b"data", told.append if tells else None)
    assert told == [None] * tells
    assert endpoint.route.order == [("inject", b"data")]


def test_a_posted_message_is_reported_with_its_error(endpoint: Any) -> None:
    told: list[Any] = []
    transfers: list[Any] = []
    post = endpoint.route.post
    endpoint.route.injects = False

    def recorded(*arguments: Any) -> Any:
        transfers.append(post(*arguments))
        return transfers[-1]

    endpoint.route.post = recorded
    endpoint.send_nowait(b"data", told.append, to=None)
    endpoint.send_nowait(b"data")
    first, second = transfers
    assert (told, second.notify) == ([], None)
    first.error = OSError("lost")
    first.notify(first)
    assert told == [first.error]


@pytest.mark.parametrize("done", [5, "done"])
def test_a_report_needs_a_function(done: Any, endpoint: Any) -> None:
    with pytest.raises(TypeError, match="done must be a function of one argument"):
        endpoint.send_nowait(b"data", done)
    assert not endpoint.route.order
