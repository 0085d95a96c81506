"""Connections to a listener that are not requests yet. The sockets are real; the test is the provider and the clock."""

# Doubles: the clock, the answer whether the provider forgets clients, and the switch of the workaround.
# Privates: `_silent` says which clients were found; `_free` and `_incoming` make it look at one twice.

import os
import socket
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address
from aiofabric.cm.workarounds import half_open_clients
from aiofabric.cm.workarounds.half_open_clients import SILENT_MOST, TIMEOUT, HalfOpenClients, defer_silent_clients
from aiofabric.cm.workarounds.provider_sockets import OwnSocket, tcp_socket
from aiofabric.features import Quirk
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once

TICK = 0.01  # the shortest timer
SEARCH = 0.2  # seconds until all descriptors are examined
HEADER = bytes(32)  # of a request without data
DATA = bytes(2) + (10).to_bytes(2, "big") + bytes(28)  # the header of a request that has ten bytes of data


class Listening:
    """A listening socket with its `HalfOpenClients`, which is the `WatchedListener` too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, forgets: bool = True) -> None:
        known = {Quirk.FORGETS_HALF_REQUESTS} if forgets else set()
        monkeypatch.setattr(half_open_clients, "quirks", lambda _: known)
        self.now = 1000.0
        monkeypatch.setattr(half_open_clients, "monotonic", lambda: self.now)
        self.driver = ManualDriver()
        self.source = SimpleNamespace(driver=self.driver)
        self.info: Any = None
        self.unanswered: list[Any] = []
        self.accepted: list[Accepted] = []
        self.shut_down = 0
        self.reads = 0
        self.at_read: Callable[[], object] = int
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.own = OwnSocket(self.socket.fileno(), os.fstat(self.socket.fileno()).st_ino)
        listener: Any = self
        self.clients = HalfOpenClients(listener, [self.own])

    def cut_off(self) -> None:
        self.shut_down += 1

    def read_events(self) -> None:
        self.reads += 1
        self.at_read()

    # -- for the test

    def dial(self) -> socket.socket:
        return socket.create_connection(self.socket.getsockname(), timeout=10)

    def accept(self, *, found: bool = True) -> "Accepted":
        """The provider reads its events and accepts a client, perhaps under an unexpected number."""
        client = self.dial()
        self.clients.before_read()
        taken = None if found else os.dup(0)
        served = self.socket.accept()[0]
        if taken is not None:
            os.close(taken)
        self.clients.after_read()
        self.accepted.append(Accepted(client, served.detach()))
        return self.accepted[-1]

    def read(self) -> None:
        """The provider reads its events, and no client has come."""
        self.clients.before_read()
        self.clients.after_read()

    @property
    def delay(self) -> float:
        ((delay, _),) = self.driver.delays
        return delay

    def wait(self, seconds: float | None = None) -> None:
        """The time of the timer passes, or other ``seconds``; the timer ends."""
        self.now += self.delay if seconds is None else seconds
        self.driver.pass_time()

    def close(self) -> None:
        self.socket.close()
        self.clients.close()


class Accepted:
    """A client's socket, and the number of the provider's socket for it."""

    def __init__(self, client: socket.socket, number: int) -> None:
        self.client = client
        self.number = number
        self.inode = os.fstat(number).st_ino
        self.address = Address.from_ip(*client.getsockname())

    @property
    def exists(self) -> bool:
        """Whether the provider's socket is still open."""
        try:
            return os.fstat(self.number).st_ino == self.inode
        except OSError:
            return False

    @property
    def is_shut_down(self) -> bool:
        self.client.setblocking(False)
        try:
            return self.client.recv(1) == b""
        except ConnectionResetError:
            return True
        except BlockingIOError:
            return False

    def sends(self, data: bytes) -> None:
        self.client.sendall(data)
        sock = tcp_socket(self.number)
        assert sock is not None
        while len(sock.peek(400)) < len(data):
            pass

    def resets(self) -> None:
        """The client resets the connection."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.close()
        sock = tcp_socket(self.number)
        assert sock is not None
        while True:
            try:
                sock.getpeername()
            except OSError:
                return

    def is_answered(self) -> None:
        """The provider answers it: it is a connection now."""
        os.write(self.number, b"answer")

    def close(self) -> None:
        """Both sides close, unless they have done so."""
        if self.exists:
            os.close(self.number)
        self.client.close()


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    yield from opened(Listening(monkeypatch))


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """The provider does not forget clients that were shut down: it closes them later."""
    yield from opened(Listening(monkeypatch, forgets=False))


def opened(listening: Listening) -> Iterator[Listening]:
    yield listening
    listening.close()
    for each in listening.accepted:
        each.close()


def test_a_silent_client_is_shut_down_after_the_timeout_and_closed_after_another(listening: Listening) -> None:
    one = listening.accept()
    assert listening.delay == TIMEOUT
    listening.wait()
    assert one.is_shut_down
    assert one.exists  # the provider sees the end of the connection, and closes it
    assert (listening.shut_down, listening.reads) == (1, 1)
    assert listening.delay == TIMEOUT
    listening.wait()
    assert not one.exists
    assert (listening.shut_down, listening.reads) == (1, 2)
    assert not listening.driver.delays


def test_a_client_that_the_provider_remembers_is_left_to_it(remembering: Listening) -> None:
    one = remembering.accept()
    remembering.wait()
    assert one.is_shut_down
    remembering.wait()
    assert one.exists
    assert not remembering.driver.delays


def test_a_timer_that_is_early_by_a_tick_is_in_time(listening: Listening) -> None:
    one = listening.accept()
    listening.wait(TIMEOUT - TICK)
    assert one.is_shut_down
    listening.wait(TIMEOUT - TICK)
    assert not one.exists


def test_a_timer_that_is_earlier_is_started_again(listening: Listening) -> None:
    one = listening.accept()
    listening.wait(TIMEOUT - 0.5)
    assert not one.is_shut_down
    assert listening.delay == 0.5
    listening.wait()
    assert one.is_shut_down


def test_the_timer_is_for_the_oldest(listening: Listening) -> None:
    first = listening.accept()
    listening.now += 2
    second = listening.accept()
    assert len(listening.driver.delays) == 1
    listening.wait(TIMEOUT - 2)
    assert (first.is_shut_down, second.is_shut_down) == (True, False)
    assert listening.delay == 2
    listening.wait()
    assert second.is_shut_down


def test_clients_of_one_moment_are_shut_down_together(listening: Listening) -> None:
    all_of_them = [listening.accept() for _ in range(3)]
    listening.wait()
    assert [each.is_shut_down for each in all_of_them] == [True] * 3
    assert listening.shut_down == 3
    listening.wait()
    assert [each.exists for each in all_of_them] == [False] * 3


def test_a_late_timer_shuts_down_the_clients_that_are_due(listening: Listening) -> None:
    one = listening.accept()
    one.sends(HEADER)
    listening.now += TIMEOUT + 3  # the loop was blocked
    listening.read()
    assert list(listening.clients.handed_over) == [one.number]
    listening.wait(0)  # the timer of the silent client
    assert listening.delay == TIMEOUT
    two = listening.accept()
    listening.now += TIMEOUT + 3
    listening.clients.became_request(one.address)
    listening.driver.pass_time()
    assert two.is_shut_down


def test_an_overdue_timer_still_waits_a_tick(listening: Listening) -> None:
    listening.accept()
    listening.now += TIMEOUT + 3  # the loop was blocked
    listening.accept(found=False)  # starts the timer again
    assert listening.delay == TICK


@pytest.mark.parametrize("part", [HEADER[:1], HEADER[:31], DATA, DATA + bytes(9)], ids=len)
def test_a_part_of_a_request_is_shut_down_at_once(part: bytes, listening: Listening) -> None:
    one = listening.accept()
    listening.now += 3
    one.sends(part)
    listening.read()
    assert one.is_shut_down
    assert listening.shut_down == 1
    listening.wait(2)
    assert one.exists  # its time began when it was shut down
    listening.wait()
    assert not one.exists
    assert listening.shut_down == 1


@pytest.mark.parametrize("whole", [HEADER, DATA + bytes(10), HEADER + b"more"], ids=len)
def test_a_whole_request_is_left_to_the_provider(whole: bytes, listening: Listening) -> None:
    one = listening.accept()
    one.sends(whole)
    listening.read()
    assert not one.is_shut_down
    assert listening.shut_down == 0
    assert listening.clients.became_request(one.address) == one.number
    listening.wait()
    assert not one.is_shut_down
    assert not listening.driver.delays


def test_a_whole_request_that_the_provider_does_not_take_is_shut_down_then_closed(listening: Listening) -> None:
    one = listening.accept()
    listening.now += 3
    one.sends(HEADER)
    listening.read()
    listening.wait(2)  # of the silent client
    assert not one.is_shut_down
    listening.wait()
    assert one.is_shut_down
    assert listening.shut_down == 1
    listening.wait()
    assert not one.exists
    assert listening.shut_down == 1


def test_later_reads_give_a_client_no_more_time(listening: Listening) -> None:
    one = listening.accept()
    one.sends(HEADER)
    for _ in range(3):
        listening.read()
        listening.now += 1
    listening.wait(TIMEOUT - 3)
    assert one.is_shut_down
    listening.wait()
    assert not one.exists


def test_all_clients_that_sent_something_are_examined_in_one_read(listening: Listening) -> None:
    all_of_them = [listening.accept() for _ in range(3)]
    for each in all_of_them:
        each.sends(HEADER[:9])
    listening.read()
    assert [each.is_shut_down for each in all_of_them] == [True] * 3


def test_a_client_may_get_the_number_of_one_that_the_provider_closes_in_the_same_read(listening: Listening) -> None:
    one = listening.accept()
    one.client.close()
    with listening.dial():
        listening.clients.before_read()
        with listening.socket.accept()[0] as served:
            os.dup2(served.fileno(), one.number)  # the provider closes the first one, and the other one gets its number
        listening.clients.after_read()
        assert listening.clients.missed is None
        assert list(listening.clients._silent) == [one.number]
        os.close(one.number)


def test_a_known_client_is_not_taken_for_the_accepted_one(listening: Listening) -> None:
    one = listening.accept()
    one.sends(HEADER)
    two = listening.accept(found=False)
    assert listening.clients.missed is not None
    listening.wait(SEARCH)
    assert list(listening.clients._silent) == [two.number]


def test_a_request_that_came_while_the_provider_read_is_not_shut_down(listening: Listening) -> None:
    """The examination before the read saw nothing; the provider has read the header since."""
    one = listening.accept()
    one.sends(HEADER)
    os.read(one.number, 32)
    listening.wait()
    assert not one.is_shut_down


def test_a_client_that_sent_less_than_a_header_while_the_provider_read_is_shut_down(listening: Listening) -> None:
    one = listening.accept()
    one.sends(HEADER[:31])
    os.read(one.number, 31)
    listening.wait()
    assert one.is_shut_down


@pytest.mark.parametrize("sent", [b"", HEADER], ids=len)
def test_a_client_that_was_answered_is_left_alone(sent: bytes, listening: Listening) -> None:
    one = listening.accept()
    one.is_answered()
    if sent:
        one.sends(sent)
        listening.read()
    listening.wait()
    assert listening.shut_down == 0
    assert one.exists
    assert not listening.driver.delays
    assert one.client.recv(6) == b"answer"


def test_a_client_whose_request_the_program_has_to_answer_is_left_alone(listening: Listening) -> None:
    one, two = listening.accept(), listening.accept()
    listening.unanswered = [SimpleNamespace(address=None), SimpleNamespace(address=one.address)]
    listening.wait()
    assert (one.is_shut_down, two.is_shut_down) == (False, True)


def test_a_client_that_left_is_no_client(listening: Listening) -> None:
    one = listening.accept()
    one.close()  # the provider has seen it first
    listening.wait()
    assert listening.shut_down == 0
    assert not listening.driver.delays


def test_a_client_that_left_is_handed_over_and_not_counted(listening: Listening) -> None:
    one = listening.accept()
    one.client.close()
    listening.read()
    assert listening.shut_down == 0
    assert list(listening.clients.handed_over) == [one.number]


def test_a_client_that_was_reset_is_not_counted_and_closed_if_the_provider_forgets_it(listening: Listening) -> None:
    one = listening.accept()
    one.resets()
    listening.read()
    listening.wait()
    assert one.exists
    listening.wait()
    assert not one.exists
    assert listening.shut_down == 0


def test_a_client_that_was_reset_before_it_was_found_is_searched(listening: Listening) -> None:
    client = listening.dial()
    listening.clients.before_read()
    served = listening.socket.accept()[0].detach()
    one = Accepted(client, served)
    listening.accepted.append(one)
    one.resets()
    listening.clients.after_read()
    assert listening.clients.missed is not None


def test_the_timer_reads_events_first(listening: Listening) -> None:
    """A loop that was blocked has not read the request yet."""
    one = listening.accept()

    def read() -> None:
        assert listening.clients.became_request(one.address) == one.number

    listening.at_read = read
    listening.wait(TIMEOUT + 60)
    assert not one.is_shut_down
    assert not listening.driver.delays


def test_who_is_no_client_has_no_descriptor(listening: Listening) -> None:
    one = listening.accept()
    assert listening.clients.became_request(None) is None
    assert listening.clients.became_request(Address.from_ip("127.0.0.1", 1)) is None
    assert listening.clients.became_request(one.address) == one.number
    assert listening.clients.became_request(one.address) is None


def test_one_too_many_replaces_the_oldest(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open_clients, "SILENT_MOST", 3)
    assert SILENT_MOST == 256
    three = [listening.accept() for _ in range(3)]
    assert listening.shut_down == 0
    fourth = listening.accept()
    assert [each.is_shut_down for each in (*three, fourth)] == [True, False, False, False]


def test_a_client_with_the_number_of_one_that_left_is_watched_from_its_own_time(listening: Listening) -> None:
    one = listening.accept()
    listening.now += 3
    one.close()
    two = listening.accept()
    assert two.number == one.number  # the kernel gives the lowest free number
    assert listening.clients.became_request(one.address) is None
    listening.wait(2)
    assert not two.is_shut_down
    listening.wait()
    assert two.is_shut_down


def test_a_client_is_watched_once(listening: Listening) -> None:
    one = listening.accept()
    listening.now += 3
    listening.clients._free = [one.number]  # as if the provider had closed it
    listening.clients._incoming = True
    listening.clients.after_read()
    listening.wait(2)
    assert one.is_shut_down


def test_other_sockets_are_no_clients(listening: Listening) -> None:
    """The number that the provider might have got belongs to another socket of the program."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        client = listening.dial()
        dialled = socket.create_connection(other.getsockname())
        listening.clients.before_read()
        theirs = other.accept()[0]
        listening.clients.after_read()
        assert listening.delay == pytest.approx(SEARCH)
        listening.wait()  # the search does not find it, either
        assert not listening.clients._silent
        for each in (client, dialled, theirs):
            each.close()


