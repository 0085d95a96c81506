"""Slots: the ``struct fi_context2`` that every posted operation lends to the provider.

The provider may write into a slot (``FI_CONTEXT``, ``FI_CONTEXT2``) and names it in the completion, so its
address is the key by which an operation is found again. An address goes back to the shelf only when nothing can
name it any more: its completion was read. The slot of an operation that never got one stays in quarantine until
its queue is closed, because a late completion for the old operation would otherwise settle a new one.
"""

from __future__ import annotations

from typing import Any

from .._core import Slot, SlotsCore
from .._ffi import address_of, ffi

__all__ = ["Slot", "Slots"]

_BLOCK = 128
_SIZE = 64  # sizeof(struct fi_context2), asserted in libfabric.src.c


class Slots(SlotsCore):
    """The shelf of one queue. Blocks are never freed before the shelf is, so addresses stay valid."""

    __slots__ = ("_blocks", "quarantined")

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[Any] = []
        self.quarantined = 0

    def keep(self, slot: Slot) -> None:
        """It came home just now, but its address still means something to the provider: lend it once more."""
        self._shelf.remove(slot)
        self.lent += 1

    def quarantine(self, slot: Slot) -> None:
        """No completion came and the operation is over: never lend this address again."""
        self.lent -= 1
        self.quarantined += 1

    def _grow(self) -> None:
        block = ffi.new("struct fi_context2[]", _BLOCK)
        self._blocks.append(block)
        base = address_of(block)
        for address in range(base, base + _BLOCK * _SIZE, _SIZE):
            self._shelf.append(Slot(ffi.cast("void *", address), address))
