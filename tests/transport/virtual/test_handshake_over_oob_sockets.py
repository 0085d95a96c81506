"""The handshake of virtual connections on both sides, without a provider: the test is the peer, and the loop."""

# Privates: a listener is told of requests as its OOB listener does it.

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import Caps, EndpointType, EpAttr, FabricAttr, FabricConnectionAbortedError, Hints, Info, getinfo
from aiofabric.cm.handshake import ConnectionState
from aiofabric.transport.virtual.endpoint import OobHandshake, VirtualListenerHandle, VirtualRequest
from aiofabric.transport.virtual.oob_socket import Frame, OobSocket
from aiofabric.transport.virtual.protocol import FrameKind, Hello
from tests.cq.manual import Caller, Endpoint, ManualDriver
from tests.fixtures.internals import socket_of

pytestmark = pytest.mark.once

HOST = 11  # the mark of this host


@pytest.fixture(scope="module")
def shm() -> Info:
    attributes = {"fabric_attr": FabricAttr(prov_name="shm"), "ep_attr": EpAttr(type=EndpointType.RDM)}
    return getinfo(hints=Hints(caps=Caps.TAGGED, **attributes))[0]  # type: ignore[arg-type]


class Ends:
    """An OOB socket, and the peer's end of it."""

    def __init__(self, driver: ManualDriver) -> None:
        ours, theirs = socket.socketpair()
        self.driver = driver
        self.ours, self.peer = OobSocket(ours, driver), OobSocket(theirs, driver)
        self.frames: list[Frame] = []
        self.ends: list[int] = []
        self.peer.on_frame = self.frames.append
        self.peer.on_end = lambda: self.ends.append(1)
        self.handshake = OobHandshake(driver)

    def call(self) -> Caller:
        return Caller(self.driver, self.handshake.answer(self.ours))

    def close(self) -> None:
        self.ours.close()
        self.peer.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends(ManualDriver())
    yield both
    both.close()


# -- the side that connects


@pytest.mark.parametrize("early", [False, True])
def test_the_first_frame_is_the_answer_and_later_ones_are_for_the_connection(early: bool, ends: Ends) -> None:
    def answers() -> None:
        ends.peer.send(FrameKind.ACCEPT, b"hello")
        ends.peer.send(FrameKind.END, b"later")
        ends.driver.settle_down()

    if early:
        answers()
    caller = ends.call()
    if not early:
        assert not caller.done
        answers()
    ends.driver.settle_down()
    assert caller.outcome == Frame(FrameKind.ACCEPT, b"hello")
    later: list[Frame] = []
    ends.ours.on_frame = later.append
    ends.ours.hand_out()
    assert later == [Frame(FrameKind.END, b"later")]


@pytest.mark.parametrize("early", [False, True])
def test_a_peer_that_leaves_before_its_answer_is_an_error(early: bool, ends: Ends) -> None:
    if early:
        ends.peer.close()
        ends.driver.settle_down()
        assert ends.ours.closed
    caller = ends.call()
    ends.peer.close()
    ends.driver.settle_down()
    assert isinstance(caller.outcome, FabricConnectionAbortedError)
    assert "went away before the connection was established" in str(caller.outcome)


def test_a_peer_that_is_another_program_is_told(ends: Ends) -> None:
    caller = ends.call()
    socket_of(ends.peer).send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    ends.driver.settle_down()
    assert isinstance(caller.outcome, FabricConnectionAbortedError)
    assert "went away" not in str(caller.outcome)


def test_an_endpoint_that_is_closed_ends_the_wait(ends: Ends) -> None:
    caller = ends.call()
    ends.handshake.end()
    ends.driver.settle_down()
    assert isinstance(caller.outcome, ClosedResourceError)
    assert ends.handshake.state is ConnectionState.CLOSED
    ends.handshake.end()  # without effect


def test_the_end_of_the_loop_wakes_no_task(ends: Ends) -> None:
    caller = ends.call()
    ends.driver.is_closed = True
    ends.handshake.end()
    assert not caller.done
    caller.collect()


def test_the_end_of_a_handshake_that_waits_for_nothing_wakes_no_task(ends: Ends) -> None:
    ends.handshake.end()
    assert ends.handshake.state is ConnectionState.CLOSED


# -- the side that listens


