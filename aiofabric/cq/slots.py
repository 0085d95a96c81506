"""Slots: the ``struct fi_context2`` that every posted operation passes to the provider.

The provider may write into a slot (``FI_CONTEXT``, ``FI_CONTEXT2``) and names it in the completion. So the address of
the slot is the key of the operation. An address is free again after its completion was read, and is not used at once,
because rxm reports the failure of a large receive twice. The slot of an operation without a completion stays in
quarantine until its queue is closed: a late completion would otherwise finish a new operation.
"""

from __future__ import annotations

from typing import Any

from .._core import Slot, SlotsCore
from .._ffi import address_of, ffi

__all__ = ["Slot", "Slots"]

_BLOCK = 128
_SIZE = 64  # sizeof(struct fi_context2), asserted in libfabric.src.c


class Slots(SlotsCore):
    """The free slots of one queue. Blocks are freed only with this object, so addresses stay valid."""

    __slots__ = ("_blocks", "quarantined")

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[Any] = []
        self.quarantined = 0

    def reserve(self, slot: Slot) -> None:
        """Quarantine a slot that was released just now: the provider still uses its address."""
        self._free.remove(slot)
        self.quarantined += 1

    def reuse(self, slot: Slot) -> None:
        """Use a reserved slot again, for the operation that ends the reservation."""
        self.quarantined -= 1
        self.in_use += 1

    def quarantine(self, slot: Slot) -> None:
        """The operation ended without a completion: never use this address again."""
        self.in_use -= 1
        self.quarantined += 1

    def replace(self, receive: Any, operations: Any) -> Slot:
        """Give a receive that has failed another slot, and return it. rxm reports the failure of a large receive twice,
        and the second report must not name the next message in the same memory.
        """
        slot = self.acquire()
        operations.pop(receive.slot.address)
        self.release(receive.slot)
        operations[slot.address] = receive
        return slot

    def _grow(self) -> None:
        block = ffi.new("struct fi_context2[]", _BLOCK)
        self._blocks.append(block)
        base = address_of(block)
        for address in range(base, base + _BLOCK * _SIZE, _SIZE):
            self._free.append(Slot(ffi.cast("void *", address), address))
