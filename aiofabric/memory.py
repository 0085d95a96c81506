"""Memory regions: registered local memory (man page: fi_mr)."""

from __future__ import annotations

import sys
import weakref
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ._core import keep_for_ever, refuse_pointers
from ._ffi import constants, ffi
from .arguments import check_type
from .device_memory import DeviceMemory, device_memory, memory_kind
from .errors import NotSupportedError
from .features import describe, require
from .flags import Access, Caps, HmemIface
from .regions import LOCAL_USE
from .remote_region import RemoteRegion
from .resource import Resource, check_resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .fabric import Fabric
    from .info import Info
    from .regions import MemoryOwner, RegionHandle

__all__ = ["MemoryRegion", "bytes_of", "close_together", "has_buffer", "pin"]

_ANY_ACCESS = sum(Access)
_REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE
_WRITES = Access.RECV | Access.READ | Access.REMOTE_WRITE
# The collector crashes when it clears a memoryview with an export (CPython gh-77894). A pin and its view in the cycle
# that an exception makes are enough. So a pinned view is not tracked by the garbage collector. Debian 12 has 3.11.2.
_FRAGILE_VIEWS = sys.version_info < (3, 11, 9) or (3, 12) <= sys.version_info < (3, 12, 3)


class _PinnedView(weakref.ref[Any]):
    """A pin, and its view. Compared by identity: pins of one address are equal."""

    __slots__ = ("view",)
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    view: memoryview


_pinned_views: set[_PinnedView] = set()
keep_for_ever(_pinned_views)  # an operation may be under way when the interpreter ends


def pin(buffer: Any, *, writable: bool = False) -> Any:
    """Export ``buffer`` for as long as the result lives: a ``char[]`` cdata; ``len()`` of it is in bytes.

    Raises:
        TypeError: it is not a buffer, or it holds pointers (an array of objects).
        BufferError: it is not contiguous, is read-only although it would be written, or is closed (mmap).
        NotSupportedError: it is in the memory of a device.
    """
    refuse_pointers(buffer)
    try:
        pins = ffi.from_buffer("char[]", buffer, writable)  # writable as a keyword takes 0.30 us instead of 0.17
    except TypeError:
        raise _not_a_buffer(buffer) from None
    except (ValueError, BufferError) as error:
        raise BufferError(
            f"cannot use this {type(buffer).__name__}: {_objection(buffer, writable) or error}"
        ) from error
    if _FRAGILE_VIEWS and type(buffer) is memoryview:
        pinned = _PinnedView(pins, _pinned_views.discard)
        pinned.view = buffer
        _pinned_views.add(pinned)
    return pins


def _not_a_buffer(buffer: Any) -> Exception:
    name, kind = type(buffer).__name__, memory_kind(buffer)
    text = f"a bytes-like object is required (bytes, bytearray, memoryview, array, mmap, numpy), not {name}"
    if not kind:
        return TypeError(text)
    if kind == "host":
        return TypeError(f"{text}; numpy.from_dlpack() makes one of its memory, without a copy")
    detail = f"{name} is in the memory of a device ({kind}), and this operation uses host memory"
    error = NotSupportedError(constants.FI_EOPNOTSUPP, "Device memory", detail=detail)
    error.cure = (
        "Copy it to host memory first. Only `write` and `read_into` use device memory, if the program registered it "
        "(`domain.register`) over a provider with FI_HMEM"
    )
    return error


def bytes_of(buffer: Any) -> memoryview:
    """The bytes of a contiguous buffer, in place.

    Raises:
        TypeError: it is not a buffer, is not contiguous, or holds pointers (an array of objects).
    """
    refuse_pointers(buffer)
    view = memoryview(buffer)
    if not view.nbytes:  # one with zeros in its shape cannot be cast
        return memoryview(b"") if view.readonly else memoryview(bytearray())
    return view.cast("B")


def _objection(buffer: Any, writable: bool) -> str:
    try:
        with memoryview(buffer) as view:
            if writable and view.readonly:
                return "it is read-only; pass a writable one such as bytearray"
            return "" if view.c_contiguous else "it must be contiguous, in C's order"
    except ValueError:  # closed or released: the original error says so
        return ""


