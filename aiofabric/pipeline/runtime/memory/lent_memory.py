"""LentMemory: the memory of large items, which is lent to the program until an item's scope ends. An item that is read
out of its producer's memory gets memory from here; one that came in a message stays in the receive, as a `LoanCore`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .freelist import Freelist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import LoanCore

__all__ = ["LentMemory"]

_STEP: Final = 1 << 16
"""Bytes: memory has a multiple of it, so that items of similar sizes use the same."""
_SMALL_STEP: Final = 1 << 12  # of memory up to _STEP
_REFERRED_MOST: Final = 32 << 20
"""Bytes of memory that is watched because something still refers to it after its scope."""
_LOOKS: Final = 4  # such memories that are looked at when memory is taken


class LentMemory:
    """Buffers that are used again; ``most`` bounds the bytes that are kept for that. The credits of the connections
    bound the bytes that are lent.
    """

    def __init__(self, most: int) -> None:
        self._list: Freelist[bytearray] = Freelist(most)
        self._referred: deque[bytearray] = deque()  # given back while something referred to it, the oldest first
        self._referred_bytes = 0
        self._referred_most = min(most, _REFERRED_MOST)

    @property
    def lent(self) -> int:
        """Bytes."""
        return self._list.taken

    def take(self, size: int) -> bytearray:
        """At least ``size`` bytes.

        Raises:
            MemoryError: the host has no more.
        """
        if self._referred:
            self._look_again()
        step = _STEP if size > _STEP else _SMALL_STEP
        size = max(1, -(-size // step)) * step
        memory = self._list.take(size)
        if memory is not None:
            return memory
        try:
            return bytearray(size)
        except MemoryError:
            self._list.lose(size)
            raise

    def count(self, size: int) -> None:
        """So much of a message stays where it is until `end_loan`."""
        self._list.taken += size

    def end_loan(self, loan: LoanCore | SharedLoan, views: Sequence[memoryview]) -> None:
        """The scope has ended: the receive is posted again when nothing refers to the message."""
        for view in views:
            self._list.taken -= len(view)
            with suppress(BufferError):  # an array over it
                view.release()
        loan.end()

    def lose(self, memory: bytearray) -> None:
        """It is not lent any more, and must not be used again."""
        self._list.lose(len(memory))

    def give_back(self, memory: bytearray, views: Sequence[object]) -> None:
        """The scope has ended: release the views, and use the memory again when nothing refers to it.

        An array of the program may refer to it for ever. A region of an item that was pushed on does so for some
        milliseconds after that item's acknowledgement (transport/peer_access.py).
        """
        for view in views:
            if type(view) is memoryview:
                with suppress(BufferError):  # an array over it
                    view.release()
        if _is_free(memory):
            self._list.give_back(memory, len(memory))
            return
        self.lose(memory)
        self._referred.append(memory)
        self._referred_bytes += len(memory)
        while self._referred_bytes > self._referred_most:
            self._forget_oldest()

    def _look_again(self) -> None:
        for _ in range(min(_LOOKS, len(self._referred))):
            memory = self._forget_oldest()
            if _is_free(memory):
                self._list.add(memory, len(memory))
            else:
                self._referred.append(memory)
                self._referred_bytes += len(memory)

    def _forget_oldest(self) -> bytearray:
        memory = self._referred.popleft()
        self._referred_bytes -= len(memory)
        return memory


class SharedLoan:
    """The loan of a message with several items: it ends with the last of their scopes."""

    __slots__ = ("_left", "_loan")

    def __init__(self, loan: LoanCore, items: int) -> None:
        self._loan = loan
        self._left = items

    def end(self) -> None:
        self._left -= 1
        if not self._left:
            self._loan.end()


def _is_free(memory: bytearray) -> bool:
    """Whether nothing refers to the memory."""
    try:
        memory.pop()  # raises while its buffer is exported
    except BufferError:
        return False
    memory.append(0)  # there is room: nothing is moved
    return True
