"""Promises of the multiplexer: receives of a connection that ends are shared out; a lost peer takes none with it."""

# Privates: a multiplexer without a provider is given its pools and its queues by the test.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address, FabricConnectionRefusedError
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
    ("host", "late", "closed", "kept"),
    [
        (False, False, False, 0),
        (False, False, True, 0),
        (True, False, True, 0),
        (True, False, False, 64),
        (False, True, True, 0),
        (False, True, False, 64),
    ],
)
def test_released_peers_are_forgotten_at_once_where_none_of_them_may_still_send_or_read(
    host: bool, late: bool, closed: bool, kept: int
) -> None:
    forgotten: list[Any] = []
    sharing: Any = Sharing(16)
    sharing.closed, sharing.host, sharing._unanswered, sharing._answers_late = closed, host, None, late
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


# -- shares of receives: of 160, ten are in no pool


@pytest.mark.parametrize(
    ("others", "wanted", "counts", "asks_again"),
    [
        ([], 100, [100], False),
        ([], 150, [150], False),
        ([], 151, [150], False),  # as many as there are
        ([(100, 50, 0)], 50, [50, 50], False),  # enough for both
        ([(100, 100, 0)], 50, [100, 50], False),  # exactly enough
        ([(100, 100, 0)], 51, [100, 50], False),
        ([(100, 100, 0)], 52, [99, 51], False),
        ([(100, 100, 0)], 100, [75, 75], False),  # above its share is given back
        ([(100, 100, 90)], 100, [90, 60], True),  # but not what holds messages
        ([(100, 100, 100)], 100, [100, 50], True),
        ([(100, 60, 60), (100, 60, 0)], 100, [60, 50, 40], True),
        ([(100, 60, 0), (100, 60, 0)], 100, [50, 50, 50], False),
    ],
)
def test_pools_have_shares_of_the_receives(
    others: list[tuple[int, int, int]], wanted: int, counts: list[int], asks_again: bool
) -> None:
    pools = [Receives(*each) for each in others]
    new: Any = Receives(wanted)
    sharing = Sharing(160, *pools)
    sharing.share_out(new)
    assert [each.count for each in (*pools, new)] == counts
    assert len(sharing.later) == asks_again


def test_a_pool_that_has_its_share_gets_none() -> None:
    grown: list[int] = []
    pool: Any = Receives(wanted=50, count=50)
    pool.grow = grown.append
    sharing = Sharing(160, pool)
    sharing.share_out(pool)
    assert not grown
    pool.wanted = 51
    sharing.share_out(pool)
    assert grown == [1]


def test_the_receives_of_queries_are_shared_too() -> None:
    queries: Any = Receives(wanted=100, count=100)
    new: Any = Receives(wanted=100)
    sharing = Sharing(160)
    sharing._address_queries = SimpleNamespace(busy=False), queries  # type: ignore[assignment]
    sharing.share_out(new)
    assert (queries.count, new.count) == (75, 75)


@pytest.mark.parametrize(
    ("strict", "promised", "wanted", "window"),
    [
        (False, 10_000, 64, 64),  # the provider keeps messages that come before their receive
        (True, 0, 64, 64),  # 1,024 receives, of which 896 are promised at most: a fourteenth
        (True, 0, 65, 64),
        (True, 448, 64, 32),
        (True, 896, 64, 1),
        (True, 2000, 64, 1),
    ],
)
def test_windows_shrink_if_a_message_without_a_receive_is_lost(
    strict: bool, promised: int, wanted: int, window: int
) -> None:
    sharing = Sharing(1024, SimpleNamespace(promised=promised), SimpleNamespace(promised=0))
    sharing.strict = strict
    assert sharing.window(wanted) == window


@pytest.mark.parametrize("reason", ["", "query", "queued", "sent", "sent by a connection", "not dormant", "not told"])
def test_a_side_stops_polling_if_all_its_peers_know_it(reason: str) -> None:
    def route(posted: bool) -> Any:
        return SimpleNamespace(posted=[1] if posted else [])

    asked: list[str] = []

    def announce_sleep() -> bool:
        asked.append("asked")
        return reason != "not told"

    sharing: Any = Sharing(160)
    sharing._address_queries = SimpleNamespace(busy=reason == "query"), None
    sharing.source.queued = [1] if reason == "queued" else []
    sharing.handle = SimpleNamespace(routes=[route(False), route(reason == "sent")])
    sharing.connections = {
        number: SimpleNamespace(
            routes=[route(reason == "sent by a connection")],
            dormant=reason != "not dormant",
            doorbell=SimpleNamespace(announce_sleep=announce_sleep),
        )
        for number in range(2)
    }
    assert sharing._fall_asleep() is (reason == "")
    assert len(asked) == (2 if reason in ("", "not told") else 0), "each is told, without waiting for another's answer"


def test_a_connection_that_has_ended_promises_no_receives() -> None:
    sharing: Any = Sharing(160)
    connection = SimpleNamespace(id=5, window=8, pooled=SimpleNamespace(promised=20))
    sharing.connections = {5: connection}
    sharing.leave(connection)
    assert (sharing.connections, connection.pooled.promised) == ({}, 12)


@pytest.mark.parametrize(("has_file", "missing"), [(True, True), (True, False), (False, True)])
def test_an_endpoint_without_its_memory_is_refused(has_file: bool, missing: bool) -> None:
    sharing: Any = Sharing(160)
    sharing._has_file = has_file
    address = Address.from_str("fi_shm://aiofabric-no-such-memory" if missing else "fi_shm://.")
    if has_file and missing:
        with pytest.raises(FabricConnectionRefusedError, match="the memory of the peer's endpoint, does not exist"):
            sharing.check_memory(address, "the peer's")
    else:
        sharing.check_memory(address, "the peer's")
