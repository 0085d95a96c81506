"""Memory regions: registered memory of ours, and the description of a peer's (man pages: fi_mr, fi_rma)."""

from __future__ import annotations

import secrets
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ._ffi import constants, ffi, lib
from .device_memory import DeviceMemory, device_memory
from .errors import NotSupportedError, check
from .features import describe, require
from .flags import Access, Caps, HmemIface, MrMode
from .resource import Handle, Resource

if TYPE_CHECKING:
    from .domain import Domain
    from .info import Info

__all__ = ["MemoryRegion", "RegionTable", "RemoteRegion", "pin"]

_LOCAL_USE = Access.SEND | Access.RECV | Access.READ | Access.WRITE
_WRITES = Access.RECV | Access.READ | Access.REMOTE_WRITE


def pin(buffer: Any, *, writable: bool = False) -> Any:
    """Export ``buffer`` for as long as the result lives: a ``char[]`` cdata; ``len()`` of it is in bytes.

    Raises:
        TypeError: it is no buffer.
        BufferError: it is not contiguous, read-only where it would be written, or gone (a closed mmap).
    """
    try:
        return ffi.from_buffer("char[]", buffer, require_writable=writable)
    except TypeError:
        raise TypeError(
            "a bytes-like object is required (bytes, bytearray, memoryview, array, mmap, numpy), "
            f"not {type(buffer).__name__}"
        ) from None
    except (ValueError, BufferError) as error:
        raise BufferError(
            f"cannot use this {type(buffer).__name__}: {_objection(buffer, writable) or error}"
        ) from error


def _objection(buffer: Any, writable: bool) -> str:
    try:
        with memoryview(buffer) as view:
            if writable and view.readonly:
                return "it is read-only; pass a writable one such as bytearray"
            return "" if view.c_contiguous else "it must be contiguous, in C's order"
    except ValueError:  # closed or released: its own words say so
        return ""


@dataclass(frozen=True, slots=True)
class RemoteRegion:
    """Memory of a peer that was registered for remote access: where, under which key, how many bytes.

    ``region[4096:8192]`` is a part of it, by byte range. `pack` and `unpack` carry it through a message.
    """

    address: int
    key: int
    length: int

    _PACKED = struct.Struct("!QQQ")

    def pack(self) -> bytes:
        """24 bytes to send to the peer that shall use the region."""
        return self._PACKED.pack(self.address, self.key, self.length)

    @classmethod
    def unpack(cls, packed: bytes | bytearray | memoryview) -> Self:
        """The region that `pack` described.

        Raises:
            ValueError: not 24 bytes.
        """
        try:
            return cls(*cls._PACKED.unpack(packed))
        except struct.error:
            raise ValueError(f"a packed RemoteRegion has {cls._PACKED.size} bytes, not {len(packed)}") from None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: slice) -> RemoteRegion:
        """A part, by byte range. Unlike a sequence's, a range that leaves the region is an `IndexError`."""
        if not isinstance(index, slice):
            raise TypeError("a RemoteRegion is sliced by byte range, region[start:stop]")
        if index.step not in (None, 1):
            raise ValueError("a RemoteRegion slice has no step")
        start = 0 if index.start is None else index.start
        stop = self.length if index.stop is None else index.stop
        if not 0 <= start <= stop <= self.length:
            raise IndexError(f"bytes {start}:{stop} are outside a remote region of {self.length} bytes")
        return RemoteRegion(self.address + start, self.key, stop - start)


# A dataclass with slots makes a class attribute without annotation no field, which is what _PACKED relies on.


class RegionHandle(Handle):
    """A registration, kept until the last operation that uses it is settled."""

    __slots__ = ("descriptor", "pins", "table", "users")

    def __init__(self, domain: Domain, mr: Any, pins: Any, table: RegionTable) -> None:
        super().__init__("MemoryRegion", mr, domain._handle)
        self.pins = pins
        self.users = 0
        self.descriptor = lib.fi_mr_desc(mr)
        self.table = table
        table.add(self)

    def release(self) -> None:
        self.table.remove(self)
        if not self.users:
            self._deregister()

    def use(self) -> None:
        """One more operation uses the registration."""
        self.users += 1

    def unuse(self) -> None:
        """One operation less; a region that was closed meanwhile goes with its last one."""
        self.users -= 1
        if self.closed and not self.users:
            self._deregister()

    def _deregister(self) -> None:
        super().release()
        self.pins = None


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except (TypeError, BufferError):
        return not hasattr(value, "__dlpack__") and not hasattr(value, "__cuda_array_interface__")
    return True


