"""AddressVector: the peers of connectionless endpoints, with the numbers that name them in transfers (fi_av)."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from ._ffi import constants, ffi, lib
from .address import Address
from .errors import FabricError, UnreachableError, check
from .features import Quirk, quirks
from .flags import AddressFormat, AvFlags, AvType, Caps
from .resource import Handle, Resource, check_resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .domain import Domain
    from .info import Info

__all__ = ["LONGEST_NAME", "AddressVector", "Peer"]

N = TypeVar("N", int, int | None)

_ROOM = 512  # bytes of the longest address of any provider, with space to spare
_LENGTHS = {Address.from_ip(host).family: len(Address.from_ip(host).raw) for host in ("0.0.0.0", "::")}
_FAMILIES = {AddressFormat.SOCKADDR_IN: socket.AF_INET, AddressFormat.SOCKADDR_IN6: socket.AF_INET6}
_UNKNOWN_MOST = 1024
_NOBODY: int = constants.FI_ADDR_NOTAVAIL
_CONTEXT_BITS_MOST = 16  # sock_av.c accepts no more
_COUNT_MOST = 1 << 32  # with more, the bytes of util_buf.c overflow, and it writes behind a small block
_KEPT_MOST = 64  # numbers of removed peers that shm keeps; an endpoint can have 256
LONGEST_NAME = 255  # smr_av.c copies an FI_ADDR_STR into 256 bytes


def context_bits(info: Info) -> int:
    """Bits of a peer's number that name its receive contexts: enough for the contexts that the provider's endpoints can
    have.

    The number of contexts of a peer is not known here. Without FI_NAMED_RX_CTX, contexts cannot be named.
    """
    if Caps.NAMED_RX_CTX not in info.caps:
        return 0
    return min((info.domain_attr.max_ep_rx_ctx - 1).bit_length(), _CONTEXT_BITS_MOST)


class Peer:
    """An endpoint in an address vector. ``native`` is its fi_addr_t.

    Sends name it (``to=peer``), and received messages have it as `Message.source`. Each address has one Peer per
    vector, so peers compare by identity.
    """

    __slots__ = ("__weakref__", "_contexts", "address", "native", "vector")

    def __init__(self, address: Address, native: int, vector: AddressVector | None) -> None:
        self.address = address
        self.native = native
        self.vector = vector  # None: removed
        self._contexts: dict[int, Peer] = {}

    def context(self, index: int) -> Peer:
        """One receive context of this peer, if it is a scalable endpoint; for ``to=`` (fi_rx_addr).

        The sending endpoint needs `Caps.NAMED_RX_CTX`. The peer's number of contexts is not known here. sockets is the
        only software provider with scalable endpoints: it leaves a message for a missing context unread, and all
        messages behind it.

        Raises:
            ValueError: no endpoint of the provider has so many contexts, or the capability is missing.
        """
        if self.vector is None:
            raise ValueError(f"{self!r} was removed")
        bits = self.vector.rx_ctx_bits
        if not 0 <= index < 1 << bits:
            need = "" if bits else ": open the endpoint with Caps.NAMED_RX_CTX"
            raise ValueError(
                f"there is no receive context {index}: its address vector has {bits} bits for their numbers{need}"
            )
        if index not in self._contexts:
            native = lib.fi_rx_addr(self.native, index, bits)
            self._contexts[index] = Peer(self.address, native, self.vector)
        return self._contexts[index]

    def __repr__(self) -> str:
        return f"<Peer {self.native} {self.address}{' removed' if self.vector is None else ''}>"


class Watch(Protocol):
    """Checks inserted addresses, for providers with defects between endpoints of the same process."""

    def admit(self, address: Address) -> None:
        """Raise if the address must not be given to the provider."""

    def native_form(self, address: Address) -> Address:
        """The form of the address for the provider."""

    def inserted(self, address: Address, native: int) -> bool:
        """The provider has inserted it. Return whether it is an endpoint of this process; `lose` reports its end."""

    def removed(self) -> None:
        """The provider has removed an address."""


class Absent(Protocol):
    """Has the numbers of peers whose endpoints do not exist, for a provider that would give them to others, too."""

    def reserve(self, address: Address) -> int | None:
        """A number for the peer if its endpoint does not exist; None if it does."""

    def settle(self, number: int) -> bool:
        """Return whether the endpoint of the peer exists."""

    def drop(self, number: int) -> bool:
        """Free the number of such a peer; return whether it was one."""

    def check_receivable(self, number: int) -> None:
        """Raise if no receive can name the peer yet."""


class User(Protocol):
    """A user of an address vector: an endpoint, a context or an alias that sends by its numbers."""

    def peer_removed(self, peer: Peer) -> None:
        """The peer is removed: end the sends to it that still wait, and the receives from it alone."""

    def numbers_in_use(self) -> set[int]:
        """Numbers that operations, open groups or claims still need."""


class AddressVector(Resource):
    """The addresses that endpoints of a domain can send to.

    Each endpoint has one; with ``open_endpoint(address_vector=...)`` several endpoints share one. Closing it first
    closes the endpoints that were opened with it.

    Args:
        domain: the domain to open it on.
        type: how addresses are numbered, by default as the domain says; 2.x always numbers them 0, 1, 2.
        count: how many addresses to expect; a hint.
        name: of a vector that processes share (`Caps.SHARED_AV`).
        flags: `AvFlags.READ` opens a shared vector for reading.
        rx_ctx_bits: bits of a peer's number that name one of its receive contexts (see `Peer.context`).

    Raises:
        ValueError: the domain was opened for the other type (``domain_attr.av_type``).
        FabricError: the provider refused (fi_av_open).

    Man page: fi_av.
    """

    __slots__ = (
        "_introduced", "_kept", "_lost", "_natives", "_near", "_peers", "_removed", "_spare", "absent", "domain",
        "format", "kept_most", "rx_ctx_bits", "users", "watch",
    )  # fmt: skip

    def __init__(
        self,
        domain: Domain,
        *,
        type: AvType = AvType.UNSPEC,
        count: int = 0,
        name: str | None = None,
        flags: AvFlags | int = 0,
        rx_ctx_bits: int = 0,
    ) -> None:
        check_resource("domain", domain, "Domain")
        domain._handle.check_open()
        fixed = domain.info.domain_attr.av_type
        if AvType.UNSPEC not in (type, fixed) and type != fixed:
            raise ValueError(f"the type is {type}, and {domain!r} was opened for {fixed}: leave one of them out")
        if not 0 <= count <= _COUNT_MOST:
            raise ValueError(f"count must be 0 to {_COUNT_MOST} addresses, not {count}")
        attr = ffi.new("struct fi_av_attr[2]")  # 2.x may copy a longer structure than the headers have
        attr[0].type = int(type or fixed)  # the provider's default may differ from the domain's; sm2 crashes then
        attr[0].count = count
        attr[0].flags = int(flags)
        attr[0].rx_ctx_bits = rx_ctx_bits
        text = ffi.new("char[]", name.encode()) if name is not None else ffi.NULL
        attr[0].name = text
        out = ffi.new("struct fid_av **")
        check(lib.fi_av_open(domain._handle.fid, attr, out, ffi.NULL), "fi_av_open")
        self.domain = domain
        self.rx_ctx_bits = rx_ctx_bits
        self.format = domain.info.addr_format
        self._handle = Handle("AddressVector", out[0], domain._handle)
        self._peers: dict[Address, Peer] = {}
        self._natives: dict[int, Peer] = {}
        self.users: WeakSet[User] = WeakSet()
        self._removed: dict[int, Address] = {}  # of removed peers whose numbers operations may still use
        # Of removed peers, the oldest first: shm reads a message that waits from the memory of its sender.
        self._kept: dict[Address, int] = {}
        self.kept_most = _KEPT_MOST if Quirk.CLOSED_LOCAL_PEER_CRASHES in quirks(domain.info) else 0
        self._introduced: list[Peer] = []  # senders that the provider reported (FI_SOURCE_ERR)
        self.watch: Watch | None = None
        self.absent: Absent | None = None
        self._near: dict[Address, int] = {}  # the numbers of endpoints of this process
        self._spare: dict[Address, int] = {}  # numbers of endpoints of this process that are not peers
        self._lost: set[int] = set()  # numbers that were removed although a Peer may still have them

    @property
    def native(self) -> Any:
        """The ``struct fid *``, for binding."""
        return ffi.cast("struct fid *", self._handle.fid)

    def insert(self, address: Address | str | bytes) -> Peer:
        """Add ``address`` as a peer; return the existing peer if it was inserted before.

        Nothing is sent: connections are made by the first transfer.

        Args:
            address: an `Address`, an FI_ADDR_STR text such as ``fi_sockaddr://127.0.0.1:7471`` or ``fi_shm://1234``, or
                raw bytes in the domain's own format, such as a peer's ``local_address.raw``.

        Raises:
            ValueError: the address has another format or length than the addresses of the domain.
            FabricError: the provider refused it.

        Man page: fi_av (fi_av_insert).
        """
        self._handle.check_open()
        address = self.fit(address)
        if (known := self._peers.get(address)) is not None:
            return known
        if self.watch is not None:
            self.watch.admit(address)
        native = self._spare.pop(address, None)
        if native is None:
            native = self._kept.pop(address, None)
        if native is None and self.absent is not None:
            native = self._make_room(self.absent.reserve, address)
        return self._add(1, address, self._insert(address) if native is None else native, "fi_av_insert")

    def _insert(self, address: Address) -> int:
        return self._make_room(self._insert_once, address)

    def _make_room(self, insert: Callable[[Address], N], address: Address) -> N | int:
        """Insert an address, if need be without the kept numbers."""
        native: N | int
        try:
            native = insert(address)
        except FabricError:
            if not self._kept:
                raise
            native = _NOBODY
        if native == _NOBODY and self._kept:  # there may be no room
            self._remove_kept(0)
            native = insert(address)
        return native

    def _insert_once(self, address: Address) -> int:
        return self.insert_form(address if self.watch is None else self.watch.native_form(address), address)

    def insert_form(self, form: Address, address: Address) -> int:
        """Give the provider the form of an address; return its number, or FI_ADDR_NOTAVAIL."""
        out = ffi.new("fi_addr_t *", constants.FI_ADDR_NOTAVAIL)
        raw = ffi.new("char[]", form.raw)
        rc = check(lib.fi_av_insert(self._handle.fid, raw, 1, out, 0, ffi.NULL), "fi_av_insert", peer=address)
        native: int = out[0] if rc else constants.FI_ADDR_NOTAVAIL
        return native

    def claim(self, address: Address) -> int:
        """Insert the address of a peer of `absent`, whose number was just removed and is free."""
        native = self._insert_once(address)
        if self.watch is not None and self.watch.inserted(address, native):
            self._near[address] = native
        return native

    def introduce(self, raw: bytes) -> int:
        """The number of a sender that is not in the vector; FI_ADDR_NOTAVAIL if it cannot be inserted.

        With FI_SOURCE_ERR each sender becomes a peer: at most `_UNKNOWN_MOST`, until the program removes some.
        """
        self._introduced = [peer for peer in self._introduced if peer.vector is self]
        with suppress(FabricError, ValueError):
            if raw and len(self._introduced) < _UNKNOWN_MOST:
                peer = self.insert(raw)
                self._introduced.append(peer)
                return peer.native
        return _NOBODY

    def insert_service(self, node: str, service: str | int) -> Peer:
        """Look up a host and port and add it as a peer. May block while the name is resolved.

        Raises:
            FabricError: no such name, or the provider has no names (FI_ENOSYS).

        Man page: fi_av (fi_av_insertsvc).
        """
        self._handle.check_open()
        out = ffi.new("fi_addr_t[1]", [constants.FI_ADDR_NOTAVAIL])
        where = f"{node}:{service}"
        rc = lib.fi_av_insertsvc(self._handle.fid, node.encode(), str(service).encode(), out, 0, ffi.NULL)
        check(rc, "fi_av_insertsvc", peer=where)
        self._check_inserted(out, "fi_av_insertsvc", where)
        return self._add(rc, self._lookup(out[0]), out[0], "fi_av_insertsvc")

    def insert_symmetric(self, node: str, nodes: int, service: str | int, services: int) -> list[Peer]:
        """Add the hosts and ports of a range as peers: ``nodes`` hosts from ``node`` on, ``services`` ports each.

        Man page: fi_av (fi_av_insertsym).
        """
        self._handle.check_open()
        count = nodes * services
        if nodes < 1 or services < 1:
            raise ValueError(f"nodes and services must be at least 1, not {nodes} and {services}")
        out = ffi.new("fi_addr_t[]", [constants.FI_ADDR_NOTAVAIL] * count)
        fid, first = self._handle.fid, str(service).encode()
        rc = lib.fi_av_insertsym(fid, node.encode(), nodes, first, services, out, 0, ffi.NULL)
        where = f"{node}:{service}"
        check(rc, "fi_av_insertsym", peer=where)
        self._check_inserted(out, "fi_av_insertsym", where)
        return [self._add(rc == count, self._lookup(native), native, "fi_av_insertsym") for native in out]

    def _check_inserted(self, natives: Any, call: str, where: str) -> None:
        """Raise if an address was not inserted: the return value may say otherwise, and the lookup would crash."""
        if _NOBODY in natives:
            raise UnreachableError(constants.FI_EHOSTUNREACH, call, peer=where)

    def remove(self, peer: Peer) -> None:
        """Remove a peer: it can no longer be sent to, and its messages have no `Message.source`.

        Sends to it that still wait, and receives from it alone, end with ClosedResourceError, on all endpoints that
        share the vector.

        Man page: fi_av (fi_av_remove).
        """
        self._handle.check_open()
        self.check(peer)
        del self._peers[peer.address]
        if self._natives.get(peer.native) is peer:
            del self._natives[peer.native]
        contexts = (peer, *peer._contexts.values())
        for each in contexts:
            each.vector = None
        self._removed[peer.native] = peer.address
        users = list(self.users)
        for user in users:
            for each in contexts:
                user.peer_removed(each)
        mask = (1 << (64 - self.rx_ctx_bits)) - 1  # without the number of a receive context
        busy = {number & mask for user in users for number in user.numbers_in_use()}
        for native in [native for native in self._removed if native not in busy]:
            self._release(native, self._removed.pop(native))

    def check(self, peer: Peer) -> None:
        """Raise TypeError unless ``peer`` is a peer, ValueError unless it is in this vector."""
        if not isinstance(peer, Peer):
            raise TypeError(f"{peer!r} is no Peer; add_peer(), insert() and Message.source return one")
        if peer.vector is not self:
            gone = "was removed" if peer.vector is None else "belongs to another address vector"
            raise ValueError(f"{peer!r} {gone}")

    def _release(self, native: int, address: Address) -> None:
        """Remove the number of a removed peer from the provider, unless a new Peer has it. shm keeps some."""
        if self.closed or native in self._natives:
            return
        if native in self._lost:
            self._lost.discard(native)
            return
        if self.absent is not None and self.absent.drop(native):
            return
        for address in [address for address, number in self._near.items() if number == native]:
            self._spare[address] = self._near.pop(address)  # both sides remove it at the same time: see `lose`
            return
        self._kept[address] = native
        self._remove_kept(self.kept_most)

    def _remove_kept(self, most: int) -> None:
        """Remove kept numbers, the oldest first, until ``most`` are left."""
        while len(self._kept) > most:
            self.remove_number(self._kept.pop(next(iter(self._kept))))

    def remove_number(self, native: int) -> None:
        """Remove a number from the provider."""
        rc = lib.fi_av_remove(self._handle.fid, ffi.new("fi_addr_t *", native), 1, 0)
        if rc != -constants.FI_EINVAL:  # 2.x's sockets returns it for a peer that was never sent to, but removes it
            check(rc, "fi_av_remove")
        if self.watch is not None:
            self.watch.removed()

    def prepare(self, address: Address) -> int:
        """Insert an address into the provider's vector that is not yet a peer."""
        peer = self._peers.get(address)
        native = self._spare.get(address) if peer is None else peer.native
        if native is None:
            native = self._spare[address] = self._insert(address)
        return native

    def knows(self, address: Address) -> bool:
        """Whether an endpoint of this process is, or was, a peer and still has a number."""
        return address in self._near

    def lose(self, address: Address) -> None:
        """Remove the number of an endpoint of this process at once, because one of the two closes."""
        native = self._spare.pop(address, None)
        if native is None:
            native = self._near.pop(address, None)
            if native is None:
                return
            self._lost.add(native)
        if not self._handle.released:
            self.remove_number(native)

    def find(self, native: int | None) -> Peer | None:
        """The peer with this number, as in a completion; None for an unknown source."""
        return self._natives.get(native) if native is not None else None

    def peer_at(self, address: Address) -> Peer | None:
        """The peer with this address; None if it was not inserted."""
        return self._peers.get(address)

    def lookup(self, peer: Peer) -> Address:
        """The address that the provider has under the peer's number.

        Man page: fi_av (fi_av_lookup).
        """
        self._handle.check_open()
        self.check(peer)
        return self._lookup(peer.native)

    def straddr(self, address: Address | Peer) -> str:
        """The provider's text for an address.

        Man page: fi_av (fi_av_straddr).
        """
        self._handle.check_open()
        raw = ffi.new("char[]", self.fit(address.address if isinstance(address, Peer) else address).raw)
        room, size = ffi.new("char[]", _ROOM), ffi.new("size_t *", _ROOM)
        lib.fi_av_straddr(self._handle.fid, raw, room, size)
        text: str = ffi.string(room).decode(errors="replace")
        return text

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, address: object) -> bool:
        return address in self._peers or (isinstance(address, Peer) and address.vector is self)

    def fit(self, address: Address | str | bytes) -> Address:
        """Check an address and return it in the domain's format; the providers read as many bytes as that format
        has."""
        if isinstance(address, bytes | bytearray | memoryview):
            address = Address(self.format, bytes(address))
        elif isinstance(address, str):
            address = Address.from_str(address)
        elif not isinstance(address, Address):
            raise TypeError(
                f"{address!r} is not an address: pass an Address, its raw bytes, its text, or host and service apart"
            )
        own = self.domain.info.src_addr
        if address.format != self.format and not (
            address.family and self.format in (AddressFormat.SOCKADDR, AddressFormat.FORMAT_UNSPEC)
        ):
            raise ValueError(f"{address} has the format {address.format}; this domain's addresses are {self.format}")
        if self.format == AddressFormat.ADDR_STR:
            if len(address.raw) > LONGEST_NAME:
                raise ValueError(f"a text address has at most {LONGEST_NAME} bytes, not {len(address.raw)}")
        elif own is not None and own.family and len(address.raw) != _LENGTHS.get(address.family):
            lengths = " or ".join(map(str, _LENGTHS.values()))
            raise ValueError(f"an address of this domain has {lengths} bytes, by its family, not {len(address.raw)}")
        elif self.format in _FAMILIES and address.family != _FAMILIES[self.format]:
            # ofi_ip_av_insertv takes the length of the first address for that of all.
            raise ValueError(f"{address} is of another family: this domain's addresses are {self.format}")
        return address

    def _lookup(self, native: int) -> Address:
        room, size = ffi.new("char[]", _ROOM), ffi.new("size_t *", _ROOM)
        check(lib.fi_av_lookup(self._handle.fid, native, room, size), "fi_av_lookup")
        return Address(self.format, bytes(ffi.buffer(room, min(size[0], _ROOM))))

    def _add(self, inserted: int, address: Address, native: int, call: str) -> Peer:
        if not inserted or native == constants.FI_ADDR_NOTAVAIL:
            raise FabricError(constants.FI_EADDRNOTAVAIL, call, peer=address)
        if native in self._lost:
            self._lost.discard(native)
            del self._natives[native]
        peer = self._peers.get(address) or self._natives.get(native)  # two forms may be one address
        if peer is None:
            peer = self._peers[address] = self._natives[native] = Peer(address, native, self)
            if self.watch is not None and self.watch.inserted(address, native):
                self._near[address] = native
        return peer

    def __repr__(self) -> str:
        return f"<AddressVector of {self.domain!r}, {len(self)} peers{' closed' if self.closed else ''}>"
