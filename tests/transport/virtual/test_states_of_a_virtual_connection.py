"""One virtual connection as a state machine: the order of its messages, what it counts, and when it ends."""

# Privates: a connection without a provider gets the events that its OOB socket and its timers would call with.

import errno
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric._ffi import constants
from aiofabric.cq.operation import POSTED, State
from aiofabric.features import Quirk
from aiofabric.transport.virtual.connection import ConnectionHandle, CopiedBuffer
from aiofabric.transport.virtual.protocol import CREDITS, KIND_CREDITS, KIND_PING, KIND_PONG, SEQUENCE, FrameKind
from tests.cq.manual import Caller, ManualDriver

pytestmark = pytest.mark.once


class Inbox:
    """Takes the messages."""

    def __init__(self) -> None:
        self.ended: Any = None
        self.sink: Any = None
        self.waiting = 0
        self.messages = self.bytes = self._lent = 0
        self.delivered: list[Any] = []
        self.deliver = self.delivered.append


class Sending:
    """The sending side of the connection."""

    def __init__(self) -> None:
        self.grants: list[int] = []
        self.granted = self.grants.append
        self.announced = 0
        self.told: list[int] = []
        self.tell = self.told.append
        self.sent, self.room = 7, 64
        self.shut: Any = None
        self.waiting: list[str] = []
        self.owes = False

    def announce(self) -> None:
        self.announced += 1

    async def drained(self) -> None:
        pass


class OobSocket:
    """Records what the peer is told."""

    on_frame: Any = None
    on_end: Any = None

    def __init__(self, *, closed: bool = False) -> None:
        self.closed = closed
        self.frames: list[tuple[int, bytes]] = []
        self.heartbeats: list[float] = []
        self.keep_alive = self.heartbeats.append
        self.handed_out = 0

    def send(self, kind: int, body: bytes = b"") -> bool:
        self.frames.append((kind, body))
        return True

    def hand_out(self) -> None:
        assert self.on_frame is not None
        self.handed_out += 1