def _pin_device(device: DeviceMemory, domain: Domain, *, writable: bool) -> Any:
    """Device memory, unless the provider would take its address for one of the host's."""
    if device.iface is not HmemIface.SYSTEM:
        require(Caps.HMEM, domain.info)
    if writable and device.readonly:
        raise BufferError("cannot use this array: it is read-only")
    return device.pin()


class RegionTable:
    """The registrations of a domain: unused keys, and the region that a local buffer lies in."""

    def __init__(self, info: Info) -> None:
        mode = MrMode(info.domain_attr.mr_mode)
        self.virtual_addresses = bool(mode & MrMode.VIRT_ADDR)
        self.provider_keys = bool(mode & MrMode.PROV_KEY)
        self.local_required = bool(mode & MrMode.LOCAL)
        self.bound_to_endpoint = bool(mode & MrMode.ENDPOINT)
        self._key_bits = 8 * min(max(info.domain_attr.mr_key_size, 1), 8)
        self._starts: list[int] = []
        self._regions: list[tuple[int, int, RegionHandle]] = []  # start, stop, region; by start
        self._keys: set[int] = set()

    def __len__(self) -> int:
        return len(self._regions)

    def choose_key(self) -> int:
        """A key that nobody can guess and that no region of the domain has."""
        while (key := secrets.randbits(self._key_bits)) in self._keys:
            pass
        self._keys.add(key)
        return key

    def add(self, region: RegionHandle) -> None:
        start = int(ffi.cast("uintptr_t", region.pins))
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._regions.insert(at, (start, start + len(region.pins), region))

    def remove(self, region: RegionHandle) -> None:
        for at, (_, _, other) in enumerate(self._regions):
            if other is region:
                del self._regions[at], self._starts[at]
                return

    def free_key(self, key: int) -> None:
        self._keys.discard(key)

    def find(self, pointer: Any, length: int) -> RegionHandle | None:
        """The region that holds all of these bytes, or None. Overlapping regions: the one that starts last."""
        start = int(ffi.cast("uintptr_t", pointer))
        for at in range(bisect_right(self._starts, start) - 1, -1, -1):
            _, stop, region = self._regions[at]
            if start + length <= stop:
                return region
        return None


class MemoryRegion(Resource):
    """Registered memory; made by `Domain.register`. ``with`` and ``async with`` alike.

    The buffer stays exported while the region is open and while an operation still uses it.
    """

    __slots__ = ("access", "buffer", "domain", "key", "remote")

    def __init__(self, domain: Domain, buffer: Any, *, access: Access | None = None, key: int | None = None) -> None:
        domain._handle.check_open()
        access = _LOCAL_USE if access is None else Access(access)
        writable = bool(access & _WRITES) and access != _LOCAL_USE
        device = None if _has_buffer(buffer) else device_memory(buffer)
        pins = pin(buffer, writable=writable) if device is None else _pin_device(device, domain, writable=writable)
        if not len(pins):
            raise ValueError("cannot register an empty buffer")
        table = domain._regions
        chosen = 0 if table.provider_keys else (table.choose_key() if key is None else key)
        iov = ffi.new("struct iovec *", {"iov_base": pins, "iov_len": len(pins)})
        attr = ffi.new("struct fi_mr_attr[2]")  # 2.x may copy a longer layout than the headers know
        attr[0].mr_iov = iov
        attr[0].iov_count = 1
        attr[0].access = int(access)
        attr[0].requested_key = chosen
        if device is not None:
            attr[0].iface, attr[0].device.cuda = device.iface, device.device
        out = ffi.new("struct fid_mr **")
        try:
            check(lib.fi_mr_regattr(domain._handle.fid, attr, 0, out), "fi_mr_regattr")
        except BaseException as error:
            table.free_key(chosen)
            if isinstance(error, NotSupportedError) and device is not None:
                error.detail = f"{describe()} was built without support for the memory of {device.iface}"
            raise
        self.domain = domain
        self.buffer = buffer
        self.access = access
        self._handle = RegionHandle(domain, out[0], pins, table)
        key = lib.fi_mr_key(out[0])
        self.key = chosen if key == constants.FI_KEY_NOTAVAIL else key
        address = int(ffi.cast("uintptr_t", pins)) if table.virtual_addresses else 0
        self.remote = RemoteRegion(address, self.key, len(pins))

    def __len__(self) -> int:
        return self.remote.length

    def close(self) -> None:
        """Forbid new use at once; deregister when the last operation that uses the region is settled."""
        if not self.closed:
            self.domain._regions.free_key(self.key)
        super().close()

    def __repr__(self) -> str:
        return f"<MemoryRegion {len(self)} bytes, {self.access!r}{' closed' if self.closed else ''}>"
