"""Answers to address queries: how long they hold a peer's address, and how many there are."""

# A multiplexer whose routes take no message, and that records which peers it holds.
# Privates: the time that an answer may take, and the number of answers.

import socket
import struct
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Address, FabricError
from aiofabric._ffi import constants
from aiofabric.transport.virtual.address_query import _ANSWERS_MOST, _TIMEOUT, AddressQueries
from aiofabric.transport.virtual.protocol import QUERY, QUERY_REPLY
from tests.cq.manual import ManualDriver, ManualWaiter
from tests.fixtures.internals import source_of
from tests.fixtures.waiting import until

pytestmark = pytest.mark.once


class Route:
    """The provider has no room: an answer stays queued."""

    def __init__(self) -> None:
        self.queued: list[bytes] = []

    def inject(self, body: bytes, tag: int) -> bool:
        return False

    def post(self, body: bytes, tag: int) -> None:
        self.queued.append(body)

    def fail_waiting(self, error: Any) -> None:
        self.queued.clear()


class Multiplexer:
    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.source = SimpleNamespace(driver=self.driver, interest=0, wake=lambda: None)
        self.endpoint = SimpleNamespace(local_address=Address.from_ip("127.0.0.1", 1))
        self.routes: dict[bytes, Route] = {}
        self.handle = SimpleNamespace(route_to=self.routes.__getitem__, closed_error=None)
        self.held: list[bytes] = []

    def acquire_peer(self, raw: bytes) -> bytes:
        self.held.append(raw)
        self.routes.setdefault(raw, Route())
        return raw

    def release_peer(self, raw: bytes) -> None:
        self.held.remove(raw)


@pytest.fixture
def multiplexer() -> Multiplexer:
    return Multiplexer()


def answering(multiplexer: Any) -> tuple[AddressQueries, Any]:
    listener: Any = SimpleNamespace(address=lambda: Address.from_ip("127.0.0.1", 2))
    queries = AddressQueries(multiplexer)
    queries.answer_for(listener)
    return queries, listener


def ask(queries: AddressQueries, raw: bytes) -> None:
    pool = SimpleNamespace(recycle=lambda _: None)
    query: Any = SimpleNamespace(view=struct.pack("!B8s", 1, b"question") + raw, pool=pool)
    queries.arrived(query, QUERY)


def test_an_answer_that_cannot_be_sent_is_dropped_after_its_time(multiplexer: Multiplexer) -> None:
    queries, _ = answering(multiplexer)
    ask(queries, b"asker")
    assert multiplexer.held == [b"asker"]
    [answer] = multiplexer.routes[b"asker"].queued
    assert answer == struct.pack("!B8sH", 1, b"question", 2) + b"127.0.0.1"
    assert multiplexer.driver.pass_time() == _TIMEOUT
    assert (multiplexer.held, multiplexer.routes[b"asker"].queued) == ([], [])


def test_a_second_query_of_a_peer_replaces_the_answer_to_the_first(multiplexer: Multiplexer) -> None:
    queries, _ = answering(multiplexer)
    ask(queries, b"asker")
    ask(queries, b"asker")
    assert multiplexer.held == [b"asker"]
    assert len(multiplexer.routes[b"asker"].queued) == 1
    assert len(multiplexer.driver.delays) == 1


def test_the_oldest_answer_is_given_up_when_there_are_too_many(multiplexer: Multiplexer) -> None:
    queries, _ = answering(multiplexer)
    for number in range(_ANSWERS_MOST + 1):
        ask(queries, b"%d" % number)
    assert multiplexer.held == [b"%d" % number for number in range(1, _ANSWERS_MOST + 1)]
    assert multiplexer.routes[b"0"].queued == []


def test_no_answer_is_left_when_the_listener_closes(multiplexer: Multiplexer) -> None:
    queries, listener = answering(multiplexer)
    ask(queries, b"asker")
    assert (queries.busy, multiplexer.source.interest) == (True, 1)
    queries.retire(listener)
    assert (queries.busy, multiplexer.source.interest) == (False, 0)
    assert (multiplexer.held, multiplexer.driver.delays) == ([], [])
    ask(queries, b"late")
    assert multiplexer.held == []


