"""The doorbell as a state machine: who sleeps, who was told, and who rings."""

# The OOB socket records frames; nothing is sent.

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.transport.virtual.doorbell import Doorbell
from aiofabric.transport.virtual.protocol import FrameKind

pytestmark = pytest.mark.once

ASLEEP, RING, WILL_RING = FrameKind.ASLEEP, FrameKind.RING, FrameKind.WILL_RING


class Connection:
    """A connection that has received five messages and sent three."""

    def __init__(self) -> None:
        self.full = False
        self.frames: list[tuple[int, bytes]] = []
        self.oob_socket: Any = SimpleNamespace(send=self.send, closed=False)
        self.received = 5
        self.tx: Any = SimpleNamespace(sent=3, posted=(), waiting=())
        self.woken = 0
        self.touched = 0
        self.source: Any = SimpleNamespace(wake=self.wake, touch=self.touch)

    def wake(self) -> None:
        self.woken += 1

    def touch(self) -> None:
        self.touched += 1

    def send(self, kind: int, body: bytes = b"") -> bool:
        if not self.full:
            self.frames.append((kind, body))
        return not self.full


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def doorbell(connection: Connection) -> Doorbell:
    return Doorbell(connection)


def count(messages: int) -> bytes:
    return struct.pack("!Q", messages)


def test_a_peer_is_told_once_with_the_number_of_received_messages(connection: Connection, doorbell: Doorbell) -> None:
    assert not doorbell.announce_sleep()
    assert not doorbell.announce_sleep()
    assert connection.frames == [(ASLEEP, count(5))]


def test_this_side_stays_awake_until_the_peer_has_answered(connection: Connection, doorbell: Doorbell) -> None:
    """A peer that computes has not read the frame, and would not ring for a message that it sends."""
    assert not doorbell.announce_sleep()
    doorbell.frame_received(WILL_RING, b"")
    assert (connection.touched, connection.woken) == (1, 0)
    assert doorbell.announce_sleep()
    doorbell.frame_received(RING, b"")
    assert not doorbell.announce_sleep(), "the answer was to an earlier announcement"


def test_an_answer_to_nothing_is_ignored(doorbell: Doorbell) -> None:
    doorbell.frame_received(WILL_RING, b"")
    assert not doorbell.announce_sleep()


def test_this_side_stays_awake_while_the_peer_cannot_be_told(connection: Connection, doorbell: Doorbell) -> None:
    connection.full = True
    assert not doorbell.announce_sleep()
    connection.full = False
    assert not doorbell.announce_sleep()
    assert connection.frames == [(ASLEEP, count(5))]
    doorbell.frame_received(WILL_RING, b"")
    assert doorbell.announce_sleep()


@pytest.mark.parametrize("end", ["none yet", "closed"])
def test_without_a_peer_this_side_may_sleep(connection: Connection, doorbell: Doorbell, end: str) -> None:
    connection.full = True
    if end == "closed":
        connection.oob_socket.closed = True
    else:
        connection.oob_socket = None
    assert doorbell.announce_sleep()


def test_a_ring_wakes_this_side_and_the_peer_is_told_again(connection: Connection, doorbell: Doorbell) -> None:
    doorbell.announce_sleep()
    doorbell.frame_received(RING, b"")
    assert connection.woken == 1
    assert not doorbell.announce_sleep()
    assert connection.frames == [(ASLEEP, count(5))] * 2


def test_an_access_of_the_peers_memory_that_is_complete_wakes_a_peer_that_fell_asleep(
    connection: Connection, doorbell: Doorbell
) -> None:
    """Its frame was on its way when the access was posted."""
    doorbell.accessed()
    assert not connection.frames
    doorbell.frame_received(ASLEEP, count(3))
    assert connection.frames == [(RING, b"")]
    doorbell.frame_received(ASLEEP, count(3))
    assert connection.frames == [(RING, b""), (WILL_RING, b"")], "the peer has seen it"
    doorbell.accessed()
    assert connection.frames == [(RING, b""), (WILL_RING, b""), (RING, b"")], "the peer sleeps"


@pytest.mark.parametrize(
    ("received", "under_way", "rings"),
    [(3, None, False), (2, None, True), (3, "posted", True), (3, "waiting", True)],
    ids=["all received", "one on its way", "posted", "queued"],
)
def test_a_sleeping_peer_with_messages_under_way_is_woken_at_once(
    connection: Connection, doorbell: Doorbell, received: int, under_way: str | None, rings: bool
) -> None:
    if under_way is not None:
        setattr(connection.tx, under_way, ("operation",))
    doorbell.frame_received(ASLEEP, count(received))
    assert connection.frames == [(RING if rings else WILL_RING, b"")]
    assert doorbell.peer_sleeps is not rings
    assert connection.woken == 0


def test_a_peer_sleeps_until_it_could_be_rung(connection: Connection, doorbell: Doorbell) -> None:
    doorbell.frame_received(ASLEEP, count(3))
    connection.frames.clear()
    connection.full = True
    doorbell.ring()
    assert doorbell.peer_sleeps
    connection.full = False
    doorbell.ring()
    assert not doorbell.peer_sleeps
    assert connection.frames == [(RING, b"")]


def test_a_frame_that_makes_no_sense_changes_nothing(connection: Connection, doorbell: Doorbell) -> None:
    doorbell.frame_received(ASLEEP, b"short")
    connection.tx = None
    doorbell.frame_received(ASLEEP, count(0))
    assert not doorbell.peer_sleeps
    assert connection.frames == []
