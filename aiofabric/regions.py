"""The registrations of a domain: made once, looked up per operation, kept until no operation uses them (fi_mr).

Code that lets the provider access local memory calls `RegionTable.acquire` for the memory's registration. It passes the
descriptor to the operation, and calls `end_use` when the operation has ended. If the provider wants all local memory
registered (FI_MR_LOCAL), memory in no region is registered while an operation uses it. A longer registration would be a
cache, which must learn when memory is freed and allocated again; the providers that need such a cache have one.
"""

from __future__ import annotations

import logging
import secrets
from bisect import bisect_left, bisect_right
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ._ffi import constants, ffi, lib
from .errors import FabricError, check
from .flags import Access, MrMode
from .resource import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .device_memory import DeviceMemory
    from .info import Info
    from .remote_region import RemoteRegion

__all__ = ["LOCAL_USE", "Arrivals", "Registration", "MappedKey", "MemoryOwner", "RegionHandle", "RegionTable"]

_log = logging.getLogger("aiofabric")

LOCAL_USE = Access.SEND | Access.RECV | Access.READ | Access.WRITE
_REMOTE_WRITE = int(Access.REMOTE_WRITE)  # numbers: an operation of the enum takes 1.3 us, one of numbers 0.07
_REMOTE = int(Access.REMOTE_READ) | _REMOTE_WRITE
_BASIC = MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY  # the meaning of FI_MR_BASIC, from before 1.5


class Arrivals(NamedTuple):
    """The data that had arrived from peers at a time."""

    time: float
    """`time.monotonic`."""
    bytes: dict[Any, int]
    """For each endpoint whose socket is known; empty if there are very many."""


class Registration(Protocol):
    """An object that an operation holds until it has ended."""

    def end_use(self) -> None:
        """Remove one user. Never raises, because the caller has other operations to end."""


class MemoryOwner(Handle):
    """A handle that memory is registered with: a domain, or an object opened on it."""

    __slots__ = ("regions",)
    regions: RegionTable
    reads_outlive_regions: bool = False
    """Of a domain: whether a peer's read may still be answered from the memory of a closed region."""
    regions_wait_for_transfers: bool = False
    """Of a domain: whether a transfer under way still needs the registration of its target, not only the memory."""
    refused_requests_block: bool = False
    """Of a domain: whether a peer's request for a closed region would block all that comes behind it."""
    serves_memory: ClassVar[bool] = False
    """Whether peers reach registered memory through it: true of native endpoints."""
    arrivals: ClassVar[Callable[[MemoryOwner], Arrivals]]
    """Count the data that has arrived from peers so far; see transport/peer_access.py."""
    keep_for_peers: ClassVar[Callable[[MemoryOwner, Sequence[tuple[Any, Arrivals | None]]], None]]
    """Keep the memory of closed regions while a peer may still read or write it."""
    after_transfers: ClassVar[Callable[[MemoryOwner, RegionHandle, Callable[[], None]], bool]]
    """Call a function when no transfer needs a region's registration any more; False if none does now."""


class RegionHandle(Handle):
    """A registration, kept until the last operation that uses it has ended.

    A ``temporary`` one is closed by its last user, any other by its owner.
    """

    __slots__ = (
        "access", "before", "chosen", "descriptor", "endpoint", "key", "pins", "raw", "shown", "start", "stop", "table",
        "temporary", "users",
    )  # fmt: skip

    def __init__(self, table: RegionTable, mr: Any, pins: Any, access: Access, chosen: int) -> None:
        super().__init__("MemoryRegion", mr, table.domain)
        self.table = table
        self.pins = pins
        self.start = int(ffi.cast("uintptr_t", pins))
        self.stop = self.start + len(pins)
        self.access = int(access)
        self.shown = False  # whether a peer may know the key
        self.before: Arrivals | None = None  # what had arrived when the program got the key, if peers may write
        self.chosen = self.key = chosen
        self.endpoint: Handle | None = None
        self.temporary = False
        self.users = 0
        self.descriptor = ffi.NULL
        self.raw = b""

    def bind(self, endpoint: Handle) -> None:
        """Tie the registration to an endpoint and make it valid (FI_MR_ENDPOINT); it closes before the endpoint."""
        check(lib.fi_mr_bind(self.fid, ffi.cast("struct fid *", endpoint.fid), 0), "fi_mr_bind")
        check(lib.fi_mr_enable(self.fid), "fi_mr_enable")
        self.need(endpoint)
        self.endpoint = endpoint

    def show(self) -> None:
        """The program gets the key, which it may send to peers."""
        if not self.shown:
            self.shown = True
            if self.access & _REMOTE_WRITE and self.table.domain.reads_outlive_regions:
                self.before = self.table.domain.arrivals()

    def made(self) -> None:
        """The registration is valid: read its key and descriptor, and add it to the table."""
        self.descriptor = lib.fi_mr_desc(self.fid)
        key = lib.fi_mr_key(self.fid)
        if key != constants.FI_KEY_NOTAVAIL:
            self.key = key
        if self.table.raw_keys:
            self.raw = self._raw_key()
        self.table.add(self)

    def _raw_key(self) -> bytes:
        """Base address and key in the form that a peer needs, if keys have more than 64 bits (FI_MR_RAW)."""
        base, size = ffi.new("uint64_t *"), ffi.new("size_t *")
        lib.fi_mr_raw_attr(self.fid, base, ffi.NULL, size, 0)  # returns -FI_ETOOSMALL, and sets the size
        room = ffi.new("uint8_t[]", size[0])
        check(lib.fi_mr_raw_attr(self.fid, base, room, size, 0), "fi_mr_raw_attr")
        return int(base[0]).to_bytes(8, "big") + bytes(ffi.buffer(room, size[0]))

    def _leave(self) -> None:
        domain = self.table.domain
        may_wait = domain.regions_wait_for_transfers and self.access & _REMOTE
        if may_wait and not (self.released or self.lingers) and domain.after_transfers(self, self._leave_late):
            self.lingers = True
            self.table.remove(self)
        super()._leave()

    def _leave_late(self) -> None:
        self.lingers = False
        super()._leave()

    def release(self) -> None:
        self.table.remove(self)
        if not self.users:
            self._deregister()

    def end_use(self) -> None:
        """Remove one user; a region that was closed meanwhile is deregistered with its last one."""
        self.users -= 1
        if self.users or self.forked or not (self.released or self.temporary):
            return
        try:
            self._deregister() if self.released else self.close()
        except FabricError as error:
            _log.warning("%s opened at %s: %s", self.what, self.opened_at, error)

    def _deregister(self) -> None:
        self.table.free_key(self.chosen)
        super().release()
        memory, self.pins = self.pins, None
        before, self.before = self.before, None
        if self.shown and self.access & _REMOTE and self.table.domain.reads_outlive_regions:
            self.table.keep_for_peers(memory, before)