@pytest.mark.parametrize("query", [b"", b"\1question", b"\2question asker"], ids=["empty", "no address", "version 2"])
def test_a_query_that_makes_no_sense_has_no_answer(multiplexer: Multiplexer, query: bytes) -> None:
    queries, _ = answering(multiplexer)
    recycled: list[Any] = []
    buffer: Any = SimpleNamespace(view=query, pool=SimpleNamespace(recycle=recycled.append))
    queries.arrived(buffer, QUERY)
    assert recycled == [buffer]
    assert (multiplexer.held, multiplexer.routes) == ([], {})


def test_a_reply_that_nobody_waits_for_is_dropped(multiplexer: Multiplexer) -> None:
    """No question has its number, or another reply came first."""
    queries = AddressQueries(multiplexer)  # type: ignore[arg-type]
    waiter = ManualWaiter(ManualDriver())
    queries._waiters[b"question"] = waiter
    pool = SimpleNamespace(recycle=lambda _: None)
    for reply in (b"\1another.\0\1host", b"\1question\0\1host", b"\1question\0\2late", b"\1another.\0\1host"):
        buffer: Any = SimpleNamespace(view=reply, pool=pool)
        queries.arrived(buffer, QUERY_REPLY)
    assert waiter.result() == b"\0\1host"


@pytest.mark.parametrize(("port", "host"), [(1, b""), (None, socket.gethostname().encode())], ids=["ip", "name"])
def test_a_listener_at_any_address_names_a_host_only_if_the_asker_knows_none(
    multiplexer: Multiplexer, port: int | None, host: bytes
) -> None:
    """An asker with an IP address of the endpoint knows the host by it."""
    if port is None:
        multiplexer.endpoint.local_address = Address.from_str("fi_shm://this-host-only")
    queries = AddressQueries(multiplexer)  # type: ignore[arg-type]
    queries.answer_for(SimpleNamespace(address=lambda: Address.from_ip("0.0.0.0", 2)))  # type: ignore[arg-type]
    ask(queries, b"asker")
    assert multiplexer.routes[b"asker"].queued == [struct.pack("!B8sH", 1, b"question", 2) + host]


class Asking(Multiplexer):
    """Sends no query: the first fails, or the endpoint closes meanwhile."""

    def __init__(self, driver: Any, error: FabricError | None) -> None:
        super().__init__()
        self.driver = self.source.driver = driver
        self.error = error
        self.endpoint = SimpleNamespace(
            local_address=Address.from_ip("127.0.0.1", 1),
            vector=SimpleNamespace(fit=lambda address: address),
            send_tagged=self.send_tagged,
        )
        self.sent = 0

    def acquire_peer(self, raw: bytes) -> Any:
        super().acquire_peer(raw)
        return SimpleNamespace(address=Address.from_ip("127.0.0.1", 5), raw=raw)

    def release_peer(self, peer: Any) -> None:
        super().release_peer(peer.raw)

    def check_memory(self, *_: object) -> None: ...

    async def send_tagged(self, *_: object, **__: object) -> None:
        self.sent += 1
        if self.error is not None:
            raise self.error


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["a query cannot be sent", "the endpoint closes"])
async def test_who_asks_is_told_why_no_answer_comes(end: str) -> None:
    async with aiofabric.open_endpoint(aiofabric.EndpointType.RDM, "127.0.0.1", provider="udp;ofi_rxd") as endpoint:
        error = FabricError(constants.FI_EHOSTUNREACH, "fi_tsend") if end == "a query cannot be sent" else None
        multiplexer: Any = Asking(source_of(endpoint).driver, error)
        queries = AddressQueries(multiplexer)
        caught: list[BaseException] = []

        async def asks() -> None:
            try:
                await queries.ask(Address.from_ip("127.0.0.1", 5))
            except (FabricError, ClosedResourceError) as reason:
                caught.append(reason)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asks)
                await until(lambda: multiplexer.sent)
                queries.end()
                queries.end()
        assert [type(each) for each in caught] == [ClosedResourceError if error is None else type(error)]
        assert not queries.busy
        assert (multiplexer.source.interest, multiplexer.held) == (0, [])
