"""Freelist: memory that is kept for reuse, by its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Freelist"]

_KEPT_ANYWAY: Final = 64 << 20
"""Bytes that are kept for reuse even if less is taken."""

MemoryT = TypeVar("MemoryT")


class Freelist(Generic[MemoryT]):
    """Counts what is taken, and keeps as many bytes for reuse, or 64 MiB if that is more, but at most ``most``.

    ``forget`` is called with memory that is not kept any longer.
    """

    def __init__(self, most: int, forget: Callable[[MemoryT], object] | None = None) -> None:
        self.taken = 0  # bytes
        self.kept = 0
        self._most = most
        self._forget = forget
        self._free: dict[int, list[MemoryT]] = {}  # by size

    def take(self, size: int) -> MemoryT | None:
        """Memory of this size that is used again, or None: the caller takes fresh memory then. Either is counted."""
        self.taken += size
        return self._pop(size) if size in self._free else None

    def give_back(self, memory: MemoryT, size: int) -> None:
        """Memory that was taken may be used again."""
        self.lose(size)
        self.add(memory, size)

    def add(self, memory: MemoryT, size: int) -> None:
        """Memory that is not counted may be used again."""
        self.kept += size
        self._free.setdefault(size, []).append(memory)
        while self.kept > min(self._most, max(self.taken, _KEPT_ANYWAY)):
            old = self._pop(next(iter(self._free)))
            if self._forget is not None:
                self._forget(old)

    def lose(self, size: int) -> None:
        """Memory that was taken is not used again."""
        self.taken -= size

    def clear(self) -> None:
        """Nothing is taken, and nothing kept."""
        self.taken = self.kept = 0
        self._free.clear()

    def _pop(self, size: int) -> MemoryT:
        free = self._free[size]
        memory = free.pop()
        if not free:
            del self._free[size]
        self.kept -= size
        return memory
