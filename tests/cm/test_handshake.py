"""The states of a connection: each event, at each time, without a provider."""

# Doubles: fi_connect of an endpoint that does not exist.

from collections.abc import Iterator
from typing import Any

import pytest

from aiofabric import FabricConnectionAbortedError, FabricConnectionRefusedError
from aiofabric._ffi import constants, ffi, lib
from aiofabric.cm.events import CONNECTED, SHUTDOWN, Event, EventError
from aiofabric.cm.handshake import MOVES, ConnectionState, Handshake, Stage
from aiofabric.errors import InternalError
from tests.cq.manual import Caller, Endpoint

pytestmark = pytest.mark.once

CONNECTING = ConnectionState.CONNECTING
ERROR = EventError(1, constants.FI_ECONNREFUSED, 0, "", b"")


class Events:
    """An event queue that passes on what the test has."""

    def __init__(self) -> None:
        self.handlers: dict[int, Handshake] = {}

    def handle_events_of(self, fid: Any, handler: Handshake) -> int:
        self.handlers[1] = handler
        return 1

    def forget(self, key: int) -> None:
        del self.handlers[key]


class Connection:
    """A handshake whose connect is under way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lib, "fi_connect", lambda *_: 0)
        self.endpoint = Endpoint()
        self.events = Events()
        events: Any = self.events
        self.handshake = Handshake(self.endpoint.source, events, ffi.NULL, None)
        self.lost = 0
        self.handshake.gone = self.lose
        self.caller = Caller(self.endpoint.driver, self.handshake.connect(ffi.NULL, b""))
        self.endpoint.driver.settle_down()

    def lose(self) -> None:
        self.lost += 1

    def event(self, kind: int) -> None:
        self.events.handlers[1].event(Event(kind, 1, b"", ffi.NULL))
        self.endpoint.driver.settle_down()

    def error(self) -> None:
        self.handshake.event_error(ERROR)
        self.endpoint.driver.settle_down()


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    it = Connection(monkeypatch)
    yield it
    it.handshake.end()
    it.endpoint.driver.settle_down()
    assert it.handshake.state is ConnectionState.CLOSED
    it.endpoint.close()


@pytest.mark.parametrize("before", ConnectionState)
@pytest.mark.parametrize("after", ConnectionState)
def test_a_move_that_the_table_has_not_is_refused(before: ConnectionState, after: ConnectionState) -> None:
    stage = Stage()
    stage.state = before
    if after in MOVES[before]:
        stage.move(after)
        assert stage.state is after
    else:
        with pytest.raises(InternalError, match=f"impossible move from {before.value} to {after.value}"):
            stage.move(after)
        assert stage.state is before


def test_a_peer_that_leaves_before_the_connection_ends_the_connect(connection: Connection) -> None:
    assert not connection.caller.done
    connection.event(SHUTDOWN)
    assert isinstance(connection.caller.outcome, FabricConnectionAbortedError)
    assert connection.caller.outcome.call == "fi_connect"
    assert (connection.handshake.state, connection.lost) == (ConnectionState.PEER_GONE, 1)
    assert connection.events.handlers == {}


def test_an_error_before_the_connection_is_the_reason(connection: Connection) -> None:
    connection.error()
    assert isinstance(connection.caller.outcome, FabricConnectionRefusedError)
    assert (connection.handshake.state, connection.lost) == (ConnectionState.PEER_GONE, 0)


def test_an_error_of_a_connection_is_its_end(connection: Connection) -> None:
    connection.event(CONNECTED)
    assert connection.caller.done
    assert connection.caller.outcome is None
    connection.error()
    assert (connection.handshake.state, connection.lost) == (ConnectionState.PEER_GONE, 1)
    assert connection.events.handlers == {}
    connection.error()  # of what the provider still had
    assert connection.lost == 1
