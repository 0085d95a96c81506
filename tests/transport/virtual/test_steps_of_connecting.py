"""The steps in which a virtual connection is made, on both sides, and its cleanup if one of them fails."""

# Doubles: the route of the connection, its check, and whether its memory is read directly.
# Privates: an object with the methods of `VirtualEndpoint` stands for it.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address, FabricConnectionAbortedError, FabricConnectionRefusedError, FabricConnectionRejectedError
from aiofabric.cm.handshake import ConnectionState
from aiofabric.features import Quirk
from aiofabric.transport.virtual import endpoint as module
from aiofabric.transport.virtual.endpoint import VirtualEndpoint
from aiofabric.transport.virtual.oob_socket import Frame
from aiofabric.transport.virtual.protocol import ANSWERS_PINGS, FrameKind, Hello
from tests.cq.manual import Caller, ManualDriver
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once

HELLO = Hello(1, 2, 3, 4, 5, 64, 8, 2500, b"address", b"answer")
LOCAL, OOB = Address.from_ip("127.0.0.1", 1), Address.from_ip("127.0.0.1", 9)


class Oob:
    """The OOB socket; ``takes`` is False when the peer has left."""

    local_address: Any = OOB
    peer_address: Any = OOB
    takes = True

    def __init__(self, order: list[Any]) -> None:
        self.order = order

    def send(self, kind: FrameKind, body: bytes) -> bool:
        self.order.append((kind, Hello.unpack(body)))
        return self.takes

    def poll(self) -> None:
        self.order.append("polled")

    def close(self) -> None:
        self.order.append("oob closed")


@methods_of(VirtualEndpoint, "_connect_over", "_accept_over", "_established_over")
class Endpoint:
    """The endpoint; it records the steps in order."""

    def __init__(self) -> None:
        self.order: list[Any] = []
        self.driver = ManualDriver()
        self.ready = self.driver.create_waiter()
        self.frame: Any = Frame(FrameKind.ACCEPT, HELLO.pack())
        self.oob = Oob(self.order)
        self.unknown = False  # the peer's address is invalid
        multiplexer = SimpleNamespace(
            host=3,
            endpoint=SimpleNamespace(local_address=LOCAL),
            handle="the multiplexer",
            acquire_peer=self.acquire_peer,
        )
        attr = SimpleNamespace(protocol=1, protocol_version=2)
        self._handle: Any = SimpleNamespace(
            multiplexer=multiplexer,
            known=Quirk(0),
            info=SimpleNamespace(ep_attr=attr),
            id=6,
            pooled=SimpleNamespace(number=7, none_refused=self.none_refused),
            pool=SimpleNamespace(size=100),
            window=16,
            heartbeat=None,
            closes_in_order=False,
            limit_messages=lambda size: self.order.append(("at most", size)),
            open_for_use=lambda: self.order.append("open"),
            hold=lambda oob, seconds: self.order.append(("held", seconds)),
        )
        self._stage: Any = SimpleNamespace(move=self.order.append, answer=self.answer)
        self.param = b""

    async def none_refused(self) -> None:
        self.order.append("waits for receives")
        await self.ready

    async def answer(self, oob: Any) -> Frame:
        self.order.append("waits for the answer")
        frame: Frame = self.frame
        return frame

    def acquire_peer(self, raw: bytes) -> Any:
        if self.unknown:
            raise ValueError("no address")
        self.order.append(raw)
        return SimpleNamespace(native=11, address="the peer")

    def close(self) -> None:
        self.order.append("closed")

    # -- for the test

    @property
    def handle(self) -> Any:
        return self._handle

    def run(self, coroutine: Any) -> Any:
        """The outcome of a call whose receives are posted at once."""
        caller = Caller(self.driver, coroutine)
        assert not caller.done
        assert self.order[-1] == "waits for receives"  # nothing is told before they are posted
        self.ready.set_result(None)
        self.driver.settle_down()
        assert caller.done
        return caller.outcome


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Any:
    it = Endpoint()
    monkeypatch.setattr(module, "reads_ours", lambda *_: True)

    def route(handle: Any, native: int, hello: Hello, name: Any, *, near: bool) -> Any:
        it.order.append(("route", native, name, near))
        return "the route"

    monkeypatch.setattr(module, "ConnectionRoute", route)
    return it


