"""ItemPool: memory for large items, registered once for the consumers that read it, and used again."""

from __future__ import annotations

import mmap
import weakref
from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ...._ffi import ffi
from ....arguments import check_number
from .freelist import Freelist

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....memory import MemoryRegion
    from ....remote_region import RemoteRegion
    from ....resource import Handle
    from ..connection import PipelineConnection

__all__ = ["ItemPool"]

_SMALLEST: Final = 1 << 16


class ItemPool:
    """Memory that a producer fills with large items. Push it, or an array over it, as any other buffer.

    Fresh memory costs a page fault for each 4 KiB, and the provider registers it for each item that lies in it. The
    memory of a pool is touched and registered once. It returns to the pool by itself, when nothing refers to it any
    more: no view and no array of the program, and no item that this end keeps.

    As many bytes are kept for reuse as are taken, or 64 MiB if that is more, but at most ``most``. While memory is
    registered, every consumer of this end can read all of it.
    """

    def __init__(self, most: int, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self._list: Freelist[_PoolMemory] = Freelist(most, self._forget)
        self._starts: list[int] = []  # addresses, sorted
        self._memories: dict[int, _PoolMemory] = {}  # by address
        self._loans: set[_Loan] = set()
        self._returned: deque[_Loan] = deque()  # filled by the garbage collector, in any thread

    @property
    def bytes_held(self) -> int:
        """Bytes of all memory of the pool: taken, and kept for reuse."""
        self._take_back()
        return self._list.taken + self._list.kept

    def take(self, size: int) -> memoryview:
        """``size`` bytes of writable memory, with any contents; it begins at a page of memory.

        The program fills it and pushes it; what is pushed must not change until the item is acknowledged. Memory that
        was not pushed returns as well, when the last view of it is gone. Never waits: what a producer has taken and
        pushed is bounded by the limits of `Push`.

        Raises:
            TypeError, ValueError: ``size`` is not a number from 1 on.
            MemoryError: the host has no more.
            ClosedResourceError: the block has ended.
            WrongThreadError: called from another thread than the one that entered the block.
            WrongLoopError: the event loop of the block has ended.
            ForkedError: called in a forked child.
        """
        check_number("size", size, 40)
        if not size:
            raise ValueError("size must be at least 1, not 0")
        self._check_open()
        self._take_back()
        room = _room_for(size)
        memory = self._list.take(room) or self._new(room)
        lent = ffi.buffer(memory.pins)
        loan = _Loan(lent, self._returned.append)
        loan.memory = memory
        self._loans.add(loan)
        return memoryview(lent)[:size]

    def find(self, connection: PipelineConnection, part: memoryview) -> RemoteRegion | None:
        """The description of a part for the peer of a connection; None if it does not lie in this pool.

        Raises:
            FabricError: the provider refused to register the memory.
        """
        place = self._place_of(part)
        if place is None:
            return None
        memory, offset = place
        return memory.region(connection).remote[offset : offset + len(part)]

    def holds(self, part: memoryview) -> bool:
        """Whether a part lies in this pool."""
        return self._place_of(part) is not None

    def _place_of(self, part: memoryview) -> tuple[_PoolMemory, int] | None:
        """The memory in which a part lies, and where."""
        if not self._starts:
            return None
        start = int(ffi.cast("uintptr_t", ffi.from_buffer(part)))
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        memory = self._memories[self._starts[at]]
        offset = start - memory.start
        return (memory, offset) if offset + len(part) <= memory.room else None

    def close(self) -> None:
        """Deregister all memory. Views that the program has stay valid."""
        for memory in self._memories.values():
            memory.close()
        self._memories.clear()
        self._starts.clear()
        self._list.clear()
        self._loans.clear()
        self._returned.clear()

    def _new(self, room: int) -> _PoolMemory:
        try:
            memory = _PoolMemory(room)
        except BaseException:
            self._list.lose(room)
            raise
        self._memories[memory.start] = memory
        insort(self._starts, memory.start)
        return memory

    def _take_back(self) -> None:
        while self._returned:
            loan = self._returned.popleft()
            self._loans.discard(loan)
            self._list.give_back(loan.memory, loan.memory.room)

    def _forget(self, memory: _PoolMemory) -> None:
        del self._memories[memory.start]
        self._starts.remove(memory.start)
        memory.close()


class _PoolMemory:
    """Memory that is taken as a whole, with its registrations."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.pins: Any = ffi.from_buffer("char[]", mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self.start = int(ffi.cast("uintptr_t", self.pins))
        self._regions: dict[Handle, MemoryRegion] = {}  # by the endpoint's domain, or what registers for it

    def region(self, connection: PipelineConnection) -> MemoryRegion:
        domain = connection.endpoint.domain._handle
        region = self._regions.get(domain)
        if region is None or region.closed:
            self._regions = {each: kept for each, kept in self._regions.items() if not kept.closed}
            region = self._regions[domain] = connection.expose(ffi.buffer(self.pins))
        return region

    def close(self) -> None:
        for region in self._regions.values():
            region.close()
        self._regions.clear()


class _Loan(weakref.ref[Any]):
    """Calls back when the last view of a memory that was taken is gone. Compared by identity."""

    __slots__ = ("memory",)
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    memory: _PoolMemory


def _room_for(size: int) -> int:
    """Four sizes for each power of two, so that items of about one size use the same memory again."""
    step = max(_SMALLEST, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step
