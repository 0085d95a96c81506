"""Hazard: clients of an OOB listener that are not aiofabric's keep their descriptors. Each is disconnected."""

# Doubles: the number of silent clients is lowered; descriptors run out when the test says so.

import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from aiofabric.cm.workarounds.half_open_clients import TIMEOUT
from aiofabric.transport.virtual import oob_listener
from aiofabric.transport.virtual.oob_listener import OobListener
from aiofabric.transport.virtual.oob_socket import Frame, OobSocket
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once


class Listening(socket.socket):
    """A listening socket that accepts nothing while descriptors are ``exhausted``."""

    exhausted = False

    def accept(self) -> tuple[socket.socket, Any]:
        if self.exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Served:
    """A listener on a loop that the test steps. It refuses each first frame as invalid."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.seen: list[Frame] = []
        self.cut = 0
        self.sock = Listening()
        self.sock.setblocking(False)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen()
        self.address = self.sock.getsockname()
        self.listener = OobListener(self.sock, self.driver, self._request, self._cut)

    def _request(self, _: OobSocket, frame: Frame) -> None:
        self.seen.append(frame)
        raise ValueError("no request")

    def _cut(self) -> None:
        self.cut += 1

    def client(self) -> socket.socket:
        sock = socket.create_connection(self.address)
        sock.setblocking(False)
        self.driver.settle_down()
        return sock


@pytest.fixture
def served() -> Iterator[Served]:
    it = Served()
    yield it
    it.listener.close()


def has_ended(sock: socket.socket) -> bool:
    """Whether the listener has closed the connection."""
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_first_frame_that_is_no_request_ends_the_connection_at_once(served: Served) -> None:
    with served.client() as sock:
        assert not has_ended(sock)
        sender = OobSocket(sock, served.driver)
        sender.send(1, b"a complete frame without a request")
        served.driver.settle_down()
        assert [frame.body for frame in served.seen] == [b"a complete frame without a request"]
        assert sender.closed  # its reader got the end


def test_a_client_that_sends_nothing_is_disconnected_after_a_while(served: Served) -> None:
    with served.client() as sock:
        assert not has_ended(sock)
        assert served.driver.pass_time() == TIMEOUT
        served.driver.settle_down()
        assert has_ended(sock)
        assert served.cut == 1


def test_closing_the_listener_disconnects_silent_clients(served: Served) -> None:
    clients = [served.client() for _ in range(3)]
    served.listener.close()
    assert [has_ended(sock) for sock in clients] == [True] * 3
    assert not served.driver.delays, "a timer of a silent client is left"
    for sock in clients:
        sock.close()


def test_the_oldest_of_too_many_silent_clients_is_disconnected(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oob_listener, "SILENT_MOST", 2)
    clients = [served.client() for _ in range(3)]
    assert [has_ended(sock) for sock in clients] == [True, False, False]
    for sock in clients:
        sock.close()


@pytest.mark.parametrize("how", ["accept fails", "few are left"])
def test_a_listener_without_descriptors_pauses_and_goes_on(
    served: Served, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = served.sock.fileno()
    if how == "accept fails":
        served.sock.exhausted = True
    else:
        monkeypatch.setattr(oob_listener, "are_free", lambda _: False)
    with served.client() as first, served.client() as second:
        assert listening not in served.driver.readers, "the loop would spin"
        assert (has_ended(first), has_ended(second)) == (how == "few are left", False)
        served.sock.exhausted = False
        monkeypatch.undo()
        assert served.driver.pass_time() < 1
        served.driver.settle_down()
        assert listening in served.driver.readers
        assert not has_ended(second)
        assert len(served.driver.delays) == (1 if has_ended(first) else 2)  # the time that a silent client has


def test_a_listener_that_pauses_can_be_closed(served: Served) -> None:
    served.sock.exhausted = True
    with served.client():
        assert len(served.driver.delays) == 1
        served.listener.close()
        assert not served.driver.delays


def test_a_client_that_comes_as_the_listener_closes_starts_no_timer(served: Served) -> None:
    """The loop may still call the reader that was readable before."""
    readable = served.driver.readers[served.sock.fileno()]
    with socket.create_connection(served.address):
        served.listener.close()
        readable()
    assert not served.driver.delays
    assert not served.driver.readers