class Listening:
    """A listener of virtual connections; the test gives it the requests."""

    def __init__(self, info: Info, host: int = HOST) -> None:
        self.endpoint = Endpoint()
        self.retired: list[Any] = []
        self.answered_for: list[Any] = []
        self.multiplexer = SimpleNamespace(
            info=info,
            host=host,
            handle=None,
            source=self.endpoint.source,
            busy=1,
            endpoint=SimpleNamespace(local_address="the address in the fabric"),
            address_queries=SimpleNamespace(retire=self.retired.append, answer_for=self.answered_for.append),
        )
        multiplexer: Any = self.multiplexer
        self.handle = VirtualListenerHandle(multiplexer, backlog=2)
        self.ends = Ends(self.endpoint.driver)

    def hello(self, **changes: Any) -> bytes:
        attr = self.multiplexer.info.ep_attr
        hello = Hello(attr.protocol, attr.protocol_version, HOST, 1, 1, 64, 8, 0, b"address", b"private data")
        return hello._replace(**changes).pack()

    def asked(self, kind: FrameKind = FrameKind.CONNECT, **changes: Any) -> list[Frame]:
        """A client asks for a connection; return the frames that answer it at once."""
        self.handle._request(self.ends.ours, Frame(kind, self.hello(**changes)))
        self.ends.driver.settle_down()
        return self.ends.frames


@pytest.fixture
def listening(shm: Info) -> Iterator[Listening]:
    it = Listening(shm)
    yield it
    it.handle.close()
    it.ends.close()
    it.endpoint.close()


def test_a_request_waits_to_be_accepted(listening: Listening) -> None:
    assert listening.asked() == []
    (request,) = listening.handle.pending
    assert isinstance(request, VirtualRequest)
    assert (request.param, request.hello.room, request.oob_socket) == (b"private data", 64, listening.ends.ours)
    assert not listening.ends.ours.closed


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"), [(HOST, HOST, True), (HOST, 0, True), (0, HOST, True), (0, 0, True), (HOST, 12, False)]
)
def test_a_client_of_another_host_is_told_if_the_provider_stays_in_the_host(
    ours: int, theirs: int, fits: bool, listening: Listening
) -> None:
    listening.multiplexer.host = ours
    frames = listening.asked(host=theirs)
    assert len(listening.handle.pending) == fits
    if not fits:
        assert frames == [Frame(FrameKind.MISMATCH, b"the listener takes shm connections of this host only")]
        assert listening.ends.ours.closed
        assert listening.ends.ends == [1]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (FrameKind.ACCEPT, {}),
        (FrameKind.CONNECT, {"protocol": 4711}),
        (FrameKind.CONNECT, {"protocol_version": 4711}),
    ],
)
def test_a_client_of_another_provider_is_told(kind: FrameKind, changes: dict[str, int], listening: Listening) -> None:
    assert listening.asked(kind, **changes) == [Frame(FrameKind.MISMATCH, b"the listener takes shm connections only")]
    assert listening.ends.ours.closed
    assert not listening.handle.pending


def test_an_invalid_hello_is_an_error_of_the_socket(listening: Listening) -> None:
    with pytest.raises(ValueError, match="credits"):
        listening.asked(credits=0)
    assert not listening.handle.pending


def test_a_rejected_client_gets_the_private_data_and_is_disconnected(listening: Listening) -> None:
    listening.asked()
    (request,) = listening.handle.pending
    listening.handle.refuse(request, b"go away")
    listening.ends.driver.settle_down()
    assert listening.ends.frames == [Frame(FrameKind.REJECT, b"go away")]
    assert listening.ends.ours.closed
    assert listening.ends.ends == [1]


def test_the_address_in_the_fabric_is_answered_for(listening: Listening) -> None:
    assert listening.handle.fabric_address() == "the address in the fabric"  # type: ignore[comparison-overlap]
    assert listening.answered_for == [listening.handle]


@pytest.mark.parametrize("busy", [0, 1])
def test_a_closed_listener_answers_no_queries(busy: int, listening: Listening) -> None:
    closed: list[int] = []
    listening.handle.oob_listener = SimpleNamespace(close=lambda: closed.append(1))  # type: ignore[assignment]
    listening.multiplexer.busy = busy
    listening.handle.release_native()
    assert listening.retired == [listening.handle] * busy
    assert closed == [1]


def test_a_listener_that_could_not_open_can_be_closed(listening: Listening) -> None:
    listening.handle.release_native()
    assert listening.retired == [listening.handle]