# -- clients that were not found at once


def test_a_client_that_was_not_found_is_searched(listening: Listening) -> None:
    one = listening.accept(found=False)
    assert listening.clients.missed == 1000.0
    assert listening.delay == pytest.approx(SEARCH)
    listening.wait()
    assert listening.clients.missed is None
    assert listening.delay == TIMEOUT
    listening.wait()
    assert one.is_shut_down


def test_the_search_is_earlier_than_the_timer_of_a_silent_client(listening: Listening) -> None:
    one = listening.accept()
    listening.now += 1
    two = listening.accept(found=False)
    assert listening.delay == pytest.approx(SEARCH)
    listening.wait()
    assert listening.delay == pytest.approx(TIMEOUT - 1 - SEARCH)
    listening.wait()
    assert (one.is_shut_down, two.is_shut_down) == (True, False)


def test_a_second_one_that_was_not_found_does_not_delay_the_search(listening: Listening) -> None:
    one = listening.accept(found=False)
    listening.now += SEARCH / 2
    two = listening.accept(found=False)
    assert listening.clients.missed == 1000.0
    listening.wait(SEARCH / 2)
    assert listening.clients.missed is None
    assert set(listening.clients._silent) == {one.number, two.number}


def test_the_search_waits_for_its_time(listening: Listening) -> None:
    listening.accept()
    listening.wait(TIMEOUT - SEARCH)
    listening.accept(found=False)
    listening.wait(SEARCH - 2 * TICK)
    assert listening.clients.missed is not None
    assert listening.delay == pytest.approx(2 * TICK)
    listening.wait()
    assert listening.clients.missed is None


