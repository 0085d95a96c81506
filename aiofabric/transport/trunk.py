"""Trunk: the one connectionless endpoint that all virtual connections of a domain share, and their receives.

The receives are shared: a pool of a certain size takes messages for whichever connection, and the tag tells which.
So a connection that ends leaves nothing posted behind, a late message for it is dropped, and matching is as quick
for a thousand connections as for one. Credits keep every sender within what its receiver has room for.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Protocol

from .._ffi import constants, ffi, lib
from ..address import Address
from ..errors import NotSupportedError, check
from ..features import Quirk, quirks
from ..flags import AddressFormat, AvType, Caps
from .bell import fall_asleep
from .claims import Claims
from .hail import AT_ONCE, HAIL_SIZE, Hails
from .names import path_of
from .options import EndpointOptions
from .rdm import RdmEndpoint
from .wire import DIRECT, EVERY_BIT, HAIL_POOL, ID, POOL, TAG_BITS, host_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..address_vector import Peer
    from ..cq.queue import Entry, ErrorEntry
    from ..cq.reactor import Reactor
    from ..cq.waiting import Waiting
    from ..domain import Domain
    from ..info import Info
    from .link import LinkHandle

__all__ = ["Trunk", "TrunkParcel", "TrunkPool", "borrow_trunk", "one_host"]

_EAGAIN = constants.FI_EAGAIN
_POOLS_MOST = HAIL_POOL
_COUNT_MOST = 512  # receives of one pool: beyond, connections share them and waiting messages are copied out
_WINDOW_SHARE = 14  # of the receives that are left, what one connection more gets where that is strict
_WINDOW_LEAST = 1
_PARTED_MOST = 64  # of the 256 peers that shm knows at most
_SPARE = 8  # receives that a pool has beyond what its connections were promised


class TrunkParcel:
    """One receive of a pool. Posted, or filled and with the connection that its message is for."""

    __slots__ = ("args", "data", "flags", "length", "memory", "pool", "posted", "slot", "source", "tag")

    def __init__(self, pool: TrunkPool, memory: memoryview, slot: Any, args: tuple[Any, ...]) -> None:
        self.pool = pool
        self.memory = memory
        self.slot = slot
        self.args = args
        self.posted = False
        self.length = self.flags = self.data = self.tag = 0
        self.source: int | None = None

    def complete(self, entry: Entry) -> None:
        self.flags = entry[1]
        self.length = entry[2]
        self.data = entry[4]
        self.tag = tag = entry[5]
        self.posted = False
        pool = self.pool
        pool.posted -= 1
        link = pool.links.get(tag & ID)
        if link is None:
            pool.recycle(self)  # for a connection that has ended
        else:
            link.arrived(self, tag)

    def fail(self, entry: ErrorEntry) -> None:
        if self.posted:
            self.posted = False
            self.pool.posted -= 1
        # Flushed by the close, or longer than any connection was promised: nobody's message, the receive is spent.
        if entry.errno != constants.FI_ECANCELED:
            self.pool.recycle(self)

    def consumed(self) -> None:
        """A peer's write used the receive up (FI_RX_CQ_DATA): nothing is in it."""
        self.posted = False
        self.pool.posted -= 1
        self.pool.recycle(self)

    @property
    def view(self) -> memoryview:
        """The message, in the pool's memory."""
        return self.memory[: self.length]

    @property
    def contents(self) -> bytes:
        return bytes(self.view)


class Taker(Protocol):
    """What messages of a pool are for."""

    def arrived(self, parcel: TrunkParcel, tag: int, /) -> None: ...


