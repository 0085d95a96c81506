"""Multiplexer: the one connectionless endpoint that all virtual connections of a domain share, and their receives.

The receives are shared: a pool of one size receives the messages of all its connections, and the tag identifies the
connection. So no receive stays posted for a connection that has ended, and a late message for it is dropped. Matching
takes as long for a thousand connections as for one. Credits keep every sender within the room of its receiver.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..._ffi import constants
from ...address import Address
from ...cq.submission import most_posted
from ...errors import FabricConnectionRefusedError, NotSupportedError
from ...features import Quirk, quirks
from ...flags import AddressFormat, Caps
from ...workarounds import is_on
from ..connectionless.endpoint import RdmEndpoint
from ..exclusions import lacking, refusal
from ..opening.bindings import check_provider
from ..opening.options import EndpointOptions
from ..opening.shared_objects import opened_as
from ..tags import TagFormat
from ..workarounds.shm_names import path_of
from ..workarounds.shm_orphaned_entries import OrphanedEntries
from ..workarounds.shm_unanswered_sends import Unanswered
from .address_query import AT_ONCE, QUERY_SIZE, AddressQueries
from .notices import Notices
from .protocol import DIRECT, ID, MASK, NOBODY, QUERY_POOL, TAG_BITS, host_mark
from .receive_pools import ReceivePool, Taker

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from ...address_vector import Peer
    from ...cq.polling import Waiting
    from ...cq.reactor import Reactor
    from ...cq.source.source import Source
    from ...domain import Domain
    from ...info import Info
    from ..route import Route
    from .doorbell import Doorbell

__all__ = ["Multiplexer", "acquire_multiplexer", "one_host"]

_POOLS_MOST = QUERY_POOL
_RECEIVES_LEAST = 256
_WINDOW_SHARE = 14  # a new connection gets one in this many of the receives left, if credits are strict
_WINDOW_LEAST = 1
_RELEASED_MOST = 64  # of the 256 peers that shm can have
_SHARE_AGAIN = 0.02  # seconds until a pool that got too few receives asks again
_KEPT_FREE = 16  # one in this many of the provider's receives is in no pool: for direct receives and unknown peers


class Carried(Taker, Protocol):
    """The parts of a carried connection that the multiplexer needs."""

    id: int
    peer: Peer | None
    window: int

    def ask(self, answered: Callable[[bool], None]) -> None: ...
    @property
    def doorbell(self) -> Doorbell: ...
    @property
    def dormant(self) -> bool: ...
    @property
    def pooled(self) -> ReceivePool: ...
    @property
    def routes(self) -> Iterable[Route]: ...


class Multiplexer:
    """The shared endpoint with its pools, its peers and its connections by id."""

    fid: Any
    source: Source
    receives: int
    strict: bool
    _short = False  # a pool has fewer receives than its share

    def __init__(self, info: Info, domain: Domain | None, waiting: Waiting, busy_poll: float) -> None:
        check_provider(info)
        if missing := lacking(info, Caps.TAGGED, Caps.SEND | Caps.RECV):
            raise refusal("connections over tagged messages, in both directions", missing)
        try:
            TagFormat.of(info).check(MASK | DIRECT, MASK)
        except ValueError as error:
            detail = (
                f"Connections over it need tags of {TAG_BITS} bits, each of which can be ignored by itself: {error}"
            )
            raise NotSupportedError(constants.FI_EOPNOTSUPP, info.fabric_attr.prov_name, detail=detail) from None
        options = EndpointOptions(recv_size=None, waiting=waiting, busy_poll=busy_poll)
        if info.rx_attr.size < _RECEIVES_LEAST:  # a size from hints is meant for one connection, not for shared pools
            info = info.replace(rx_attr={"size": _RECEIVES_LEAST})
        self.info = info
        self.endpoint = RdmEndpoint(info, domain, options)
        self.handle = self.endpoint._handle
        self.endpoint.vector.kept_most = 0  # released peers are kept here
        self.notices = Notices(self.handle, self)
        self.handle.send_notices = self.notices.begin
        self.fid = self.handle.fid
        self.source = self.handle.source
        self.connections: dict[int, Carried] = {}
        self.host = host_mark() if one_host(info) else 0
        self._answers_late = Quirk.READS_OUTLIVE_REGIONS in quirks(info)
        self._has_file = bool(self.host) and path_of(self.endpoint.local_address).exists()
        self.receives = most_posted(info.rx_attr.size)
        self.strict = Quirk.IGNORE_FORGOTTEN in quirks(info)  # a message that comes before its receive is lost
        self._orphaned_entries: OrphanedEntries | None = None
        if Quirk.ORPHANED_ENTRIES_STAY in quirks(info) and is_on("orphaned_entries"):
            path = path_of(self.endpoint.local_address)
            self._orphaned_entries = OrphanedEntries(path, self.source.driver, self.source.wake)
        self._unanswered: Unanswered | None = None
        if Quirk.SENDS_WAIT_IN_LINE in quirks(info) and is_on("unanswered_sends"):
            self._unanswered = Unanswered(self.handle)
        self._pools: dict[int, ReceivePool] = {}
        self._address_queries: tuple[AddressQueries, ReceivePool] | None = None
        if self.host:
            self.source.delays.may_stop_polling = self._fall_asleep
        self._users: dict[Peer, int] = {}
        self._released: dict[Peer, None] = {}  # peers without a connection, the oldest first
        self._next = 0
        release = self.handle.on_release
        assert release is not None

        def released() -> None:
            for pool in self._pools.values():
                pool.end()
            self._pools.clear()
            self.source.delays.may_stop_polling = None
            if self._address_queries is not None:
                address_queries, pool = self._address_queries
                address_queries.end()
                pool.end()
            release()

        self.handle.on_release = released

    @property
    def closed(self) -> bool:
        """Whether the endpoint is closed, and its connections with it."""
        return self.handle.closed

    @property
    def address_queries(self) -> AddressQueries:
        """Queries and replies by raw address; their receives are posted at the first use."""
        if self._address_queries is None:
            address_queries = AddressQueries(self)
            pool = ReceivePool(self, QUERY_POOL, QUERY_SIZE, {0: address_queries})
            pool.promise(AT_ONCE)
            self._address_queries = address_queries, pool
        return self._address_queries[0]

    @property
    def busy(self) -> bool:
        """Whether a query or a reply may arrive that a provider without a descriptor does not signal."""
        return self._address_queries is not None and self._address_queries[0].busy

    def _fall_asleep(self) -> bool:
        """Tell all peers that this side stops polling; False if one has not answered, or something needs polling."""
        connections = self.connections.values()
        routes = [*self.handle.routes, *(route for connection in connections for route in connection.routes)]
        if self.busy or self.source.queued or any(route.posted for route in routes):
            return False
        if not all(connection.dormant for connection in connections):
            return False
        answers = [connection.doorbell.announce_sleep() for connection in connections]  # each is told, and answers
        return all(answers)

    def pool(self, size: int) -> ReceivePool:
        """The pool of receives of this size; if there are many sizes already, the next larger one."""
        pool = self._pools.get(size)
        if pool is None:
            if len(self._pools) == _POOLS_MOST:
                fitting = [each for each in self._pools if each > size]
                if not fitting:
                    raise ValueError(f"connections of one domain can have at most {_POOLS_MOST} different recv_size")
                return self._pools[min(fitting)]
            pool = self._pools[size] = ReceivePool(self, len(self._pools), size, self.connections)
        return pool

    def window(self, wanted: int) -> int:
        """How many messages a new connection may have in flight towards this side.

        If a provider loses messages that come before their receive, the sum of the windows stays below the posted
        receives. The window then shrinks with the number of connections.
        """
        if not self.strict:
            return wanted
        left = self.receives * 7 // 8 - sum(pool.promised for pool in self._pools.values())
        return min(wanted, max(_WINDOW_LEAST, left // _WINDOW_SHARE))

    def enter(self, connection: Carried) -> int:
        """Give a connection its id. An id is reused after 16 million connections, so late messages find none."""
        while self._next in self.connections or self._next == NOBODY:
            self._next = (self._next + 1) & ID
        number, self._next = self._next, (self._next + 1) & ID
        self.connections[number] = connection
        return number

    def leave(self, connection: Carried) -> None:
        """The connection has ended: messages for it are dropped."""
        del self.connections[connection.id]
        connection.pooled.promised -= connection.window

    def share_out(self, pool: ReceivePool) -> None:
        """Give a pool the receives that it needs. The provider has one fixed number of receives for all pools.

        Other pools give back the receives above their share. A pool without receives would never get a message, and a
        message that waits for a receive blocks all messages behind it.
        """
        pools = [*self._pools.values(), *(() if self._address_queries is None else (self._address_queries[1],))]
        if pool not in pools:
            pools.append(pool)
        supply = self.receives - self.receives // _KEPT_FREE
        wanted = sum(each.wanted for each in pools)
        share = {each: each.wanted * supply // max(wanted, supply) for each in pools}
        missing = share[pool] - pool.count
        short = missing - (supply - sum(each.count for each in pools))
        for other in pools:
            if short > 0 and (above := other.count - share[other]) > 0:
                short -= other.withdraw(min(above, short))
        if missing > max(0, short):
            pool.grow(missing - max(0, short))
        if short > 0 and not self._short:  # untaken messages hold receives of the other pools
            self._short = True
            self.source.driver.call_later(_SHARE_AGAIN, lambda: self._share_again(pool))

    def _share_again(self, pool: ReceivePool) -> None:
        self._short = False
        if not self.closed:
            self.share_out(pool)

    def peer_lost(self) -> None:
        """Called when a peer has ended without an orderly end: an incomplete message of it may block messages of other
        peers.
        """
        if self._orphaned_entries is not None:
            self._orphaned_entries.watch()

    def acquire_peer(self, raw: bytes) -> Peer:
        """The peer at a raw address; each call is paired with a call of `release_peer`.

        Raises:
            FabricConnectionRefusedError: the memory of one of the two endpoints was removed. A message would crash
                the peer (1.17), or never arrive (2.x).
        """
        address = Address(self.endpoint.vector.format, raw)
        self.check_memory(self.endpoint.local_address, "this process's")
        self.check_memory(address, "the peer's")
        peer = self.endpoint.vector.insert(address)
        self._users[peer] = self._users.get(peer, 0) + 1
        self._released.pop(peer, None)
        return peer

    def check_memory(self, address: Address, whose: str) -> None:
        """Raise if an endpoint of this host has no memory; checked only if names are names of files.

        Raises:
            FabricConnectionRefusedError: the endpoint is closed, or its file was removed.
        """
        if self._has_file and not path_of(address).exists():
            detail = (
                f"No endpoint of this host has that name: {path_of(address)}, the memory of {whose} endpoint, does not "
                "exist. The endpoint is closed, or the file was removed, as shm does at a signal; see the workaround "
                "'signals'"
            )
            error = FabricConnectionRefusedError(errno.ECONNREFUSED, "connect", peer=address, detail=detail)
            error.cure = f"If {whose} endpoint is open, start that process again"
            raise error

    def release_peer(self, peer: Peer) -> None:
        """A connection with the peer has ended; its address is removed some time after the last one.

        The address is not removed at once: a peer whose connection was aborted here may still send. shm looks up the
        sender of each message, and crashes if its address was removed. Other providers may still answer a read of it
        (see `Notices`).
        """
        self._users[peer] -= 1
        if not self._users[peer]:
            del self._users[peer]
            if self._unanswered is not None:
                self._unanswered.watch(peer)
            self._released[peer] = None
            if self.closed or not (self.host or self._answers_late):
                self._lose(peer)
            elif len(self._released) > _RELEASED_MOST:
                self._lose(next(iter(self._released)))

    def reachable(self) -> Mapping[Peer, Carried | None]:
        """The peers with a connection, and those that had one; each with a connection, if it has any."""
        peers: dict[Peer, Carried | None] = dict.fromkeys((*self._users, *self._released))
        peers.update((each.peer, each) for each in self.connections.values() if each.peer is not None)
        return peers

    def find(self, raw: bytes) -> Peer | None:
        """The peer with a raw address that has a connection, or had one; None for any other sender."""
        with suppress(ValueError):
            return self.endpoint.vector.peer_at(Address(self.endpoint.vector.format, raw))
        return None

    @property
    def raw_address(self) -> bytes:
        """The address under which peers reach this endpoint."""
        return self.endpoint.local_address.raw

    def lose(self, peer: Peer) -> None:
        """Remove a peer that has no connection any more.

        shm would crash if the peer still sent, so there the peer stays.
        """
        if peer in self._released and not self.host:
            self._lose(peer)

    def _lose(self, peer: Peer) -> None:
        del self._released[peer]
        if not self.closed:
            self.source.drain()
            self.handle.forget(peer)

    def close(self) -> None:
        """Close the endpoint; its connections are closed first."""
        self.endpoint.close()


def one_host(info: Info) -> bool:
    """Whether the provider stays within its host: its addresses are texts, and it does not report FI_REMOTE_COMM.

    1.17's rxm, rxd and shm report neither FI_LOCAL_COMM nor FI_REMOTE_COMM unless the hints ask for them.
    """
    return info.addr_format == AddressFormat.ADDR_STR and Caps.REMOTE_COMM not in info.caps


def acquire_multiplexer(
    reactor: Reactor,
    info: Info,
    domain: Domain | None,
    waiting: Waiting,
    busy_poll: float,
    *,
    listens: bool = False,
    alone: bool = False,
) -> tuple[Multiplexer, Callable[[], None]]:
    """The loop's multiplexer for ``info`` (or for the caller's ``domain``), and a function that releases it.

    A listener and the connections that it accepts share one with the clients of the loop, which may be its peers. Some
    providers cannot carry that: there, clients have another one. ``alone`` gives one that is not shared.
    """
    if alone:
        own = Multiplexer(info, domain, waiting, busy_poll)
        return own, own.close
    where = (info.addr_format, opened_as(info, "tx_attr", "rx_attr", "ep_attr"))
    side = listens if Quirk.OWN_PEER_CRASHES in quirks(info) else None
    key: Hashable = ("multiplexer", where, None if domain is None else id(domain), waiting, busy_poll, side)
    key = reactor.open_key(key, lambda multiplexer: not multiplexer.endpoint.closed)
    multiplexer: Multiplexer = reactor.acquire(key, lambda: Multiplexer(info, domain, waiting, busy_poll))
    return multiplexer, lambda: reactor.release(key, Multiplexer.close)
