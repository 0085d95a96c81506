"""Memory regions: registered memory of ours, and the description of a peer's (man pages: fi_mr, fi_rma)."""

from __future__ import annotations

import struct
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ._ffi import constants, ffi
from .device_memory import DeviceMemory, device_memory
from .errors import NotSupportedError, from_errno
from .features import describe, require
from .flags import Access, Caps, HmemIface
from .regions import LOCAL_USE
from .resource import Resource

if TYPE_CHECKING:
    from .domain import Domain

__all__ = ["MemoryRegion", "RemoteRegion", "pin"]

_ANY_ACCESS = sum(Access)
_RAW_BASE = 8  # bytes of the base address before a raw key
_WRITES = Access.RECV | Access.READ | Access.REMOTE_WRITE
# The collector crashes as it clears a memoryview that something exports (CPython gh-77894): a pin and its view in the
# cycle that an exception makes are enough. So a view that is pinned is kept out of its sight. Debian 12 has 3.11.2.
_FRAGILE_VIEWS = sys.version_info < (3, 11, 9) or (3, 12) <= sys.version_info < (3, 12, 3)


class _PinnedView(weakref.ref[Any]):
    """A pin, and its view. By identity: pins of one place are equal."""

    __slots__ = ("view",)
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    view: memoryview


_pinned_views: set[_PinnedView] = set()


def pin(buffer: Any, *, writable: bool = False) -> Any:
    """Export ``buffer`` for as long as the result lives: a ``char[]`` cdata; ``len()`` of it is in bytes.

    Raises:
        TypeError: it is no buffer.
        BufferError: it is not contiguous, read-only where it would be written, or gone (a closed mmap).
    """
    try:
        pins = ffi.from_buffer("char[]", buffer, writable)  # by its name it takes 0.30 us instead of 0.17
    except TypeError:
        raise TypeError(
            "a bytes-like object is required (bytes, bytearray, memoryview, array, mmap, numpy), "
            f"not {type(buffer).__name__}"
        ) from None
    except (ValueError, BufferError) as error:
        raise BufferError(
            f"cannot use this {type(buffer).__name__}: {_objection(buffer, writable) or error}"
        ) from error
    if _FRAGILE_VIEWS and type(buffer) is memoryview:
        held = _PinnedView(pins, _pinned_views.discard)
        held.view = buffer
        _pinned_views.add(held)
    return pins


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
    """Memory of a peer that was registered for remote access: where, under which key, how many bytes, and for what.

    ``region[4096:8192]`` is a part of it, by byte range. `pack` and `unpack` carry it through a message. ``raw`` is
    empty but with providers whose keys are longer than 64 bits (FI_MR_RAW). ``access`` holds ``REMOTE_READ``,
    ``REMOTE_WRITE`` or both; None where the peer did not say.
    """

    address: int
    key: int
    length: int
    raw: bytes = b""
    access: Access | None = None

    _PACKED = struct.Struct("!QQQ")
    _ACCESS = (None, Access.REMOTE_READ, Access.REMOTE_WRITE, Access.REMOTE_READ | Access.REMOTE_WRITE)

    def __post_init__(self) -> None:
        if (self.address | self.key | self.length) >> 64 or self.address + self.length > 1 << 64:
            raise ValueError("address, key and length of a RemoteRegion have 64 bits and no sign, its end as well")

    def pack(self) -> bytes:
        """25 bytes to send to the peer that shall use the region; more where it has a ``raw`` key."""
        access = self._ACCESS.index(self.access).to_bytes(1, "big")
        return self._PACKED.pack(self.address, self.key, self.length) + access + self.raw

    @classmethod
    def unpack(cls, packed: bytes | bytearray | memoryview) -> Self:
        """The region that `pack` described.

        The first 24 bytes alone, three numbers in network byte order, are taken as well: a peer without aiofabric may
        send them.

        Raises:
            ValueError: not 25 bytes, and not those of a longer key either.
        """
        size = cls._PACKED.size
        access, raw = bytes(packed[size : size + 1]) or b"\0", bytes(packed[size + 1 :])
        if len(packed) < size or 0 < len(raw) <= _RAW_BASE or access[0] >= len(cls._ACCESS):
            raise ValueError(f"these {len(packed)} bytes are no packed RemoteRegion, which has {size + 1} bytes")
        address, key, length = cls._PACKED.unpack(packed[:size])
        return cls(address, key, length, raw, cls._ACCESS[access[0]])

    def check(self, call: str, size: int, needed: Access, peer: object) -> None:
        """Raise unless ``call`` may access ``size`` bytes from the start of the region.

        Raises:
            IndexError: there are not so many.
            RemoteAccessError: the owner did not register the region for this access.
        """
        if size > self.length:
            raise IndexError(f"{size} bytes do not fit a remote region of {self.length} bytes")
        if self.access is not None and int(needed) & ~int(self.access):
            detail = f"The peer registered the region for {self.access}, and this needs {needed}; nothing was sent"
            raise from_errno(constants.FI_EACCES, call, peer=peer, detail=detail)

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
        return RemoteRegion(self.address + start, self.key, stop - start, self.raw, self.access)


