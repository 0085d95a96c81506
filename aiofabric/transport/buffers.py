"""Buffers for the provider: scatter-gather lists, and the registrations that cover the buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._ffi import constants, ffi
from ..memory import pin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..errors import FabricError
    from ..flags import Access
    from ..regions import MemoryOwner, RegionHandle, Registration
    from ..remote_region import RemoteRegion

__all__ = [
    "Pieces",
    "acquire_region",
    "acquire_regions",
    "acquire_rma",
    "acquire_rma_parts",
    "contents",
    "copy_of",
    "descriptors",
    "fill",
    "gather",
    "is_refused_memory",
    "joined",
]


def gather(buffers: Sequence[Any], limit: int) -> tuple[Any, Any, int]:
    """Pin ``buffers`` as one message: (pins, iov, count), or (joined buffer, None, 1).

    A provider takes few buffers per message (tcp: 4). The tail of a longer list is joined, which copies it. Empty
    buffers are left out: they have no registration, and verbs reads the descriptor of each buffer.
    """
    if len(buffers) < 2:
        return (buffers[0] if buffers else b""), None, 1
    pins = [pin(buffer) for buffer in buffers]
    if not all(map(len, pins)):
        return gather([buffer for buffer, pinned in zip(buffers, pins, strict=True) if len(pinned)], limit)
    if limit < 2:
        return joined(pins), None, 1
    if len(pins) > limit:
        pins = [*pins[: limit - 1], pin(joined(pins[limit - 1 :]))]
    iov = ffi.new("struct iovec[]", [(p, len(p)) for p in pins])
    return pins, iov, len(pins)


def is_refused_memory(error: FabricError) -> bool:
    """Whether the provider could not register memory, because the process may only read it: verbs and EFA register
    each buffer for writing, too.
    """
    return error.errno == constants.FI_EFAULT and error.call == "fi_mr_regattr"


def copy_of(data: Any) -> bytes:
    """The bytes of a buffer, or of a list of buffers, in memory that can be registered."""
    return joined([pin(each) for each in data] if type(data) is list or type(data) is tuple else [pin(data)])


def joined(pins: Sequence[Any]) -> bytes:
    """The bytes of pinned buffers, one behind the other."""
    return b"".join(map(ffi.buffer, pins))


class Pieces:
    """Several pinned buffers that the provider handles as one; ``len()`` is the sum of their sizes."""

    __slots__ = ("_size", "iov", "pins")

    def __init__(self, pins: Sequence[Any], iov: Any) -> None:
        self.pins = pins
        self.iov = iov
        self._size = sum(map(len, pins))

    @classmethod
    def room(cls, buffers: Sequence[Any], limit: int) -> Pieces:
        """Make a list of writable buffers, to be filled in order. Receive buffers cannot be joined, so ``limit``
        applies. Empty buffers do not count."""
        pins = [pin(buffer, writable=True) for buffer in buffers]
        pins = [each for each in pins if len(each)] or pins[:1]
        if not 1 <= len(pins) <= max(1, limit):
            raise ValueError(f"this provider receives into 1 to {max(1, limit)} buffers at once, not {len(pins)}")
        return cls(pins, ffi.new("struct iovec[]", [(p, len(p)) for p in pins]))

    def __len__(self) -> int:
        return self._size


def fill(room: Any, message: Any, length: int) -> None:
    """Copy a message of ``length`` bytes into the receive buffer ``room``."""
    if not isinstance(room, Pieces):
        ffi.memmove(room, message, length)
        return
    rest = memoryview(message)[:length]
    for piece in room.pins:
        ffi.memmove(piece, rest[: len(piece)], min(len(piece), len(rest)))
        rest = rest[len(piece) :]


def contents(room: Any, length: int) -> Any:
    """The message of ``length`` bytes in the receive buffer ``room``, as an object that can be copied."""
    return b"".join(map(ffi.buffer, room.pins))[:length] if isinstance(room, Pieces) else ffi.buffer(room, length)


def acquire_region(handle: MemoryOwner, pins: Any, access: Access) -> tuple[Any, tuple[RegionHandle, ...]]:
    """Return the descriptor of local memory, and the registrations that the operation holds.

    The descriptor is NULL if the memory needs none and has none. Call only if ``handle.regions.busy``: otherwise the
    result is NULL and empty.
    """
    region = handle.regions.acquire(handle, pins, access)
    return (ffi.NULL, ()) if region is None else (region.descriptor, (region,))


def acquire_regions(handle: MemoryOwner, pins: Sequence[Any], access: Access) -> tuple[Any, list[RegionHandle]]:
    """Like `acquire_region`, for a scatter-gather list: an array of descriptors, NULL if there is none."""
    registrations: list[RegionHandle] = []
    found: list[Any] = []
    if handle.regions.busy:
        try:
            for each in pins:
                descriptor, regions = acquire_region(handle, each, access)
                found.append(descriptor)
                registrations.extend(regions)
        except BaseException:
            for region in registrations:
                region.end_use()
            raise
    return (descriptors(found) if registrations else ffi.NULL), registrations


def acquire_rma(
    handle: MemoryOwner, pins: Any, access: Access, remote: RemoteRegion
) -> tuple[Any, int, Sequence[Registration]]:
    """Like `acquire_region`, for an operation on a peer's memory: the descriptor, the key, the registrations."""
    regions = handle.regions
    if not (regions.busy or remote.raw):
        return ffi.NULL, remote.key, ()
    descriptor, registrations = acquire_region(handle, pins, access)
    try:
        key, more = regions.acquire_key(remote)
    except BaseException:
        for region in registrations:
            region.end_use()
        raise
    return descriptor, key, (*registrations, *more)


def acquire_rma_parts(
    handle: MemoryOwner, parts: Sequence[tuple[Any, Access]], remote: RemoteRegion
) -> tuple[int, list[Any], list[Registration]]:
    """Like `acquire_rma`, for several local buffers: the peer's key, the descriptors, the registrations."""
    (pins, access), *others = parts
    descriptor, key, first = acquire_rma(handle, pins, access, remote)
    found, registrations = [descriptor], list(first)
    try:
        for pins, access in others:
            descriptor, regions = acquire_region(handle, pins, access)
            found.append(descriptor)
            registrations += regions
    except BaseException:
        for each in registrations:
            each.end_use()
        raise
    return key, found, registrations


def descriptors(found: Sequence[Any]) -> Any:
    """The descriptors as ``void **desc``, which the calls with a structure take."""
    return ffi.new("void *[]", found)
