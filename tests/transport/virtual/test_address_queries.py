"""Answers to address queries: how long they hold a peer's address, and how many there are."""

# A multiplexer whose routes take no message, and that records which peers it holds.
# Privates: the time that an answer may take, and the number of answers.

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address
from aiofabric.transport.virtual.address_query import _ANSWERS_MOST, _TIMEOUT, AddressQueries
from aiofabric.transport.virtual.protocol import QUERY
from tests.cq.manual import ManualDriver

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