# A dataclass with slots makes a class attribute without annotation no field, which is what _PACKED relies on.


def _has_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except (TypeError, BufferError):
        return not hasattr(value, "__dlpack__") and not hasattr(value, "__cuda_array_interface__")
    return True


def _is_readonly(buffer: Any, device: DeviceMemory | None) -> bool:
    if device is not None:
        return device.readonly
    with memoryview(buffer) as view:
        return view.readonly


def _pin_device(device: DeviceMemory, domain: Domain, *, writable: bool) -> Any:
    """Device memory, unless the provider would take its address for one of the host's."""
    if device.iface is not HmemIface.SYSTEM:
        require(Caps.HMEM, domain.info)
    if writable and device.readonly:
        raise BufferError("cannot use this array: it is read-only")
    return device.pin()


class MemoryRegion(Resource):
    """Registered memory; made by `Domain.register`. ``with`` and ``async with`` alike.

    The buffer stays exported while the region is open and while an operation still uses it.
    """

    __slots__ = ("_remote", "access", "buffer", "domain", "key")

    def __init__(
        self,
        domain: Domain,
        buffer: Any,
        *,
        access: Access | None = None,
        key: int | None = None,
        endpoint: Resource | None = None,
    ) -> None:
        domain._handle.check_open()
        if endpoint is not None:
            endpoint._handle.check_open()
        asked = LOCAL_USE if access is None else Access(access)
        if int(asked) & ~_ANY_ACCESS:
            raise ValueError(f"access is made of {', '.join(each.name or '' for each in Access)}, not {access:#x}")
        if key is not None and key >> 64:
            raise ValueError(f"a key has 64 bits and no sign, unlike {key}")
        writable = bool(asked & _WRITES) and asked != LOCAL_USE
        device = None if _has_buffer(buffer) else device_memory(buffer)
        pins = pin(buffer, writable=writable) if device is None else _pin_device(device, domain, writable=writable)
        if not len(pins):
            raise ValueError("cannot register an empty buffer")
        # Its owner may use it in any case, so that no operation here has to register it a second time.
        access = asked | (Access.SEND if _is_readonly(buffer, device) else LOCAL_USE)
        table = domain._handle.regions
        of = None if endpoint is None else endpoint._handle
        try:
            self._handle = handle = table.register(pins, access, key=key, device=device, endpoint=of)
        except NotSupportedError as error:
            if device is not None:
                error.detail = f"{describe()} was built without support for the memory of {device.iface}"
            raise
        self.domain = domain
        self.buffer = buffer
        self.access = access
        self.key = handle.key
        address = handle.start if table.virtual_addresses else 0
        remote = access & (Access.REMOTE_READ | Access.REMOTE_WRITE)
        self._remote = RemoteRegion(address, handle.key, len(pins), handle.raw, remote or None)

    @property
    def remote(self) -> RemoteRegion:
        """What a peer needs to access the region.

        Raises:
            ClosedResourceError: the region is closed, and peers are refused.
            ValueError: the region is registered for local use only.
        """
        self._handle.check_open()
        if self._remote.access is None:
            raise ValueError(
                "this region is registered for local use only: register it with access=Access.REMOTE_READ, "
                "Access.REMOTE_WRITE or both"
            )
        return self._remote

    def __len__(self) -> int:
        return self._remote.length

    def close(self) -> None:
        """Forbid new use at once; deregister when the last operation that uses the region is settled."""
        super().close()

    def __repr__(self) -> str:
        return f"<MemoryRegion {len(self)} bytes, {self.access!r}{' closed' if self.closed else ''}>"
