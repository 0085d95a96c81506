"""The sending side of a virtual connection: what its tags say, when it rings, and when it owes the peer a count."""

# Doubles: the test answers the posts in place of a provider.
# Privates: `_inject` and `_stamp` are what the submission queue calls for a small message.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import FabricError
from aiofabric._ffi import constants, lib
from aiofabric.transport.virtual.protocol import CREDITS, KIND_CREDITS, KIND_PING, KIND_PONG, SEQUENCE
from aiofabric.transport.virtual.route import ConnectionRoute

pytestmark = pytest.mark.once

AGAIN, INVALID, LOST = -constants.FI_EAGAIN, -constants.FI_EINVAL, -constants.FI_ENOTCONN


class Lost(Exception):
    """The error of a connection whose peer is lost."""


class Gone(Exception):
    """The error of a connection that has ended already."""


class Sending:
    """A route with a window of four messages; the peer has taken two of the five sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = 0
        self.tags: list[int] = []
        self.rings = self.touched = 0
        self.queued: list[Any] = []
        self.sent_meanwhile: list[int] = []
        connection = SimpleNamespace(
            taken=300,
            announced=290,
            gone=None,
            lost_peer=Lost,
            unreachable=lambda code: code == -LOST,
            doorbell=SimpleNamespace(peer_sleeps=False, ring=self.ring),
        )
        self.connection = connection
        route: Any = SimpleNamespace(
            connection=connection,
            handle=SimpleNamespace(fid=None),
            source=SimpleNamespace(enqueue=self.queued.append, touch=self.touch),
            base=3,
            notices=7,
            room=64,
            window=4,
            sent=5,
            taken=2,
            peer=0,
            name="the peer",
            owes=False,
            untold=(),
            refused=False,
        )
        self.route = route
        route._stamp = lambda: ConnectionRoute._stamp(route)
        route._say = lambda kind: ConnectionRoute._say(route, kind)
        monkeypatch.setattr(lib, "fi_tinject", self.post)

    def post(self, fid: Any, data: bytes, size: int, peer: int, tag: int) -> int:
        assert size == len(data)
        self.tags.append(tag)
        self.sent_meanwhile.append(self.route.sent)
        return self.answer

    def ring(self) -> None:
        self.rings += 1

    def touch(self) -> None:
        self.touched += 1

    def inject(self) -> bool:
        return ConnectionRoute._inject(self.route, b"x", None)


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Sending:
    return Sending(monkeypatch)


@pytest.mark.parametrize("sleeps", [False, True])
def test_a_small_message_of_a_route_carries_its_number_and_what_was_taken(sending: Sending, sleeps: bool) -> None:
    sending.connection.doorbell.peer_sleeps = sleeps
    assert sending.inject()
    assert sending.tags == [3 | (300 & 255) << CREDITS | 5 << SEQUENCE]
    assert sending.connection.announced == 300
    assert (sending.route.sent, sending.sent_meanwhile) == (6, [6])
    assert sending.rings == sleeps


def test_the_numbers_in_the_tags_of_a_route_wrap_after_255(sending: Sending) -> None:
    sending.route.sent, sending.route.taken = 256 + 9, 256 + 8
    assert sending.inject()
    assert sending.tags == [3 | (300 & 255) << CREDITS | 9 << SEQUENCE]


def test_a_message_for_a_receive_of_the_program_has_the_tag_of_its_route_alone(sending: Sending) -> None:
    sending.route.room = 0
    assert sending.inject()
    assert sending.tags == [3]
    assert sending.connection.announced == 290  # the tag has no room for the count


def test_a_route_with_a_full_window_posts_nothing(sending: Sending) -> None:
    assert sending.inject()
    assert not sending.inject()
    assert len(sending.tags) == 1
    sending.route.taken += 1
    assert sending.inject()


def test_a_small_message_of_a_route_that_finds_no_room_is_not_counted(sending: Sending) -> None:
    sending.connection.doorbell.peer_sleeps = True
    sending.answer = AGAIN
    assert not sending.inject()
    assert (sending.route.sent, sending.sent_meanwhile, sending.rings) == (5, [6], 0)


@pytest.mark.parametrize("gone", [None, Gone])
def test_a_small_message_of_a_route_to_a_lost_peer_raises_the_error_of_its_connection(
    sending: Sending, gone: type[Exception] | None
) -> None:
    sending.answer, sending.connection.gone = LOST, gone
    with pytest.raises(gone or Lost):
        sending.inject()
    assert sending.route.sent == 5


def test_another_error_of_a_small_message_of_a_route_names_the_peer(sending: Sending) -> None:
    sending.answer = INVALID
    with pytest.raises(FabricError, match=r"fi_tinject.*the peer"):
        sending.inject()
    assert sending.route.sent == 5


def test_a_count_that_a_route_sends_alone_needs_no_window(sending: Sending) -> None:
    sending.route.sent += 1
    sending.route.owes = True
    ConnectionRoute.announce(sending.route)
    assert sending.tags == [7 | KIND_CREDITS | (300 & 255) << CREDITS]
    assert (sending.connection.announced, sending.route.owes, sending.route.sent) == (300, False, 6)
    assert (sending.queued, sending.touched, sending.route.refused) == ([], 0, False)


def test_a_count_that_finds_no_room_is_owed_by_the_route(sending: Sending) -> None:
    sending.answer = AGAIN
    ConnectionRoute.announce(sending.route)
    assert (sending.connection.announced, sending.route.owes, sending.route.refused) == (290, True, True)
    assert (sending.queued, sending.touched) == ([sending.route], 1)


def test_a_count_of_a_route_to_a_lost_peer_is_dropped(sending: Sending) -> None:
    sending.answer = LOST
    ConnectionRoute.announce(sending.route)
    assert (sending.connection.announced, sending.route.owes, sending.queued) == (290, False, [])


def test_another_error_of_a_count_of_a_route_is_raised(sending: Sending) -> None:
    sending.answer = INVALID
    with pytest.raises(FabricError, match=r"fi_tinject.*the peer"):
        ConnectionRoute.announce(sending.route)


# -- pings and pongs


def test_a_ping_carries_the_count_and_no_number(sending: Sending) -> None:
    """A peer that sleeps must see it."""
    sending.route.accessed = lambda: seen.append("accessed")
    seen: list[str] = []
    ConnectionRoute.tell(sending.route, KIND_PING)
    assert seen == ["accessed"]
    assert sending.tags == [7 | KIND_PING | (300 & 255) << CREDITS]
    assert (sending.route.sent, sending.route.untold, sending.queued) == (5, (), [])


def test_a_refused_ping_waits_in_the_queue_of_its_source(sending: Sending) -> None:
    sending.answer = AGAIN
    ConnectionRoute.tell(sending.route, KIND_PING)
    ConnectionRoute.tell(sending.route, KIND_PONG)
    assert (sending.route.untold, sending.route.refused) == ((KIND_PING, KIND_PONG), True)
    assert sending.queued == [sending.route, sending.route]
    assert sending.touched == 2


def test_a_ping_to_a_lost_peer_ends_the_connection_and_other_errors_are_raised(sending: Sending) -> None:
    sending.answer = LOST
    ConnectionRoute.tell(sending.route, KIND_PING)
    sending.answer = INVALID
    with pytest.raises(FabricError):
        ConnectionRoute.tell(sending.route, KIND_PING)
    assert (sending.route.untold, sending.queued) == ((), [])


class Retried(ConnectionRoute):
    """A route with pings that were refused; the provider takes the first ``room`` of them."""

    __slots__ = ("room_left", "said")

    def __init__(self, *, live: bool, room: int) -> None:
        self.connection: Any = SimpleNamespace(live=live)
        self.waiting: Any = []
        self.posted: Any = {}
        self.owes = self.refused = False
        self.limit = 8
        self.shut = None
        self.untold = (KIND_PING, KIND_PONG)
        self.said: list[int] = []
        self.room_left = room

    def _wake_waiters(self) -> None:
        """No task waits for the route."""

    def _say(self, kind: int) -> None:
        if len(self.said) == self.room_left:
            self.untold += (kind,)
        else:
            self.said.append(kind)


@pytest.mark.parametrize(
    ("live", "room", "said", "left"),
    [
        (True, 2, [KIND_PING, KIND_PONG], ()),
        (True, 1, [KIND_PING], (KIND_PONG,)),
        (True, 0, [], (KIND_PING, KIND_PONG)),
        (False, 2, [], (KIND_PING, KIND_PONG)),
    ],
)
def test_refused_pings_are_sent_again_while_the_connection_is_live(
    live: bool, room: int, said: list[int], left: tuple[int, ...]
) -> None:
    route = Retried(live=live, room=room)
    assert route.retry() == len(said)
    assert (route.said, route.untold) == (said, left)