def has_buffer(value: Any) -> bool:
    """False if only DLPack or CUDA's array interface gives the memory of ``value``."""
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


def _pin_device(device: DeviceMemory, domain: OpenDomain, *, writable: bool) -> Any:
    """Pin device memory; raise if the provider would take its address for host memory."""
    if device.iface is not HmemIface.SYSTEM:
        require(Caps.HMEM, domain.info)
    if writable and device.readonly:
        raise BufferError("cannot use this array: it is read-only")
    return device.pin()


class OpenDomain(Protocol):
    """The parts of a `Domain` that registrations need."""

    info: Info
    fabric: Fabric

    @property
    def _handle(self) -> MemoryOwner: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...


class _AccessFlags(NamedTuple):
    """The uses of a region that a program asked for."""

    writes: bool
    """Whether the memory must be writable."""
    of_readonly: Access
    of_writable: Access
    """The access to register it for. The owner may always use it, so that no operation registers it a second time."""
    remote: Access | None


@lru_cache
def _flags_of(access: Access | None) -> _AccessFlags:
    asked = LOCAL_USE if access is None else Access(access)
    if int(asked) & ~_ANY_ACCESS:
        raise ValueError(f"access can be {', '.join(each.name or '' for each in Access)}, not {access:#x}")
    writes = bool(asked & _WRITES) and asked != LOCAL_USE
    return _AccessFlags(writes, asked | Access.SEND, asked | LOCAL_USE, asked & _REMOTE or None)


class MemoryRegion(Resource):
    """Registered memory; made by `Domain.register`. A context manager, ``with`` and ``async with`` alike.

    The buffer stays exported while the region is open and while an operation still uses it.
    """

    __slots__ = ("_remote", "access", "buffer", "domain")
    _handle: RegionHandle

    def __init__(
        self,
        domain: OpenDomain,
        buffer: Any,
        *,
        access: Access | None = None,
        key: int | None = None,
        endpoint: Resource | None = None,
    ) -> None:
        check_resource("domain", domain, "Domain")
        domain._handle.check_open()
        if endpoint is not None:
            check_type("endpoint", endpoint, Resource)
            endpoint._handle.check_open()
        if access is not None:
            check_type("access", access, int)
        flags = _flags_of(access)
        if key is not None and key >> 64:
            raise ValueError(f"a key must be 0 to 2**64 - 1, not {key}")
        writable = flags.writes
        device = None if has_buffer(buffer) else device_memory(buffer)
        pins = pin(buffer, writable=writable) if device is None else _pin_device(device, domain, writable=writable)
        if not len(pins):
            raise ValueError("cannot register an empty buffer")
        access = flags.of_readonly if _is_readonly(buffer, device) else flags.of_writable
        table = domain._handle.regions
        of = None if endpoint is None else endpoint._handle
        try:
            self._handle = handle = table.register(pins, access, key=key, device=device, endpoint=of)
            if key is not None:
                handle.show()
        except NotSupportedError as error:
            if device is not None:
                error.detail = f"{describe()} was built without support for the memory of {device.iface}"
            raise
        self.domain = domain
        self.buffer = buffer
        self.access = access
        address = handle.start if table.virtual_addresses else 0
        self._remote = RemoteRegion(address, handle.key, len(pins), handle.raw, flags.remote)

    @property
    def key(self) -> int:
        """The key that peers name the region by."""
        self._handle.show()
        return self._handle.key

    @property
    def remote(self) -> RemoteRegion:
        """The description that a peer needs to access the region.

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
        self._handle.show()
        return self._remote

    def __len__(self) -> int:
        return self._remote.length

    def close(self) -> None:
        """Forbid new use at once; deregister when the last operation that uses the region has ended."""
        super().close()

    def __repr__(self) -> str:
        return f"<MemoryRegion {len(self)} bytes, {self.access!r}{' closed' if self.closed else ''}>"


def close_together(regions: Sequence[MemoryRegion]) -> None:
    """Close regions of one domain, all of them even if one raises. The accesses of peers that are under way are looked
    up once for all, which takes 15 us for each connection over tcp.
    """
    if regions:
        regions[0].domain._handle.regions.close_together([region._handle for region in regions])
