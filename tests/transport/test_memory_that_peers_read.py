"""How long memory of a closed region is kept for endpoints that may still send from it: the rule alone."""

# Doubles: how much the kernel says was written to a socket.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.regions import MemoryOwner
from aiofabric.transport import readers
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once

DELAYS = [0.001, 0.005, 0.02, 0.05]
SOCKET = 9


class Loop:
    """The source of some endpoints; a progress call may write more."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.draining = self.closed = False
        self.written: int | None = 100  # None: the socket has no room
        self.to_write = 0  # by the next progress call
        self.drains = 0

    def drain(self) -> None:
        self.drains += 1
        if self.written is not None:
            self.written += self.to_write


class Endpoint(MemoryOwner):
    """An endpoint whose peer may read memory of this process."""

    serves_memory = True
    native_open = True
    source: Any
    kept: Any
    waits: int

    @classmethod
    def of(cls, source: Any, *, socket: int = SOCKET, children: Any = ()) -> Any:
        endpoint: Any = cls.__new__(cls)
        endpoint.source, endpoint.kept, endpoint.socket, endpoint.waits = source, [], socket, 0
        endpoint.children = list(children)
        return endpoint

    def wait_until_quiet(self) -> None:
        self.waits += 1


class Quiet(Endpoint):
    """Its peers read no memory."""

    serves_memory = False


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(readers, "bytes_written", lambda number: loop.written if number >= 0 else None)
    return loop


def keep(*endpoints: Any, memory: str = "memory") -> None:
    parent: Any = SimpleNamespace(children=[object(), *endpoints])
    readers.keep_for_readers(parent, memory)


def test_memory_is_released_at_once_if_nothing_more_is_written(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    keep(endpoint)
    assert (endpoint.kept, source.drains) == ([], 1)


@pytest.mark.parametrize("reason", ["more is written", "no room", "no socket", "in a pass"])
def test_otherwise_it_is_kept(reason: str, source: Loop) -> None:
    endpoint = Endpoint.of(source, socket=-1 if reason == "no socket" else SOCKET)
    source.to_write = 5 if reason == "more is written" else 0
    source.written = None if reason == "no room" else 100
    source.draining = reason == "in a pass"
    keep(endpoint)
    keep(endpoint, memory="more")
    assert endpoint.kept == ["memory", "more"]
    assert endpoint.waits == 1  # once for all
    assert source.drains == (0 if reason == "in a pass" else 2)


@pytest.mark.parametrize("reason", ["closed source", "closed loop"])
def test_nothing_is_read_after_the_end(reason: str, source: Loop) -> None:
    source.closed = reason == "closed source"
    source.driver.is_closed = reason == "closed loop"
    keep(Endpoint.of(source))
    assert source.drains == 0


def test_the_loop_of_several_endpoints_makes_one_pass(source: Loop) -> None:
    keep(Endpoint.of(source), Endpoint.of(source, children=[Endpoint.of(source)]))
    assert source.drains == 1


def test_endpoints_of_endpoints_are_asked_too_and_others_are_not(source: Loop) -> None:
    source.to_write = 1
    alias, closed, quiet = Endpoint.of(source), Endpoint.of(source), Quiet.of(source)
    closed.native_open = False
    below = Endpoint.of(source)
    quiet.children = [below]
    keep(Endpoint.of(source, children=[object(), alias]), closed, quiet)
    assert [each.kept for each in (alias, below, closed, quiet)] == [["memory"], ["memory"], [], []]


# -- until a connection over tcp has sent everything


def test_a_connection_is_asked_again_after_growing_delays(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    endpoint.kept = ["memory"]
    source.written = None
    readers.poll_again(endpoint)
    assert [source.driver.pass_time() for _ in range(5)] == [*DELAYS, DELAYS[3]]
    assert endpoint.kept == ["memory"]
    source.written, source.to_write = 100, 7
    source.driver.pass_time()
    assert endpoint.kept == ["memory"]
    source.to_write = 0
    source.draining = True
    source.driver.pass_time()
    assert endpoint.kept == ["memory"]
    source.draining = False
    source.driver.pass_time()
    assert endpoint.kept == []
    assert not source.driver.delays


@pytest.mark.parametrize("reason", ["nothing kept", "closed endpoint", "closed loop", "no socket"])
def test_nothing_is_asked_without_need(reason: str, source: Loop) -> None:
    endpoint = Endpoint.of(source, socket=-1 if reason == "no socket" else SOCKET)
    endpoint.kept = [] if reason == "nothing kept" else ["memory"]
    endpoint.native_open = reason != "closed endpoint"
    source.driver.is_closed = reason == "closed loop"
    readers.poll_again(endpoint)
    assert source.drains == 0
    assert not source.driver.delays
    assert bool(endpoint.kept) is (reason != "nothing kept")
