"""Promises of the multiplexer: receives of a connection that ends are shared out; a lost peer takes none with it."""

# Privates: a multiplexer without a provider is given its pools and its queues by the test.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address
from aiofabric.transport.virtual.multiplexer import _POOLS_MOST, _RELEASED_MOST, Multiplexer
from aiofabric.transport.virtual.protocol import ID

pytestmark = pytest.mark.once


class Receives:
    """A pool of a multiplexer; ``held`` receives have messages that were not taken yet."""

    def __init__(self, wanted: int, count: int = 0, held: int = 0) -> None:
        self.wanted, self.count, self.held = wanted, count, held

    def withdraw(self, most: int) -> int:
        given = min(most, self.count - self.held)
        self.count -= given
        return given

    def grow(self, count: int) -> None:
        self.count += count


class Sharing(Multiplexer):
    """A multiplexer without a provider."""

    closed = False

    def __init__(self, receives: int, *pools: Any) -> None:
        self.receives = receives
        self.later: list[Any] = []
        self._pools = dict(enumerate(pools))
        self._address_queries = None
        self.source: Any = SimpleNamespace(driver=SimpleNamespace(call_later=lambda _, call: self.later.append(call)))


def test_a_pool_that_got_too_few_receives_asks_again() -> None:
    busy, late = Receives(wanted=15, count=15, held=15), Receives(wanted=15)
    sharing = Sharing(16, busy, late)
    sharing.share_out(late)  # type: ignore[arg-type]
    assert late.count == 0
    assert len(sharing.later) == 1
    sharing.share_out(late)  # type: ignore[arg-type]
    assert len(sharing.later) == 1  # one is on its way
    busy.held = 0
    sharing.later.pop()()
    assert (busy.count, late.count) == (8, 7)
    assert sharing.later == []


def test_a_closed_multiplexer_shares_nothing_out() -> None:
    busy, late = Receives(wanted=15, count=15, held=15), Receives(wanted=15)
    sharing = Sharing(16, busy, late)
    sharing.share_out(late)  # type: ignore[arg-type]
    busy.held, sharing.closed = 0, True
    sharing.later.pop()()
    assert late.count == 0


def test_the_end_of_a_peer_without_an_orderly_end_has_its_queues_examined() -> None:
    watched: list[bool] = []
    sharing = Sharing(16)
    sharing._orphaned_entries = None
    sharing.peer_lost()  # a provider without such queues
    entries: Any = SimpleNamespace(watch=lambda: watched.append(True))
    sharing._orphaned_entries = entries
    sharing.peer_lost()
    assert watched == [True]


@pytest.mark.parametrize(
    ("host", "closed", "kept"),
    [(False, False, 0), (False, True, 0), (True, True, 0), (True, False, 64)],
)
def test_released_peers_are_forgotten_at_once_where_none_of_them_may_still_send(
    host: bool, closed: bool, kept: int
) -> None:
    forgotten: list[Any] = []
    sharing: Any = Sharing(16)
    sharing.closed, sharing.host, sharing._unanswered = closed, host, None
    sharing.handle, sharing.source = SimpleNamespace(forget=forgotten.append), SimpleNamespace(drain=lambda: 0)
    peers: list[Any] = list(range(70))
    sharing._users, sharing._released = dict.fromkeys(peers, 2), {}
    for peer in peers:
        sharing.release_peer(peer)
    assert (forgotten, list(sharing._released)) == ([], [])  # each has another connection
    for peer in peers:
        sharing.release_peer(peer)
    assert list(sharing._released) == peers[70 - kept :]
    assert forgotten == ([] if closed else peers[: 70 - kept])  # a closed endpoint has no addresses


def test_a_pool_of_a_new_size_is_a_larger_one_if_there_are_many() -> None:
    sharing = Sharing(16)
    pools: list[Any] = [Receives(wanted=1) for _ in range(_POOLS_MOST)]
    sharing._pools = {100 * size: pool for size, pool in zip(range(_POOLS_MOST, 0, -1), pools, strict=True)}
    assert sharing.pool(200) is pools[-2]
    assert sharing.pool(201) is pools[-3]
    assert sharing.pool(1) is pools[-1]
    with pytest.raises(ValueError, match=f"at most {_POOLS_MOST} different recv_size"):
        sharing.pool(100 * _POOLS_MOST + 1)
    assert len(sharing._pools) == _POOLS_MOST


def test_the_id_of_an_open_connection_is_given_to_no_other() -> None:
    sharing = Sharing(16)
    connections: list[Any] = [SimpleNamespace() for _ in range(5)]
    sharing._next, sharing.connections = ID - 1, {ID: connections[0], 0: connections[1]}
    assert [sharing.enter(each) for each in connections[2:]] == [ID - 1, 1, 2]
    assert sharing.connections == {
        ID: connections[0],
        0: connections[1],
        ID - 1: connections[2],
        1: connections[3],
        2: connections[4],
    }


def test_a_peer_that_has_a_connection_again_is_not_forgotten() -> None:
    forgotten: list[Any] = []
    sharing: Any = Sharing(16)
    sharing.host, sharing._unanswered, sharing._has_file = True, None, False
    sharing.handle, sharing.source = SimpleNamespace(forget=forgotten.append), SimpleNamespace(drain=lambda: 0)
    sharing._users, sharing._released = {}, {}
    local = Address.from_ip("127.0.0.1", 1)
    vector = SimpleNamespace(format=local.format, insert=lambda address: address)
    sharing.endpoint = SimpleNamespace(vector=vector, local_address=local)
    peers = [sharing.acquire_peer(Address.from_ip("127.0.0.1", 2 + number).raw) for number in range(_RELEASED_MOST + 2)]
    for peer in peers[:_RELEASED_MOST]:
        sharing.release_peer(peer)
    assert sharing.acquire_peer(peers[0].raw) == peers[0]
    for peer in peers[_RELEASED_MOST:]:
        sharing.release_peer(peer)
    assert forgotten == [peers[1]]
    assert sharing._users == {peers[0]: 1}
