"""LentMemory: the memory into which large items are read, which is lent to the program until an item's scope ends."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .freelist import Freelist

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LentMemory"]

_ROUND: Final = 1 << 16


class LentMemory:
    """Buffers that are used again; ``most`` bounds the bytes that are kept for that. The credits of the connections
    bound the bytes that are lent.
    """

    def __init__(self, most: int) -> None:
        self._list: Freelist[bytearray] = Freelist(most)

    @property
    def lent(self) -> int:
        """Bytes."""
        return self._list.taken

    def take(self, size: int) -> bytearray:
        """At least ``size`` bytes.

        Raises:
            MemoryError: the host has no more.
        """
        size = max(1, -(-size // _ROUND)) * _ROUND
        memory = self._list.take(size)
        if memory is not None:
            return memory
        try:
            return bytearray(size)
        except MemoryError:
            self._list.lose(size)
            raise

    def lose(self, memory: bytearray) -> None:
        """It is not lent any more, and must not be used again."""
        self._list.lose(len(memory))

    def give_back(self, memory: bytearray, views: Sequence[object]) -> None:
        """The scope has ended: release the views, and use the memory again unless the program still exports it."""
        for view in views:
            if isinstance(view, memoryview):
                with suppress(BufferError):  # an array over it
                    view.release()
        try:
            memory.pop()  # raises while anything refers to the memory, which then is not used again
        except BufferError:
            self.lose(memory)
            return
        memory.append(0)  # there is room: nothing is moved
        self._list.give_back(memory, len(memory))