class TrunkPool:
    """Receives of one size, shared by the connections that asked for it. Grows with their number."""

    def __init__(self, trunk: Trunk, number: int, size: int, links: Mapping[int, Taker]) -> None:
        self.trunk = trunk
        self.number = number
        self.size = size
        self.links = links
        self.promised = 0  # messages that connections may hold at once
        self.count = 0
        self.posted = 0
        self._free: list[TrunkParcel] = []
        self._parcels: list[TrunkParcel] = []
        self._most = trunk.receives if trunk.strict else min(_COUNT_MOST, trunk.receives)

    @property
    def scarce(self) -> bool:
        """Whether a message that nobody waits for should give its receive back at once."""
        return self.count < self.promised and self.posted <= self.count // 4

    def promise(self, credits: int) -> None:
        """One connection more may hold so many messages."""
        self.promised += credits
        wanted = min(self.promised + _SPARE, self._most)
        if wanted > self.count:
            spare = 0 if self.trunk.strict else min(self.count, self._most - self.count)
            self._grow(max(wanted - self.count, spare))

    def _grow(self, count: int) -> None:
        trunk = self.trunk
        memory = mmap.mmap(-1, self.size * count)
        view = memoryview(memory)
        pins = ffi.from_buffer("char[]", memory, require_writable=True)  # not of the view: see Pool
        descriptor = trunk.handle.register_own(pins)
        number = self.number << POOL
        ignore = EVERY_BIT & ~(DIRECT | 15 << POOL)
        for offset in range(0, self.size * count, self.size):
            slot = trunk.source.slots.lend()
            where = (trunk.fid, pins + offset, self.size, descriptor, constants.FI_ADDR_UNSPEC)
            parcel = TrunkParcel(self, view[offset : offset + self.size], slot, (*where, number, ignore, slot.pointer))
            self._parcels.append(parcel)
            self._free.append(parcel)
        self.count += count
        self.post()

    def post(self) -> None:
        """Post every receive that is free."""
        source = self.trunk.source
        free, receive = self._free, lib.fi_trecv
        while free:
            parcel = free.pop()
            source.operations[parcel.slot.address] = parcel
            rc = receive(*parcel.args)
            if rc:
                del source.operations[parcel.slot.address]
                free.append(parcel)
                if rc != -_EAGAIN:
                    check(rc, "fi_trecv")
                break
            parcel.posted = True
            self.posted += 1
        source.touch()

    def recycle(self, parcel: TrunkParcel) -> None:
        """The message was taken, or was nobody's."""
        self._free.append(parcel)
        if (len(self._free) >= 8 or self.posted <= self.count // 2) and not self.trunk.closed:
            self.post()

    def end(self) -> None:
        """The endpoint is closed: what was posted will not complete."""
        source = self.trunk.source
        for parcel in self._parcels:
            source.operations.pop(parcel.slot.address)
        self._parcels.clear()
        self._free.clear()


class Trunk:
    """The shared endpoint with its pools, its peers and its connections by id."""

    def __init__(self, info: Info, domain: Domain | None, waiting: Waiting, busy_poll: float) -> None:
        bits = info.ep_attr.mem_tag_format.bit_length()
        if bits < TAG_BITS:
            detail = f"Its tags have {bits} bits, and connections over it need {TAG_BITS}"
            raise NotSupportedError(constants.FI_EOPNOTSUPP, info.fabric_attr.prov_name, detail=detail)
        options = EndpointOptions(recv_size=None, waiting=waiting, busy_poll=busy_poll)
        self.info = info
        self.endpoint = RdmEndpoint(info, domain, options, AvType.UNSPEC)
        self.handle = self.endpoint._handle
        self.fid = self.handle.fid
        self.source = self.handle.source
        self.links: dict[int, LinkHandle] = {}
        self.host = host_mark() if one_host(info) else 0
        self.receives = info.rx_attr.size
        self.strict = Quirk.IGNORE_FORGOTTEN in quirks(info)  # a message that comes before its receive is lost
        self._claims: Claims | None = None
        if Quirk.CLAIMS_OUTLIVE_PROCESSES in quirks(info):
            self._claims = Claims(path_of(self.endpoint.local_address), self.source.driver, self.source.wake)
        self._pools: dict[int, TrunkPool] = {}
        self._hails: tuple[Hails, TrunkPool] | None = None
        if self.host:
            self.source.doze = lambda: fall_asleep(self)
        self._users: dict[Peer, int] = {}
        self._parted: dict[Peer, None] = {}  # that no connection is with any more, the longest parted first
        self._next = 0
        release = self.handle.on_release
        assert release is not None

        def released() -> None:
            for pool in self._pools.values():
                pool.end()
            if self._hails is not None:
                hails, pool = self._hails
                hails.end()
                pool.end()
            release()

        self.handle.on_release = released

    @property
    def closed(self) -> bool:
        """Whether the endpoint is closed, and its connections with it."""
        return self.handle.closed

    @property
    def hails(self) -> Hails:
        """Questions and answers by raw address; nothing is posted for them before there is a use."""
        if self._hails is None:
            hails = Hails(self)
            pool = TrunkPool(self, HAIL_POOL, HAIL_SIZE, {0: hails})
            pool.promise(AT_ONCE)
            self._hails = hails, pool
        return self._hails[0]

    @property
    def busy(self) -> bool:
        """Whether a question or an answer may come, of which nothing tells where the provider wakes nobody."""
        return self._hails is not None and self._hails[0].busy

    def pool(self, size: int) -> TrunkPool:
        """The receives of this size; when there are many sizes already, those of the next larger one."""
        pool = self._pools.get(size)
        if pool is None:
            if len(self._pools) == _POOLS_MOST:
                fitting = [each for each in self._pools if each > size]
                if not fitting:
                    raise ValueError(f"connections of one domain have {_POOLS_MOST} different recv_size at most")
                return self._pools[min(fitting)]
            pool = self._pools[size] = TrunkPool(self, len(self._pools), size, self.links)
        return pool

    def window(self, wanted: int) -> int:
        """How many messages one connection more may hold.

        Fewer, the more there are, where no more may be promised than receives are posted.
        """
        if not self.strict:
            return wanted
        left = self.receives * 7 // 8 - sum(pool.promised for pool in self._pools.values())
        return min(wanted, max(_WINDOW_LEAST, left // _WINDOW_SHARE))

    def enter(self, link: LinkHandle) -> int:
        """Give a connection its id. Ids come round after 16 million connections, so late messages find nobody."""
        while self._next in self.links:
            self._next = (self._next + 1) & ID
        number, self._next = self._next, (self._next + 1) & ID
        self.links[number] = link
        return number

    def leave(self, link: LinkHandle) -> None:
        """The connection has ended: messages for it are dropped."""
        del self.links[link.id]
        link.pooled.promised -= link.window

    def bereave(self) -> None:
        """A peer has gone without a word: what it had begun to send may keep others' messages from being read."""
        if self._claims is not None:
            self._claims.watch()

    def meet(self, raw: bytes) -> Peer:
        """The peer at a raw address; each meeting ends with `part`."""
        peer = self.endpoint.vector.insert(Address(self.endpoint.vector.format, raw))
        self._users[peer] = self._users.get(peer, 0) + 1
        self._parted.pop(peer, None)
        return peer

    def part(self, peer: Peer) -> None:
        """A connection with the peer has ended; some time after the last one its address goes.

        Not at once: a peer whose connection we cut off may still send, and shm looks up whose message it reads. It
        crashes where that address is gone.
        """
        self._users[peer] -= 1
        if not self._users[peer]:
            del self._users[peer]
            self._parted[peer] = None
            if not self.host or self.closed:
                self._lose(peer)
            elif len(self._parted) > _PARTED_MOST:
                self._lose(next(iter(self._parted)))

    def _lose(self, peer: Peer) -> None:
        del self._parted[peer]
        if not self.closed:
            self.source.drain()
            self.handle.forget(peer)

    def close(self) -> None:
        """Close the endpoint; its connections are closed first."""
        self.endpoint.close()


def one_host(info: Info) -> bool:
    """Whether the provider stays within its host: its addresses are texts, and it claims no more (FI_REMOTE_COMM).

    1.17's rxm, rxd and shm claim nothing about either unless they are asked.
    """
    return info.addr_format == AddressFormat.ADDR_STR and Caps.REMOTE_COMM not in info.caps


def borrow_trunk(
    reactor: Reactor,
    info: Info,
    domain: Domain | None,
    waiting: Waiting,
    busy_poll: float,
    *,
    alone: bool = False,
) -> tuple[Trunk, Callable[[], None]]:
    """The loop's trunk for ``info`` (or for the caller's ``domain``), and the call that gives it back.

    ``alone`` gives one that nobody else borrows.
    """
    if alone:
        own = Trunk(info, domain, waiting, busy_poll)
        return own, own.close
    where = (info.fabric_attr.prov_name, info.fabric_attr.name, info.domain_attr.name, info.addr_format)
    key = ("trunk", where, None if domain is None else id(domain), waiting, busy_poll)
    trunk: Trunk = reactor.borrow(key, lambda: Trunk(info, domain, waiting, busy_poll))
    return trunk, lambda: reactor.give_back(key, Trunk.close)
