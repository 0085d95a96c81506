"""The ways in which a handshake ends: what its task gets, what is told to the endpoint, and what is left behind."""

# Doubles: the calls of libfabric for an endpoint that does not exist.

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import FabricConnectionAbortedError, FabricConnectionRejectedError, FabricError
from aiofabric._ffi import constants, ffi, lib
from aiofabric.cm.events import CONNECTED, JOIN_COMPLETE, SHUTDOWN, Event, EventError
from aiofabric.cm.handshake import (
    CHECK_BOTH_SIDES,
    DEVICE_REMOVED,
    ConnectionState,
    Handshake,
    check_param,
    name_of,
    rejection,
)
from aiofabric.cm.preface import Preface
from aiofabric.errors import FabricConnectionResetError, FabricTimeoutError
from tests.cq.manual import Caller, Endpoint

pytestmark = pytest.mark.once

State = ConnectionState


class Events:
    """An event queue that records who gets events."""

    def __init__(self) -> None:
        self.handlers: dict[int, Handshake] = {}
        self.drained = 0

    def handle_events_of(self, fid: Any, handler: Handshake) -> int:
        self.handlers[1] = handler
        return 1

    def forget(self, key: int) -> None:
        del self.handlers[key]

    def drain(self) -> int:
        self.drained += 1
        return 0


