"""A listener over connected endpoints: its requests, its rejections and its close, without libfabric."""

# Doubles: calls of libfabric, the Info of an event, and whether descriptors are left.
# Privates: an object with the methods of `PassiveHandle` stands for it.

import logging
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import FabricError
from aiofabric._ffi import constants, ffi
from aiofabric.cm import passive as module
from aiofabric.cm.events import CONNREQ
from aiofabric.cm.passive import PassiveHandle
from aiofabric.cm.preface import Preface
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once


@methods_of(
    PassiveHandle, "refuse", "event", "event_error", "wait_failed", "_out_of_descriptors", "read_events", "_gather"
)
class Listening:
    """The state of a passive endpoint."""

    opened_at = "here"
    fid = "passive endpoint"
    param_limit = 256

    def __init__(self) -> None:
        self._warned = False
        self.closed = False
        self.info = SimpleNamespace(fabric_attr=SimpleNamespace(prov_name="sockets"))
        self.batches: list[int] = []  # events of the next reads
        self.events: Any = SimpleNamespace(half_open=None, drain=self.drain)
        self.source = SimpleNamespace(touch_events=lambda: self.order.append("touched"))
        self.order: list[Any] = []
        self.waiters: Any = deque(["a task"])
        self.screen: Any = "a predicate"
        self.requests: list[Any] = []
        self.closes_after = 99

    def drain(self) -> int:
        self.order.append(("read", len(self.waiters), self.screen))
        self.closes_after -= 1
        self.closed = self.closes_after < 1
        return self.batches.pop(0) if self.batches else 0

    def arrived(self, request: Any) -> None:
        self.requests.append(request)

    def fail_waiters(self, error: Any) -> int:
        self.order.append(error)
        return 3


@pytest.fixture
def rejected(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of fi_reject: what a client is told."""
    calls: list[Any] = []

    def reject(fid: Any, handle: Any, data: Any, size: int) -> int:
        calls.append(bytes(ffi.buffer(data, size)) if size else data)
        return -constants.FI_ENOTCONN if handle == "gone" else 0

    library = SimpleNamespace(fi_reject=reject, strdup=lambda text: text)
    monkeypatch.setattr(module, "lib", library)
    return calls


@pytest.fixture
def listening(rejected: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "Info", SimpleNamespace(from_native=lambda native: native))
    return Listening()


# -- requests


def event(kind: int = CONNREQ, provider: Any = "tcp") -> Any:
    named = SimpleNamespace(prov_name=provider)
    info = SimpleNamespace(fabric_attr=named, dest_addr="the client", handle="the request")
    return SimpleNamespace(kind=kind, info=info, param=b"private data")


@pytest.mark.parametrize("watched", [False, True])
def test_a_request_comes_with_its_address_and_descriptor(
    watched: bool, listening: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ConnectionRequest", lambda *arguments: arguments)
    if watched:
        listening.events.half_open = SimpleNamespace(became_request=lambda address: 9)
    it = event()
    listening.event(it)
    descriptor = 9 if watched else None
    assert listening.requests == [(listening, it.info, b"private data", "the client", descriptor, "the request")]
    assert it.info.handle == ffi.NULL


def test_another_event_is_no_request(listening: Any) -> None:
    listening.event(event(CONNREQ + 1))
    listening.event_error(SimpleNamespace(errno=5))
    assert listening.requests == []


@pytest.mark.parametrize(("given", "found"), [("tcp", "tcp"), ("", b"sockets")])
def test_a_request_without_a_providers_name_gets_the_listeners(
    given: str, found: Any, listening: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ConnectionRequest", lambda *arguments: arguments)
    it = event(provider=given)
    listening.event(it)
    assert it.info.fabric_attr.prov_name == found


# -- rejections


def request(handle: Any = "handle", *, preface: Any = None) -> Any:
    return SimpleNamespace(_fid=handle, preface=preface)


def test_a_rejection_has_the_programs_data(listening: Any, rejected: list[Any]) -> None:
    listening.refuse(request(), b"go away")
    listening.refuse(request(), b"")
    assert rejected == [b"go away", ffi.NULL]


def test_a_client_with_a_preface_sees_that_a_listener_answered(listening: Any, rejected: list[Any]) -> None:
    listening.refuse(request(preface=Preface()), b"go away")
    assert Preface.split(rejected[0]) == (b"go away", Preface())


def test_a_request_that_ended_is_not_rejected(listening: Any, rejected: list[Any]) -> None:
    listening.refuse(request(None), b"go away")
    assert rejected == []
    with pytest.raises(FabricError, match="fi_reject"):
        listening.refuse(request("gone"), b"go away")


# -- events


def test_events_outside_of_a_pass_are_read_until_there_are_none(listening: Any) -> None:
    listening.batches = [2, 1]
    listening.read_events()
    assert [each[0] for each in listening.order if each != "touched"] == ["read"] * 3
    assert listening.order[-1] == "touched"


def test_a_listener_that_an_event_closes_is_read_no_more(listening: Any) -> None:
    listening.batches, listening.closes_after = [2, 1, 1], 2
    listening.read_events()
    assert len(listening.order) == 2
    listening.read_events()
    assert len(listening.order) == 2


def test_requests_that_come_before_the_close_go_to_no_task(listening: Any) -> None:
    listening.batches = [1]
    listening._gather()
    assert listening.order == [("read", 0, None)] * 2
    assert list(listening.waiters) == ["a task"]


def test_tasks_end_with_an_event_queue_that_cannot_be_awaited(listening: Any) -> None:
    error = OSError("no events")
    assert listening.wait_failed(error) == 3
    assert listening.order == [error]


def test_the_lack_of_descriptors_is_logged_once(
    listening: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = True
    monkeypatch.setattr(module, "out_of_descriptors", lambda: out)
    caplog.set_level(logging.WARNING)
    assert [listening._out_of_descriptors() for _ in range(2)] == [True, True]
    assert caplog.text.count("no file descriptor is left") == 1
    out = False
    assert not listening._out_of_descriptors()
    fresh: Any = Listening()
    assert not fresh._out_of_descriptors()
    assert len(caplog.records) == 1
