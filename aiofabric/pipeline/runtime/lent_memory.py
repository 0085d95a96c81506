"""LentMemory: the memory into which large items are read, which is lent to the program until an item's scope ends."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LentMemory"]

_ROUND: Final = 1 << 16
_KEPT_ANYWAY: Final = 64 << 20
"""Bytes that are kept for reuse even if less is lent."""


class LentMemory:
    """Buffers that are used again: fresh memory costs a page fault for each 4 KiB.

    As many bytes are kept for reuse as are lent, or 64 MiB if that is more, but at most ``most``. The credits of the
    connections bound the bytes that are lent.
    """

    def __init__(self, most: int) -> None:
        self.lent = 0  # bytes
        self._most = most
        self._kept = 0
        self._free: dict[int, list[bytearray]] = {}  # by size

    def take(self, size: int) -> bytearray:
        """At least ``size`` bytes."""
        size = max(1, -(-size // _ROUND)) * _ROUND
        self.lent += size
        free = self._free.get(size)
        if free:
            self._kept -= size
            memory = free.pop()
            if not free:
                del self._free[size]
            return memory
        return bytearray(size)

    def give_back(self, memory: bytearray, views: Sequence[object]) -> None:
        """The scope has ended: release the views, and use the memory again unless the program still exports it."""
        self.lent -= len(memory)
        for view in views:
            if isinstance(view, memoryview):
                with suppress(BufferError):  # an array over it
                    view.release()
        try:
            memory.pop()  # raises while anything refers to the memory, which then is not used again
        except BufferError:
            return
        memory.append(0)  # there is room: nothing is moved
        self._free.setdefault(len(memory), []).append(memory)
        self._kept += len(memory)
        while self._kept > min(self._most, max(self.lent, _KEPT_ANYWAY)):
            size, free = next(iter(self._free.items()))
            free.pop()
            if not free:
                del self._free[size]
            self._kept -= size
