"""How long memory of a closed region is kept for endpoints whose peers may still use it: the rule alone."""

# Doubles: what the kernel says about a socket, and the clock.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.regions import Arrivals, MemoryOwner
from aiofabric.transport import peer_access
from aiofabric.transport.peer_access import RegionMemory
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once

DELAYS = [0.001, 0.005, 0.02, 0.05, 0.2]
SOCKET = 9
READ = RegionMemory("memory", None, 0, 0)


class Loop:
    """The source of some endpoints; a progress call may write more."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.draining = self.closed = False
        self.written: int | None = 100  # None: the socket has no room
        self.to_write = 0  # by the next progress call
        self.drains = 0
        self.silent: float | None = 0.0  # seconds without data; None: data is unread
        self.now = 100.0
        self.arrived = 7000  # bytes

    def drain(self) -> None:
        self.drains += 1
        if self.written is not None:
            self.written += self.to_write


class Endpoint(MemoryOwner):
    """An endpoint whose peer may use memory of this process."""

    serves_memory = True
    native_open = True
    source: Any
    kept: Any
    messages_arrived: int
    transmits_posted: int
    transmits_completed: int
    waits: int

    @classmethod
    def of(cls, source: Any, *, socket: int = SOCKET, children: Any = ()) -> Any:
        endpoint: Any = cls.__new__(cls)
        endpoint.source, endpoint.kept, endpoint.socket, endpoint.waits = source, [], socket, 0
        endpoint.children, endpoint.messages_arrived = list(children), 0
        endpoint.transmits_posted = endpoint.transmits_completed = 0
        return endpoint

    def wait_until_quiet(self) -> None:
        self.waits += 1


class Quiet(Endpoint):
    """Its peers read no memory."""

    serves_memory = False


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(peer_access, "bytes_written", lambda number: loop.written if number >= 0 else None)
    monkeypatch.setattr(peer_access, "seconds_without_data", lambda _: loop.silent)
    monkeypatch.setattr(peer_access, "data_arrived", lambda _: loop.arrived)
    monkeypatch.setattr(peer_access, "monotonic", lambda: loop.now)
    return loop


def keep(*endpoints: Any, memory: str = "memory", before: Arrivals | None = None) -> None:
    parent: Any = SimpleNamespace(children=[object(), *endpoints])
    peer_access.keep_for_peers(parent, [(memory, before)])


def arrivals(source: Loop, *endpoints: Any) -> Arrivals:
    """Arrivals of five seconds ago, counted at some endpoints."""
    return Arrivals(source.now - 5, dict.fromkeys(endpoints, source.arrived))


def memory_of(endpoint: Any) -> list[str]:
    return [kept.memory for kept in endpoint.kept]


def test_memory_is_released_at_once_if_nothing_more_is_written(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    keep(endpoint)
    assert (endpoint.kept, source.drains) == ([], 1)


@pytest.mark.parametrize("before", [True, False])
def test_it_is_released_when_a_message_has_left_that_was_posted_later(before: bool, source: Loop) -> None:
    """A connection that always sends has never nothing to write."""
    endpoint = Endpoint.of(source)
    source.to_write = 5
    endpoint.transmits_completed, endpoint.transmits_posted = 7, 10
    keep(endpoint)
    endpoint.transmits_completed, endpoint.transmits_posted = 10 if before else 11, 20
    keep(endpoint, memory="more")
    assert memory_of(endpoint) == (["memory", "more"] if before else ["more"])
    endpoint.transmits_completed = 21
    peer_access.poll_again(endpoint)
    assert memory_of(endpoint) == []


def test_messages_say_nothing_about_writes_of_the_peer(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    source.to_write = 5
    keep(endpoint, before=Arrivals(source.now - 5, {}))
    endpoint.transmits_completed = 1
    keep(endpoint)
    assert memory_of(endpoint) == ["memory", "memory"]


@pytest.mark.parametrize("reason", ["more is written", "no room", "no socket", "in a pass"])
def test_otherwise_it_is_kept(reason: str, source: Loop) -> None:
    endpoint = Endpoint.of(source, socket=-1 if reason == "no socket" else SOCKET)
    source.to_write = 5 if reason == "more is written" else 0
    source.written = None if reason == "no room" else 100
    source.draining = reason == "in a pass"
    keep(endpoint)
    keep(endpoint, memory="more")
    assert memory_of(endpoint) == ["memory", "more"]
    assert endpoint.waits == 1  # once for all
    assert source.drains == (0 if reason == "in a pass" else 2)


@pytest.mark.parametrize("more", [False, True])
def test_memory_of_regions_that_close_together_takes_one_pass_and_one_wait(more: bool, source: Loop) -> None:
    endpoint, parent = Endpoint.of(source), SimpleNamespace(children=[])
    parent.children.append(endpoint)
    source.to_write = 5 if more else 0
    closed: Any = [("a", None), ("b", None), ("c", None)]
    peer_access.keep_for_peers(parent, closed)  # type: ignore[arg-type]
    assert memory_of(endpoint) == (["a", "b", "c"] if more else [])
    assert (endpoint.waits, source.drains) == (int(more), 1)


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
    assert [memory_of(each) for each in (alias, below, closed, quiet)] == [["memory"], ["memory"], [], []]


# -- until a connection over tcp has sent everything


def test_a_connection_is_asked_again_after_growing_delays(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    endpoint.kept = [READ]
    source.written = None
    peer_access.poll_again(endpoint)
    assert [source.driver.pass_time() for _ in range(6)] == [*DELAYS, DELAYS[-1]]
    assert endpoint.kept == [READ]
    source.written, source.to_write = 100, 7
    source.driver.pass_time()
    assert endpoint.kept == [READ]
    source.to_write = 0
    source.draining = True
    source.driver.pass_time()
    assert endpoint.kept == [READ]
    source.draining = False
    source.driver.pass_time()
    assert endpoint.kept == []
    assert not source.driver.delays


@pytest.mark.parametrize("reason", ["nothing kept", "closed endpoint", "closed loop", "no socket"])
def test_nothing_is_asked_without_need(reason: str, source: Loop) -> None:
    endpoint = Endpoint.of(source, socket=-1 if reason == "no socket" else SOCKET)
    endpoint.kept = [] if reason == "nothing kept" else [READ]
    endpoint.native_open = reason != "closed endpoint"
    source.driver.is_closed = reason == "closed loop"
    peer_access.poll_again(endpoint)
    assert source.drains == 0
    assert not source.driver.delays
    assert bool(endpoint.kept) is (reason != "nothing kept")


# -- until no write is under way


@pytest.mark.parametrize("reason", ["data arrived since", "data is unread"])
def test_memory_that_peers_may_write_is_kept(reason: str, source: Loop) -> None:
    endpoint = Endpoint.of(source)
    source.silent = None if reason == "data is unread" else 2.0
    keep(endpoint, before=arrivals(source))
    assert (memory_of(endpoint), endpoint.waits) == (["memory"], 1)


def test_nothing_arrived_since_the_registration_so_no_write_is_under_way(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    source.silent = 6.0
    keep(endpoint, before=arrivals(source))
    assert endpoint.kept == []


def test_what_had_arrived_is_compared_where_it_was_counted(source: Loop) -> None:
    """The kernel tells the time of the last data in ticks, and a connection may be as young as the registration."""
    endpoint = Endpoint.of(source)
    before = arrivals(source, endpoint)
    keep(endpoint, before=before)
    assert endpoint.kept == []
    source.arrived += 1
    keep(endpoint, before=before)
    assert memory_of(endpoint) == ["memory"]


def kept_for_a_write(source: Loop) -> Any:
    endpoint = Endpoint.of(source)
    source.silent = 2.0
    keep(endpoint, before=arrivals(source))
    peer_access.poll_again(endpoint)
    source.driver.pass_time()
    assert memory_of(endpoint) == ["memory"]
    return endpoint


def test_a_message_comes_behind_the_write(source: Loop) -> None:
    endpoint = kept_for_a_write(source)
    endpoint.messages_arrived = 1
    source.driver.pass_time()
    assert endpoint.kept == []
    assert not source.driver.delays


def test_a_message_that_the_pass_of_the_close_reads_proves_nothing(source: Loop) -> None:
    """It may have come before the write."""
    endpoint = Endpoint.of(source)
    source.silent, source.draining = 2.0, True
    keep(endpoint, before=arrivals(source))
    endpoint.messages_arrived, source.draining = 3, False
    peer_access.poll_again(endpoint)
    assert memory_of(endpoint) == ["memory"]
    endpoint.messages_arrived = 4
    source.driver.pass_time()
    assert endpoint.kept == []


def test_after_a_long_silence_no_write_is_under_way(source: Loop) -> None:
    endpoint = kept_for_a_write(source)
    source.silent, source.now = 29.0, source.now + 27
    source.driver.pass_time()
    assert memory_of(endpoint) == ["memory"]
    source.silent, source.now = 31.0, source.now + 2
    source.driver.pass_time()
    assert endpoint.kept == []


def test_memory_that_is_only_read_does_not_wait_for_the_write_of_other_memory(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    source.silent, source.to_write = 2.0, 5
    keep(endpoint)
    keep(endpoint, memory="written", before=arrivals(source))
    source.to_write = 0
    peer_access.poll_again(endpoint)
    assert memory_of(endpoint) == ["written"]


# -- registrations that a peer's request may still need


class Deregistered:
    """Closes a region whose key a peer may know, over a provider that never answers a request for a closed one."""

    def __init__(self, endpoint: Any, *, shown: bool = True, blocks: bool = True) -> None:
        self.calls: list[str] = []
        endpoint.source.operations, endpoint.source.queued = {}, []
        self.regions = SimpleNamespace(waiting={})
        domain: Any = SimpleNamespace(children=[endpoint], refused_requests_block=blocks, regions=self.regions)
        region: Any = SimpleNamespace(key=5, shown=shown)
        self.waits = peer_access.after_transfers(domain, region, self.deregister)

    def deregister(self) -> None:
        self.calls.append("deregistered")


@pytest.mark.parametrize("unlike", [{"shown": False}, {"blocks": False}])
def test_a_registration_that_no_request_can_block_goes_at_once(unlike: dict[str, bool], source: Loop) -> None:
    assert not Deregistered(Endpoint.of(source), **unlike).waits


def test_a_registration_stays_while_a_request_may_be_on_its_way(source: Loop) -> None:
    region = Deregistered(Endpoint.of(source))
    assert region.waits
    source.driver.pass_time()
    assert not region.calls
    source.now += 30
    source.driver.pass_time()
    assert len(region.calls) == 1
    assert not region.regions.waiting
    assert not source.driver.delays


def test_a_registration_goes_with_the_last_endpoint(source: Loop) -> None:
    endpoint = Endpoint.of(source)
    region = Deregistered(endpoint)
    endpoint.native_open = False
    for check in list(region.regions.waiting):
        check()
        check()
    source.driver.pass_time()
    assert len(region.calls) == 1