class Shaking:
    """A handshake, and the calls that it made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.answer = 0
        monkeypatch.setattr(lib, "fi_connect", lambda _, __, data, size: self.call("connect", data, size))
        monkeypatch.setattr(lib, "fi_accept", lambda _, data, size: self.call("accept", data, size))
        self.endpoint = Endpoint()
        self.events = Events()
        events: Any = self.events
        self.it = Handshake(self.endpoint.source, events, ffi.NULL, None)
        self.lost = 0
        self.it.gone = self.lose

    def call(self, name: str, data: Any, size: int) -> int:
        self.calls.append((name, bytes(ffi.buffer(data, size)) if size else b""))
        assert (data == ffi.NULL) is (size == 0)
        return self.answer

    def lose(self) -> None:
        self.lost += 1

    def begin(self, how: str = "connect", param: bytes = b"mine") -> Caller:
        coroutine = self.it.connect(ffi.NULL, param) if how == "connect" else self.it.accept(param)
        caller = Caller(self.endpoint.driver, coroutine)
        self.endpoint.driver.settle_down()
        return caller

    def event(self, kind: int, param: bytes = b"") -> None:
        self.it.event(Event(kind, 1, param, ffi.NULL))
        self.endpoint.driver.settle_down()


@pytest.fixture
def shaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shaking]:
    shaking = Shaking(monkeypatch)
    yield shaking
    shaking.it.end()
    shaking.it.end()  # a second call does nothing
    assert shaking.it.state is State.CLOSED
    shaking.endpoint.driver.settle_down()
    shaking.endpoint.close()


def error(code: int, *, param: bytes = b"", text: str = "") -> EventError:
    return EventError(1, code, 7, text, param)


@pytest.mark.parametrize("how", ["connect", "accept"])
@pytest.mark.parametrize("param", [b"", b"mine"])
def test_a_handshake_has_an_interest_in_its_queue_until_it_is_connected(
    shaking: Shaking, how: str, param: bytes
) -> None:
    caller = shaking.begin(how, param)
    assert shaking.calls == [(how, param)]
    assert (shaking.endpoint.source.interest, shaking.it.state, caller.done) == (1, State.CONNECTING, False)
    shaking.event(JOIN_COMPLETE)
    assert not caller.done
    shaking.event(CONNECTED, b"theirs")
    assert (caller.done, caller.outcome, shaking.it.state) == (True, None, State.CONNECTED)
    assert shaking.endpoint.source.interest == 0
    assert shaking.it.param == (b"theirs" if how == "connect" else b"")  # an accept gets its own data back
    assert shaking.events.drained == (how == "accept")


@pytest.mark.parametrize("how", ["connect", "accept"])
def test_a_handshake_that_the_provider_refuses_at_once_waits_for_nothing(shaking: Shaking, how: str) -> None:
    shaking.answer = -constants.FI_EINVAL
    caller = shaking.begin(how)
    assert isinstance(caller.outcome, FabricError)
    assert caller.outcome.call == f"fi_{how}"
    assert shaking.endpoint.source.interest == 0


def test_the_end_of_a_connected_peer_is_told_once_and_frees_the_key_of_its_handshake(shaking: Shaking) -> None:
    shaking.begin()
    shaking.event(CONNECTED)
    assert list(shaking.events.handlers) == [1]
    for _ in range(2):
        shaking.event(SHUTDOWN)
        assert (shaking.it.state, shaking.lost, shaking.events.handlers) == (State.PEER_GONE, 1, {})


def test_a_handshake_without_an_endpoint_to_tell_ends_all_the_same(shaking: Shaking) -> None:
    shaking.it.gone = None
    shaking.begin()
    shaking.event(CONNECTED)
    shaking.event(SHUTDOWN)
    assert shaking.it.state is State.PEER_GONE


def test_an_end_by_a_message_counts_only_while_the_handshake_is_done(shaking: Shaking) -> None:
    caller = shaking.begin()
    shaking.it.peer_ended()
    shaking.endpoint.driver.settle_down()
    assert (caller.done, shaking.lost) == (False, 0)
    shaking.event(CONNECTED)
    shaking.it.peer_ended()
    shaking.it.peer_ended()
    assert (shaking.it.state, shaking.lost) == (State.PEER_GONE, 1)


def test_a_queue_that_cannot_be_waited_for_fails_the_handshakes_that_are_under_way(shaking: Shaking) -> None:
    failure = FabricError(constants.FI_EIO, "fi_trywait")
    assert shaking.it.wait_failed(failure) == 0
    caller = shaking.begin()
    assert shaking.it.wait_failed(failure) == 1
    shaking.endpoint.driver.settle_down()
    assert (caller.outcome, shaking.it.state) == (failure, State.PEER_GONE)
    assert shaking.it.wait_failed(failure) == 0


def test_a_connection_whose_device_is_removed_keeps_the_reason(shaking: Shaking) -> None:
    shaking.begin()
    shaking.event(CONNECTED)
    shaking.it.event_error(error(constants.FI_ENODEV))
    assert (shaking.it.state, shaking.it.loss, shaking.lost) == (State.PEER_GONE, DEVICE_REMOVED, 1)


def test_a_handshake_with_a_limit_does_not_wait_for_ever(shaking: Shaking) -> None:
    shaking.it.limit = 150.0
    caller = shaking.begin()
    assert not caller.done
    assert shaking.endpoint.driver.pass_time() == 150.0
    shaking.endpoint.driver.settle_down()
    assert isinstance(caller.outcome, FabricTimeoutError)
    assert "The provider has not answered for 150 seconds" in str(caller.outcome)
    assert shaking.it.state is State.PEER_GONE


def test_a_limit_ends_with_the_handshake(shaking: Shaking) -> None:
    shaking.it.limit = 150.0
    shaking.begin()
    shaking.event(CONNECTED)
    assert shaking.endpoint.driver.delays == []


def test_a_queue_that_cannot_be_waited_for_leaves_a_finished_handshake_alone(shaking: Shaking) -> None:
    shaking.begin()
    shaking.event(CONNECTED)
    assert shaking.it.wait_failed(FabricError(constants.FI_EIO, "fi_trywait")) == 0
    assert shaking.it.state is State.CONNECTED


def test_a_close_ends_the_handshake_that_is_under_way(shaking: Shaking) -> None:
    caller = shaking.begin()
    shaking.it.end()
    shaking.endpoint.driver.settle_down()
    assert isinstance(caller.outcome, ClosedResourceError)
    assert (shaking.events.handlers, shaking.endpoint.source.interest) == ({}, 0)


def test_a_close_after_an_error_of_the_handshake_does_not_hide_the_error(shaking: Shaking) -> None:
    caller = shaking.begin()
    shaking.it.event_error(error(constants.FI_ETIMEDOUT))
    shaking.it.end()
    shaking.endpoint.driver.settle_down()
    assert isinstance(caller.outcome, FabricError)
    assert caller.outcome.errno == constants.FI_ETIMEDOUT


def test_a_close_after_the_end_of_the_loop_wakes_no_handshake(shaking: Shaking) -> None:
    caller = shaking.begin()
    shaking.endpoint.driver.is_closed = True  # its waiters refuse results
    shaking.it.end()
    assert shaking.it.state is State.CLOSED
    assert not caller.done
    caller.collect()
    assert shaking.endpoint.source.interest == 0


def test_a_cancelled_handshake_leaves_no_interest_in_its_queue(shaking: Shaking) -> None:
    caller = shaking.begin()
    caller.cancel()
    shaking.endpoint.driver.settle_down()
    assert caller.done
    assert shaking.endpoint.source.interest == 0
    shaking.event(CONNECTED)  # no task waits for it


def test_a_peer_of_another_protocol_is_named_by_the_handshake(shaking: Shaking) -> None:
    found = shaking.it.refusal(error(constants.FI_ENOPROTOOPT, param=b"x"))
    assert isinstance(found, FabricConnectionAbortedError)
    assert "another protocol" in str(found)
    assert found.cure == CHECK_BOTH_SIDES


@pytest.mark.parametrize("preface", [False, True])
def test_a_rejected_handshake_has_the_data_of_the_listener_alone(shaking: Shaking, preface: bool) -> None:
    data = Preface().follow(b"full") if preface else b"full"
    found = shaking.it.refusal(error(constants.FI_ECONNREFUSED, param=data))
    assert isinstance(found, FabricConnectionRejectedError)
    assert found.param == b"full"


def test_a_refusal_without_data_is_no_rejection_of_a_handshake_by_a_listener(shaking: Shaking) -> None:
    found = shaking.it.refusal(error(constants.FI_ECONNREFUSED, text="the provider's words"))
    assert not isinstance(found, FabricConnectionRejectedError)
    assert "the provider's words" in str(found)
    other = shaking.it.refusal(error(constants.FI_ETIMEDOUT, param=b"full"))
    assert other.errno == constants.FI_ETIMEDOUT


@pytest.mark.parametrize(
    ("code", "cut_off"),
    [(constants.FI_EIO, True), (constants.FI_ECONNRESET, True), (constants.FI_ETIMEDOUT, False)],
)
def test_a_handshake_that_was_cut_off_says_so(shaking: Shaking, code: int, cut_off: bool) -> None:
    found = shaking.it.refusal(error(code))
    assert isinstance(found, FabricConnectionResetError) is cut_off
    assert ("ended the handshake without an answer" in str(found)) is cut_off
    assert (found.cure == CHECK_BOTH_SIDES) is cut_off


@pytest.mark.parametrize(
    ("param", "words"),
    [(b"", ""), (b"full", ", saying 'full'"), (b"\xff", r", saying b'\xff'"), (b"a\0", r", saying b'a\x00'")],
)
def test_the_error_of_a_rejection_shows_its_data_as_text_if_it_is_one(param: bytes, words: str) -> None:
    found = rejection(param, None, "fi_connect")
    assert found.detail == f"The listener rejected the request{words}"


def test_private_data_of_a_handshake_may_be_any_buffer_up_to_the_limit() -> None:
    assert check_param(bytearray(b"four"), 4) == b"four"
    with pytest.raises(ValueError, match="private data has 5 bytes; this provider carries at most 4"):
        check_param(b"fives", 4)
    with pytest.raises(TypeError, match="param must be bytes"):
        check_param(4, 4)


@pytest.mark.parametrize("call", ["fi_getname", "fi_getpeer"])
def test_an_address_that_the_provider_does_not_tell_names_the_call(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[..., int] = lambda *_: -constants.FI_ENOTCONN  # noqa: E731
    monkeypatch.setattr(lib, call, refuse)
    info: Any = None
    with pytest.raises(FabricError) as caught:
        name_of(ffi.NULL, info, getattr(lib, call))
    assert caught.value.call == call