class MappedKey:
    """A peer's long key, mapped to a short one while operations use it (FI_MR_RAW)."""

    __slots__ = ("key", "raw", "table", "users")

    def __init__(self, table: RegionTable, raw: bytes) -> None:
        out = ffi.new("uint64_t *")
        base, key = int.from_bytes(raw[:8], "big"), ffi.from_buffer("uint8_t[]", raw[8:])
        check(lib.fi_mr_map_raw(table.domain.fid, base, key, len(key), out, 0), "fi_mr_map_raw")
        self.table = table
        self.raw = raw
        self.key = int(out[0])
        self.users = 0

    def end_use(self) -> None:
        self.users -= 1
        if not self.users:
            del self.table.mapped[self.raw]
            if rc := lib.fi_mr_unmap_key(self.table.domain.fid, self.key):
                _log.warning("fi_mr_unmap_key: %d", rc)


class RegionTable:
    """The registrations of a domain, by address; ``mode`` says how the provider wants memory registered.

    ``busy`` is false while no local memory needs a descriptor and none has one: then an operation checks only this
    flag.
    """

    def __init__(self, domain: MemoryOwner, info: Info) -> None:
        mode = MrMode(info.domain_attr.mr_mode)
        if MrMode.BASIC in mode:
            mode |= _BASIC
        self.domain = domain
        self.virtual_addresses = MrMode.VIRT_ADDR in mode
        self.provider_keys = MrMode.PROV_KEY in mode
        self.local_required = MrMode.LOCAL in mode
        self.bound_to_endpoint = MrMode.ENDPOINT in mode
        self.raw_keys = MrMode.RAW in mode
        # FI_MR_ALLOCATED needs no code: memory that Python exports is always allocated.
        self.mapped: dict[bytes, MappedKey] = {}
        self._key_bits = 8 * min(max(info.domain_attr.mr_key_size, 1), 8)
        self._starts: list[int] = []
        self._regions: list[RegionHandle] = []  # sorted by start
        self._longest = 0
        self.exposed = False  # whether a region was ever registered for remote access
        self._keys: set[int] = set()
        self._closed: list[tuple[Any, Arrivals | None]] | None = None  # memory of the regions that close together
        self.waiting: dict[Callable[[], None], None] = {}
        """Each deregisters a closed region if no transfer needs it any more; called when an endpoint has closed."""
        self.busy = self.local_required

    def __len__(self) -> int:
        return len(self._regions)

    # -- making registrations

    def register(
        self,
        pins: Any,
        access: Access,
        *,
        key: int | None = None,
        device: DeviceMemory | None = None,
        endpoint: Handle | None = None,
    ) -> RegionHandle:
        """Register ``pins``; closing the handle deregisters.

        Raises:
            FabricError: the provider refused (fi_mr_regattr, fi_mr_bind, fi_mr_enable).
        """
        chosen = 0 if self.provider_keys else (self.choose_key() if key is None else key)
        iov = ffi.new("struct iovec *", {"iov_base": pins, "iov_len": len(pins)})
        attr = ffi.new("struct fi_mr_attr[2]")  # 2.x may copy a longer structure than the headers have
        attr[0].mr_iov = iov
        attr[0].iov_count = 1
        attr[0].access = int(access)
        attr[0].requested_key = chosen
        if device is not None:
            attr[0].iface, attr[0].device.cuda = device.iface, device.device
        out = ffi.new("struct fid_mr **")
        try:
            check(lib.fi_mr_regattr(self.domain.fid, attr, 0, out), "fi_mr_regattr")
        except BaseException:
            if key is None:  # else it may be the key of another region, which is why the provider refused
                self.free_key(chosen)
            raise
        self._keys.add(chosen)
        region = RegionHandle(self, out[0], pins, access, chosen)
        try:
            if self.bound_to_endpoint:
                region.bind(self._endpoint() if endpoint is None else endpoint)
            region.made()
        except BaseException:
            region.close()
            raise
        return region

    def _endpoint(self) -> Handle:
        """The endpoint of a region if the caller named none: the only one of the domain."""
        found = [child for child in self.domain.children if isinstance(child, MemoryOwner) and child.serves_memory]
        if len(found) != 1:
            raise TypeError(
                f"this provider ties registered memory to an endpoint (FI_MR_ENDPOINT), and the domain has "
                f"{len(found)} endpoints: name one with register(buffer, endpoint=ep)"
            )
        return found[0]

    def choose_key(self) -> int:
        """An unpredictable key that no region of the domain has.

        Raises:
            FabricError: the regions have all keys of the provider's size.
        """
        if len(self._keys) >> self._key_bits:
            detail = f"the {len(self._keys)} regions of the domain have all keys of its mr_key_size: close one first"
            raise FabricError(constants.FI_ENOSPC, "fi_mr_regattr", detail=detail)
        while (key := secrets.randbits(self._key_bits)) in self._keys:
            pass
        self._keys.add(key)
        return key

    def free_key(self, key: int) -> None:
        self._keys.discard(key)

    # -- the end of registrations

    def close_together(self, regions: Sequence[RegionHandle]) -> None:
        """Close regions of this table, all of them even if one raises. Accesses under way are looked up once."""
        closed: list[tuple[Any, Arrivals | None]] = []
        self._closed = closed
        try:
            with ExitStack() as order:
                for region in regions:
                    order.callback(region.close)
        finally:
            self._closed = None
            if closed:
                self.domain.keep_for_peers(closed)

    def keep_for_peers(self, memory: Any, before: Arrivals | None) -> None:
        """Keep the memory of a region that was closed while a peer may still use it."""
        if self._closed is not None:
            self._closed.append((memory, before))
        else:
            self.domain.keep_for_peers([(memory, before)])

    # -- finding them again

    def acquire(self, endpoint: Handle, pins: Any, access: Access) -> RegionHandle | None:
        """The registration for an operation on local memory; the operation must call its `end_use` at the end.

        None if the memory is in no region and needs none.
        """
        region = self.find(endpoint, pins, access)
        if region is None:
            if not self.local_required or not len(pins):
                return None
            region = self.register(pins, access, endpoint=endpoint)
            region.temporary = True
        region.users += 1
        return region

    def find(self, endpoint: Handle, pins: Any, access: Access) -> RegionHandle | None:
        """The region that covers all of ``pins`` and permits the access; if several regions overlap, the region that
        starts last."""
        start = int(ffi.cast("uintptr_t", pins))
        stop, wanted = start + len(pins), int(access)
        for at in range(bisect_right(self._starts, start) - 1, -1, -1):
            if stop > self._starts[at] + self._longest:
                break
            region = self._regions[at]
            if stop <= region.stop and region.access & wanted == wanted and region.endpoint in (None, endpoint):
                return region
        return None

    def acquire_key(self, remote: RemoteRegion) -> tuple[int, tuple[Registration, ...]]:
        """The key for an operation on a peer's memory, and the objects that the operation holds for it."""
        if not remote.raw:
            return remote.key, ()
        if not self.raw_keys:
            raise ValueError("this RemoteRegion has the long key of another kind of provider (FI_MR_RAW)")
        mapped = self.mapped.get(remote.raw)
        if mapped is None:
            mapped = self.mapped[remote.raw] = MappedKey(self, remote.raw)
        mapped.users += 1
        return mapped.key, (mapped,)

    def add(self, region: RegionHandle) -> None:
        at = bisect_right(self._starts, region.start)
        self._starts.insert(at, region.start)
        self._regions.insert(at, region)
        self._longest = max(self._longest, region.stop - region.start)
        self.exposed |= bool(region.access & _REMOTE)
        # A region bound to an endpoint closes before the endpoint, a region in use after it: no region can be both.
        self.busy = self.local_required or not self.bound_to_endpoint

    def remove(self, region: RegionHandle) -> None:
        at = bisect_left(self._starts, region.start)
        while at < len(self._regions) and self._starts[at] == region.start:
            if self._regions[at] is region:
                del self._regions[at], self._starts[at]
                break
            at += 1
        if not self._regions:
            self._longest = 0
            self.busy = self.local_required