OURS = Hello(1, 2, 3, 6, 7, 100, 16, 0, LOCAL.raw, b"question")


@pytest.mark.parametrize(("host", "checked"), [(0, False), (3, False), (ANSWERS_PINGS, True)])
def test_the_client_checks_the_fabric_if_the_listener_answers_pings(
    host: int, checked: bool, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check_path(handle: Any, peer: Any, *, required: bool) -> None:
        endpoint.order.append(("checked", peer))

    monkeypatch.setattr(module, "check_path", check_path)
    endpoint.frame = Frame(FrameKind.ACCEPT, HELLO._replace(host=host).pack())
    assert endpoint.run(endpoint._connect_over(endpoint.oob, b"")) is None
    assert endpoint.order[-1] == (("checked", OOB) if checked else ("held", 2.5))


def test_a_failed_check_closes_the_endpoint(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check_path(handle: Any, peer: Any, *, required: bool) -> None:
        raise TimeoutError

    monkeypatch.setattr(module, "check_path", check_path)
    endpoint.frame = Frame(FrameKind.ACCEPT, HELLO._replace(host=ANSWERS_PINGS).pack())
    assert isinstance(endpoint.run(endpoint._connect_over(endpoint.oob, b"")), TimeoutError)
    assert endpoint.order[-2:] == ["oob closed", "closed"]


@pytest.mark.parametrize(
    ("host", "room", "told"), [(0, 50, ANSWERS_PINGS), (0, 0, ANSWERS_PINGS), (3, 50, ANSWERS_PINGS), (3, 0, 3)]
)
def test_a_listener_says_that_it_answers_pings(host: int, room: int, told: int, endpoint: Any) -> None:
    """Also if its provider stays within its host: shm takes no message before both sides know each other. But not if
    the client posts each receive."""
    endpoint.handle.multiplexer.host = host
    endpoint.run(endpoint._accept_over(endpoint.oob, HELLO._replace(room=room), b"question"))
    assert endpoint.order[3] == (FrameKind.ACCEPT, OURS._replace(host=told))


def test_a_listener_over_rxd_asks_for_no_ping_that_would_wait_behind_a_closed_connection(endpoint: Any) -> None:
    endpoint.handle.multiplexer.host = 0
    endpoint.handle.known = Quirk.WAITS_IN_LINE
    endpoint.run(endpoint._accept_over(endpoint.oob, HELLO, b"question"))
    assert endpoint.order[3] == (FrameKind.ACCEPT, OURS._replace(host=0))


def test_the_client_asks_and_the_answer_establishes_the_connection(endpoint: Any) -> None:
    assert endpoint.run(endpoint._connect_over(endpoint.oob, b"question")) is None
    assert endpoint.order == [
        ConnectionState.CONNECTING,
        "waits for receives",
        (FrameKind.CONNECT, OURS),
        "waits for the answer",
        b"address",
        ("route", 11, OOB, True),
        ConnectionState.CONNECTED,
        ("at most", 64),
        "open",
        ("held", 2.5),
    ]
    assert (endpoint.param, endpoint.handle.closes_in_order) == (b"answer", True)
    assert (endpoint.local_address, endpoint.peer_address, endpoint.handle.tx) == (OOB, OOB, "the route")


def test_the_listener_answers_after_its_receives_are_posted(endpoint: Any) -> None:
    assert endpoint.run(endpoint._accept_over(endpoint.oob, HELLO, b"question")) is None
    assert endpoint.order[:4] == [
        ConnectionState.CONNECTING,
        "waits for receives",
        "polled",  # the peer may have left meanwhile
        (FrameKind.ACCEPT, OURS._replace(host=ANSWERS_PINGS)),
    ]
    assert endpoint.order[-1] == ("held", 2.5)
    assert endpoint.param == b""  # the request's data is the request's


def test_a_peer_that_posts_each_receive_limits_nothing(endpoint: Any) -> None:
    endpoint.frame = Frame(FrameKind.ACCEPT, HELLO._replace(room=0, heartbeat=0).pack())
    endpoint.run(endpoint._connect_over(endpoint.oob, b""))
    assert endpoint.order[-3:] == [ConnectionState.CONNECTED, "open", ("held", 0.0)]


def test_without_a_pool_no_size_is_told_and_a_heartbeat_is(endpoint: Any) -> None:
    endpoint.handle.pool, endpoint.handle.heartbeat = None, 3.5
    endpoint.run(endpoint._connect_over(endpoint.oob, b"question"))
    assert endpoint.order[2] == (FrameKind.CONNECT, OURS._replace(room=0, heartbeat=3500))


def test_without_names_of_the_oob_socket_the_fabrics_are_told(endpoint: Any) -> None:
    endpoint.oob.local_address = endpoint.oob.peer_address = None
    endpoint.run(endpoint._connect_over(endpoint.oob, b""))
    assert (endpoint.local_address, endpoint.peer_address) == (LOCAL, "the peer")


@pytest.mark.parametrize("accepts", [False, True])
def test_a_peer_that_has_left_ends_both(accepts: bool, endpoint: Any) -> None:
    endpoint.oob.takes = False
    call = endpoint._accept_over(endpoint.oob, HELLO, b"") if accepts else endpoint._connect_over(endpoint.oob, b"")
    error = endpoint.run(call)
    assert isinstance(error, FabricConnectionAbortedError)
    assert "went away" in str(error)
    assert endpoint.order[-2:] == ["oob closed", "closed"]


@pytest.mark.parametrize("accepts", [False, True])
def test_an_invalid_address_is_the_peers_error(accepts: bool, endpoint: Any) -> None:
    endpoint.unknown = True
    call = endpoint._accept_over(endpoint.oob, HELLO, b"") if accepts else endpoint._connect_over(endpoint.oob, b"")
    error = endpoint.run(call)
    assert isinstance(error, FabricConnectionAbortedError)
    assert f"It {'asked' if accepts else 'answered'} with no address" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert endpoint.order[-2:] == ["oob closed", "closed"]


def test_an_invalid_answer_is_the_peers_error(endpoint: Any) -> None:
    endpoint.frame = Frame(FrameKind.ACCEPT, b"?")
    error = endpoint.run(endpoint._connect_over(endpoint.oob, b""))
    assert isinstance(error, FabricConnectionAbortedError)
    assert "too short for a hello" in str(error)


@pytest.mark.parametrize(
    ("frame", "kind", "words"),
    [
        (Frame(FrameKind.REJECT, b"go away"), FabricConnectionRejectedError, "rejected"),
        (Frame(FrameKind.MISMATCH, b"shm connections only"), FabricConnectionRefusedError, "shm connections only"),
    ],
)
def test_a_refusal_is_raised_with_its_reason(frame: Frame, kind: type[Exception], words: str, endpoint: Any) -> None:
    endpoint.frame = frame
    error = endpoint.run(endpoint._connect_over(endpoint.oob, b""))
    assert type(error) is kind
    assert words in str(error)
    assert endpoint.order[-2:] == ["oob closed", "closed"]


@pytest.mark.parametrize("accepts", [False, True])
def test_a_cancel_ends_both(accepts: bool, endpoint: Any) -> None:
    call = endpoint._accept_over(endpoint.oob, HELLO, b"") if accepts else endpoint._connect_over(endpoint.oob, b"")
    caller = Caller(endpoint.driver, call)
    caller.cancel()
    endpoint.driver.settle_down()
    assert caller.done
    assert endpoint.order[-2:] == ["oob closed", "closed"]
