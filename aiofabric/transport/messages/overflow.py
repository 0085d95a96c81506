"""Overflow area: memory after the caller's buffer, where the provider writes the part of a message that does not fit.

shm cannot truncate a message. Above its inject size it copies with process_vm_readv until the whole message is copied
(1.17 smr_cma_loop, 2.x cma_copy). If the receive has no room left, each call copies nothing, and the loop never ends,
inside fi_cq_read. With an overflow area after the buffer no message is too long, and its size is known. The area takes
no pages until a message is written there; afterwards the pages are released.
"""

from __future__ import annotations

import mmap
from functools import cache
from typing import TYPE_CHECKING, Any

from ..._ffi import address_of, constants, ffi
from ...errors import TruncatedMessageError
from ...features import Quirk
from ...flags import Access
from ..buffers import Pieces, acquire_regions
from .pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._core import PoolBuffer
    from ...cq.queue import Entry
    from ...regions import Registration
    from ..handle import EndpointHandle

__all__ = ["BEFORE", "OverflowPool", "behind", "release_pages", "has_overflow", "roomy", "overflowed"]

_SIZES = (1 << 40, 1 << 34, 1 << 31, 1 << 28)  # bytes of address space: the largest that this process may map
BEFORE = 3  # pieces of a receive before the area: SMR_IOV_LIMIT and SM2_IOV_LIMIT are 4, independent of hints
_MAP_NORESERVE = 0x4000  # Linux; the module mmap has it since Python 3.12 only


@cache
def _area() -> Any:
    for size in _SIZES:
        try:
            area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        except (OSError, OverflowError):
            continue
        return area, ffi.from_buffer("char[]", area, require_writable=True)
    raise MemoryError("cannot reserve address space for the overflow area of receives: raise RLIMIT_AS (ulimit -v)")


def has_overflow(handle: EndpointHandle) -> bool:
    """Whether receives need an overflow area and can have one: not if the provider wants local memory registered."""
    return Quirk.LONG_MESSAGE_HANGS in handle.known and not handle.regions.local_required


@cache
def behind() -> tuple[Any, int]:
    """The overflow area as the last piece of a receive: its start and its length."""
    area = _area()[1]
    return area, len(area)


def roomy(handle: EndpointHandle, pins: Any) -> tuple[Any, Any, int, Sequence[Registration]]:
    """A receive into ``pins`` and the overflow area: the iovec, its descriptors, its length, and the
    registrations."""
    if not (handle.regions.busy or isinstance(pins, Pieces)):
        return ffi.new("struct iovec[2]", ((pins, len(pins)), behind())), ffi.NULL, 2, ()
    pieces = [*(pins.pins if isinstance(pins, Pieces) else (pins,)), behind()[0]]
    descriptors, registrations = acquire_regions(handle, pieces, Access.RECV)
    return ffi.new("struct iovec[]", [(piece, len(piece)) for piece in pieces]), descriptors, len(pieces), registrations


def release_pages(length: int) -> None:
    """Release the pages that ``length`` bytes have touched."""
    area, _ = _area()
    area.madvise(mmap.MADV_DONTNEED, 0, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE)


def overflowed(what: str, length: int, limit: int, peer: object) -> TruncatedMessageError:
    """The error for a message that reached the overflow area; releases the pages it touched."""
    error = TruncatedMessageError(constants.FI_ETRUNC, what, peer=peer)
    error.size, error.limit = length, limit
    release_pages(length - limit)
    return error


class OverflowPool(Pool):
    """A pool whose receives continue in the overflow area; a message that reaches it is reported and dropped."""

    def __init__(self, handle: EndpointHandle, size: int, count: int) -> None:
        area, length = behind()
        super().__init__(handle, size, count, behind=(address_of(area), length), limits=True)

    def overlong(self, buffer: PoolBuffer, entry: Entry, over: int = 0) -> None:
        over = entry[2] - self.size
        super().overlong(buffer, entry, over)
        release_pages(over)