class Connection(ConnectionHandle):
    """A connection without a provider, and with a window of four messages."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.touched = self.woken = self.lost = self.ends = 0
        double: Any = SimpleNamespace(
            driver=self.driver, interest=0, touch=self._touch, wake=self._wake, woke=self._wake
        )
        self.source = double
        self.native_open, self.closed, self.gone, self.ending = True, False, None, False
        self.sending, self.messages = Sending(), Inbox()
        self.tx: Any = self.sending
        self.pool: Any = self.messages
        self.multiplexer: Any = SimpleNamespace(peer_lost=self._lose)
        self.oob_socket = None
        self.rings: list[tuple[int, bytes]] = []
        self.doorbell: Any = SimpleNamespace(frame_received=lambda *args: self.rings.append(args))
        self.rx: Any = SimpleNamespace(posted=[])
        self.known = Quirk(0)
        self.window = 4
        self.heartbeat = None
        self.orderly = self.end_received = False
        self.received = self.taken = self.announced = self._expected = 0
        self.last = None
        self.pong = None
        self.asked = None
        self._early, self._cancel_wait = {}, None
        self.remote_writes = None
        self.kept = []
        self.recycled: list[Any] = []

    __slots__ = (
        "driver", "ends", "lost", "messages", "recycled", "rings", "sending", "touched", "woken",
    )  # fmt: skip

    def _touch(self) -> None:
        self.touched += 1

    def _wake(self) -> None:
        self.woken += 1

    def _lose(self) -> None:
        self.lost += 1

    def peer_gone(self) -> None:
        self.ends += 1
        self.gone = ConnectionResetError

    def flushed(self, code: int) -> bool:
        return False

    def failure(self, *_: Any) -> Any:
        return ArithmeticError("of the operation alone")

    def lost_peer(self) -> Any:
        return ConnectionAbortedError("the peer is lost")

    def buffer(self, number: int = 0, *, scarce: bool = False) -> Any:
        pool = SimpleNamespace(scarce=scarce, recycle=self.recycled.append)
        contents = bytes([number] * 3)
        return SimpleNamespace(pool=pool, contents=contents, length=3, flags=0, data=0, tag=5, source=None)

    def come(self, *numbers: int, credit: int = 0) -> None:
        for number in numbers:
            self.arrived(self.buffer(number), number << SEQUENCE | credit << CREDITS)

    def end(self, total: int) -> None:
        frame: Any = SimpleNamespace(kind=FrameKind.END, body=struct.pack("!Q", total))
        self._frame(frame)


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_messages_of_a_connection_that_overtook_others_wait_for_them(connection: Connection) -> None:
    connection.come(2, 1, 3)
    assert connection.messages.delivered == []
    connection.come(0)
    assert [each.contents[0] for each in connection.messages.delivered] == [0, 1, 2, 3]
    assert (connection.received, connection.messages.messages, connection.messages.bytes) == (4, 4, 12)
    assert {each.tag for each in connection.messages.delivered} == {0}
    connection.come(5)
    assert connection.received == 4


def test_the_number_of_a_message_of_a_connection_wraps_after_255(connection: Connection) -> None:
    connection._expected = 255
    connection.come(1, 0, 255, 2)
    assert [each.contents[0] for each in connection.messages.delivered] == [255, 0, 1, 2]


def test_each_message_of_a_connection_grants_credits_and_credits_alone_are_no_message(connection: Connection) -> None:
    connection.come(0, credit=200)
    buffer = connection.buffer()
    connection.arrived(buffer, KIND_CREDITS | 201 << CREDITS)
    assert connection.sending.grants == [200, 201]
    assert (connection.received, connection.recycled) == (1, [buffer])
    connection.tx = None  # the handshake is still under way
    connection.come(1, credit=202)
    assert (connection.received, connection.sending.grants) == (2, [200, 201])


@pytest.mark.parametrize("why", ["no pool", "ended"])
def test_a_message_of_a_connection_that_nobody_can_receive_is_dropped_and_counted(
    connection: Connection, why: str
) -> None:
    if why == "no pool":
        connection.pool = None
    else:
        connection.messages.ended = ConnectionResetError
    connection.end(1)
    connection.come(0)
    assert (connection.received, len(connection.recycled), connection.messages.delivered) == (1, 1, [])
    assert connection.ends == 1


@pytest.mark.parametrize(
    ("scarce", "waiting", "sink", "copied"),
    [(True, 0, None, True), (False, 0, None, False), (True, 1, None, False), (True, 0, print, False)],
)
def test_a_message_of_a_connection_that_no_task_waits_for_is_copied_if_receives_are_scarce(
    connection: Connection, scarce: bool, waiting: int, sink: Any, copied: bool
) -> None:
    connection.messages.waiting, connection.messages.sink = waiting, sink
    buffer = connection.buffer(scarce=scarce)
    connection.arrived(buffer, 0)
    (message,) = connection.messages.delivered
    assert isinstance(message, CopiedBuffer) is copied
    assert connection.recycled == [buffer] * copied
    assert (message.contents, message.length, message.tag) == (bytes(3), 3, 0)


@pytest.mark.parametrize("total", [0, 1, 2, 3])
def test_a_connection_ends_when_all_announced_messages_were_received(connection: Connection, total: int) -> None:
    connection.come(0)
    connection.end(total)
    assert (connection.ends, connection.end_received) == ((1, True) if total <= 1 else (0, False))
    connection.come(1)
    assert (connection.ends > 0) is (total <= 2)
    assert connection.end_received is (total <= 2)


def test_a_connection_whose_end_was_not_announced_goes_on(connection: Connection) -> None:
    connection.come(0, 1, 2)
    assert (connection.ends, connection.end_received) == (0, False)


def test_the_first_end_that_the_peer_of_a_connection_announces_counts(connection: Connection) -> None:
    short: Any = SimpleNamespace(kind=FrameKind.END, body=b"\0" * 7)
    connection._frame(short)
    assert connection.driver.delays == []
    connection.end(3)
    connection.end(0)
    assert (connection.last, connection.ends) == (3, 0)
    assert [delay for delay, _ in connection.driver.delays] == [1.0]


def test_an_end_that_is_complete_starts_no_timer_of_its_connection(connection: Connection) -> None:
    connection.end(0)
    assert (connection.ends, connection.driver.delays) == (1, [])


@pytest.mark.parametrize("kind", FrameKind)
def test_only_frames_for_the_doorbell_of_a_connection_reach_it(connection: Connection, kind: FrameKind) -> None:
    frame: Any = SimpleNamespace(kind=kind, body=b"x")
    connection._frame(frame)
    rings = kind in (FrameKind.ASLEEP, FrameKind.WILL_RING, FrameKind.RING)
    assert connection.rings == [(kind, b"x")] * rings
    assert connection.last is None


def test_a_connection_announces_what_was_taken_after_more_than_half_of_its_window(connection: Connection) -> None:
    announced = []
    for _ in range(4):
        connection.took()
        announced.append(connection.sending.announced)
    assert announced == [0, 0, 1, 2]
    assert connection.taken == 4
    connection.announced = 4
    connection.took()
    assert connection.sending.announced == 2


@pytest.mark.parametrize("why", ["no route", "peer gone", "closed", "native object closed"])
def test_a_connection_without_a_peer_announces_nothing(connection: Connection, why: str) -> None:
    if why == "no route":
        connection.tx = None
    elif why == "peer gone":
        connection.gone = ConnectionResetError
    elif why == "closed":
        connection.closed = True
    else:
        connection.native_open = False
    for _ in range(5):
        connection.took()
    assert (connection.taken, connection.sending.announced) == (5, 0)


def test_a_message_in_the_memory_of_the_caller_counts_as_received_and_taken(connection: Connection) -> None:
    connection.end(2)
    connection.took_directly()
    assert (connection.received, connection.taken, connection.ends) == (1, 1, 0)
    connection.took_directly()
    assert (connection.received, connection.taken, connection.ends) == (2, 2, 1)


@pytest.mark.parametrize(
    ("code", "native_open", "lost", "timers"),
    [
        (errno.EPIPE, True, True, 1),
        (errno.ESRCH, True, True, 1),
        (constants.FI_ECANCELED, True, True, 1),
        (errno.EPIPE, False, True, 0),
        (errno.EINVAL, True, False, 0),
        (errno.EINVAL, False, False, 0),
    ],
)
def test_an_error_of_an_unreachable_peer_makes_its_connection_expect_the_end(
    connection: Connection, code: int, native_open: bool, lost: bool, timers: int
) -> None:
    connection.native_open = native_open
    assert connection.unreachable(code) is lost
    assert len(connection.driver.delays) == timers


def test_a_connection_waits_once_for_late_messages_and_is_polled_meanwhile(connection: Connection) -> None:
    connection._oob_socket_ended()
    connection.unreachable(errno.EPIPE)
    assert [delay for delay, _ in connection.driver.delays] == [0.1]
    assert (connection.source.interest, connection.touched, connection.lost, connection.ends) == (1, 1, 1, 0)
    connection.driver.pass_time()
    assert connection.ends == 1


@pytest.mark.parametrize("why", ["gone", "closed"])
def test_a_connection_that_has_ended_expects_no_late_messages(connection: Connection, why: str) -> None:
    if why == "gone":
        connection.gone = ConnectionResetError
    else:
        connection.closed = True
    connection.unreachable(errno.EPIPE)
    assert (connection.driver.delays, connection.source.interest, connection.touched) == ([], 0, 0)


def test_the_end_of_the_oob_socket_is_the_end_of_a_connection_that_closes(connection: Connection) -> None:
    connection.ending = True
    connection._oob_socket_ended()
    assert (connection.ends, connection.lost, connection.driver.delays) == (1, 0, [])


def test_the_end_of_the_oob_socket_after_an_announced_end_of_a_connection_changes_nothing(
    connection: Connection,
) -> None:
    connection.end(3)
    connection._oob_socket_ended()
    assert (connection.ends, connection.lost, len(connection.driver.delays)) == (0, 0, 1)


@pytest.mark.parametrize(
    ("announced", "pooled", "posted", "goes_on"),
    [(True, False, False, True), (False, False, False, False), (True, True, False, False), (True, False, True, False)],
)
def test_announced_messages_of_a_connection_wait_for_receives_that_the_program_posts_later(
    connection: Connection, announced: bool, pooled: bool, posted: bool, goes_on: bool
) -> None:
    if not pooled:
        connection.pool = None
    if announced:
        connection.end(3)
    else:
        connection._oob_socket_ended()
    connection.rx.posted = ["receive"] * posted
    connection.driver.pass_time()
    assert connection.ends == (not goes_on)
    assert [delay for delay, _ in connection.driver.delays] == [1.0] * goes_on
    assert connection.source.interest == 1


@pytest.mark.parametrize(
    ("what", "dormant"),
    [("nothing", True), ("remote writes", False), ("late messages", False), ("queued", False), ("credits", False)],
)
def test_a_connection_with_something_under_way_is_not_dormant(connection: Connection, what: str, dormant: bool) -> None:
    double: Any = object()
    if what == "remote writes":
        connection.remote_writes = double
    elif what == "late messages":
        connection._oob_socket_ended()
    elif what == "queued":
        connection.sending.waiting.append("message")
    elif what == "credits":
        connection.sending.owes = True
    assert connection.dormant is dormant
    if what in ("nothing", "queued", "credits"):
        connection.tx = None
        assert connection.dormant


@pytest.mark.parametrize(
    ("route", "queued", "orderly"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_an_end_at_once_of_a_connection_is_orderly_if_nothing_is_queued(
    connection: Connection, route: bool, queued: bool, orderly: bool
) -> None:
    connection.sending.waiting += ["message"] * queued
    if not route:
        connection.tx = None
    connection.end_at_once()
    assert connection.orderly is orderly


@pytest.mark.parametrize("room", [0, 64])
def test_the_end_frame_of_a_connection_has_the_number_of_messages_sent(connection: Connection, room: int) -> None:
    sock: Any = OobSocket()
    connection.oob_socket = sock
    connection.sending.room = room
    caller = Caller(connection.driver, connection.send_end())
    assert caller.outcome is bool(room)
    assert sock.frames == [(FrameKind.END, struct.pack("!Q", 7))]


@pytest.mark.parametrize(
    ("ours", "theirs", "seconds"), [(None, 0.0, []), (5.0, 0.0, [5.0]), (None, 6.0, [6.0]), (5.0, 6.0, [5.0])]
)
@pytest.mark.parametrize("closed", [False, True])
def test_the_oob_socket_of_a_connection_reports_from_the_handshake_on(
    connection: Connection, ours: float | None, theirs: float, seconds: list[float], closed: bool
) -> None:
    sock: Any = OobSocket(closed=closed)
    connection.heartbeat = ours
    connection.hold(sock, theirs)
    assert sock.heartbeats == seconds
    assert (sock.handed_out, connection.woken) == (1, 1)
    assert connection.lost == closed
    sock.on_end()
    assert connection.lost == closed + 1


@pytest.mark.parametrize(
    ("code", "received", "what", "state", "error"),
    [
        (constants.FI_ETRUNC, True, "fi_trecv", POSTED, ArithmeticError),
        (constants.FI_ETRUNC, False, "fi_tsend", POSTED, ArithmeticError),
        (errno.EIO, True, "fi_trecv", POSTED, ConnectionAbortedError),
        (errno.EPIPE, True, "fi_trecv", POSTED, ArithmeticError),
        (errno.EPIPE, False, "fi_tsend", POSTED, ConnectionAbortedError),
        (errno.EIO, False, "fi_tsend", POSTED, ConnectionAbortedError),
        (errno.EPIPE, False, "fi_tsend", State.CANCELLING, ArithmeticError),
        (errno.EPIPE, False, "fi_write", POSTED, ArithmeticError),
        (errno.EINVAL, False, "fi_tsend", POSTED, ArithmeticError),
    ],
)
def test_an_error_of_an_operation_that_shows_a_lost_peer_is_the_error_of_its_connection(
    connection: Connection, code: int, received: bool, what: str, state: Any, error: type[Exception]
) -> None:
    transfer: Any = SimpleNamespace(
        owner=connection.rx if received else connection.tx, what=what, state=state, length=1
    )
    connection.tx.name = None
    entry: Any = SimpleNamespace(errno=code)
    connection.rx.name = None
    assert type(connection.explain(transfer, entry)) is error
    assert (connection.received, connection.taken) == ((1, 1) if code == constants.FI_ETRUNC and received else (0, 0))
    assert len(connection.driver.delays) == (error is ConnectionAbortedError)
    if error is ConnectionAbortedError:
        connection.gone = ConnectionResetError
        assert type(connection.explain(transfer, entry)) is ConnectionResetError


# -- the first message over the fabric


@pytest.mark.parametrize("live", [False, True])
def test_a_ping_is_answered_while_the_connection_is_live(live: bool) -> None:
    it = Connection()
    it.native_open = live
    buffer = it.buffer()
    it.arrived(buffer, KIND_PING | 9 << CREDITS)
    assert it.sending.told == [KIND_PONG] * live
    assert (it.sending.grants, it.recycled, it.messages.delivered) == ([9], [buffer], [])


def test_a_ping_before_the_sending_side_exists_is_dropped() -> None:
    it = Connection()
    it.tx = None
    buffer = it.buffer()
    it.arrived(buffer, KIND_PING)
    assert it.recycled == [buffer]


def test_a_pong_is_given_to_the_client_that_waits_for_it_once() -> None:
    it = Connection()
    it.arrived(it.buffer(), KIND_PONG)  # none waits
    waiter = it.pong = it.driver.create_waiter()
    it.arrived(it.buffer(), KIND_PONG)
    it.arrived(it.buffer(), KIND_PONG)
    assert waiter.result() == 0
    assert it.received == 0


def test_a_later_ping_is_answered_by_the_pong_after_that_of_the_client() -> None:
    it = Connection()
    told: list[bool] = []
    waiter = it.pong = it.driver.create_waiter()
    it.ask(told.append)
    it.arrived(it.buffer(), KIND_PONG)
    assert (waiter.result(), told) == (0, [])
    it.arrived(it.buffer(), KIND_PONG)
    it.arrived(it.buffer(), KIND_PONG)
    assert told == [True]


def test_a_client_that_waits_for_a_pong_is_told_of_an_unreachable_peer() -> None:
    it = Connection()
    waiter = it.pong = it.driver.create_waiter()
    assert it.unreachable(errno.EHOSTUNREACH)
    assert waiter.result() == errno.EHOSTUNREACH