def test_the_search_leaves_connections_alone(listening: Listening) -> None:
    one, two = listening.accept(found=False), listening.accept(found=False)
    one.is_answered()
    listening.wait()
    assert set(listening.clients._silent) == {two.number}


def test_a_search_that_fails_is_tried_again(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    one = listening.accept(found=False)

    def refused() -> frozenset[int]:
        raise OSError(24, "no descriptor")

    with monkeypatch.context() as patched:
        patched.setattr(half_open_clients, "open_descriptors", refused)
        listening.wait()
    assert listening.clients.missed == listening.now
    assert listening.delay == pytest.approx(SEARCH)
    listening.wait()
    assert set(listening.clients._silent) == {one.number}


def test_a_read_without_a_client_misses_nobody(listening: Listening) -> None:
    listening.read()
    assert listening.clients.missed is None
    assert not listening.driver.delays


# -- the end


def test_the_close_closes_all_that_are_no_connections(listening: Listening) -> None:
    silent, part, unseen = listening.accept(), listening.accept(), listening.accept(found=False)
    part.sends(HEADER[:5])
    whole = listening.accept()
    whole.sends(HEADER)
    listening.read()
    answered, request, complete = listening.accept(), listening.accept(), listening.accept(found=False)
    answered.is_answered()
    listening.unanswered = [request]
    request.sends(HEADER)
    complete.sends(HEADER)
    listening.close()
    assert [each.exists for each in (silent, part, unseen, whole)] == [False] * 4
    assert [each.exists for each in (answered, request, complete)] == [True] * 3
    assert not listening.driver.delays


def test_two_listeners_do_not_share_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Listening(monkeypatch), Listening(monkeypatch)
    one = first.accept()
    second.close()
    assert one.exists
    first.close()
    assert not one.exists
    one.client.close()


def test_accepted_sockets_do_not_wait_for_data(listening: Listening) -> None:
    one = listening.accept()
    with pytest.raises(BlockingIOError):
        os.read(one.number, 1)


# -- ports of connectionless endpoints


class Waiting:
    """The source of a connectionless endpoint."""

    def __init__(self) -> None:
        self.delays = SimpleNamespace(may_stay_readable=None)


def test_the_kernel_holds_back_silent_clients_of_a_connectionless_endpoint(listening: Listening) -> None:
    source: Any = Waiting()
    defer_silent_clients(source, [listening.own])
    assert listening.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) > 3600
    may_stay_readable = source.delays.may_stay_readable
    assert not may_stay_readable()
    with listening.dial() as client:
        assert not may_stay_readable()
        client.sendall(b"x")
        while not may_stay_readable():
            pass
        with listening.socket.accept()[0]:
            assert not may_stay_readable()


def test_a_connectionless_endpoint_without_sockets_has_nothing_to_hold_back(listening: Listening) -> None:
    source: Any = Waiting()
    defer_silent_clients(source, [])
    assert source.delays.may_stay_readable is None
    gone = OwnSocket(listening.own.descriptor, listening.own.inode + 1)  # the number is of another file by now
    defer_silent_clients(source, [gone])
    assert listening.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) == 0


def test_a_switched_off_workaround_touches_no_socket(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open_clients, "is_on", lambda _: False)
    source: Any = Waiting()
    defer_silent_clients(source, [listening.own])
    assert source.delays.may_stay_readable is None
    assert listening.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) == 0
