"""Deduplicate: notices items that came twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .runtime.end import check_limits

if TYPE_CHECKING:
    from .runtime.item import Item

__all__ = ["Deduplicate"]


class Deduplicate:
    """Remembers the last ``most`` items of a consumer: some 200 bytes each, so 20 MB for 100,000.

    Delivered at least once, an item comes again if a consumer leaves before its acknowledgement has arrived. An item
    that came again to *another* consumer is not noticed, nor one of which ``most`` others came after the first time.
    """

    def __init__(self, most: int = 100_000) -> None:
        check_limits(most=most)
        self._most = most
        self._seen: dict[tuple[bytes, int], Any] = {}

    def seen(self, item: Item) -> bool:
        """Whether the item came before; remembers it. Raises TypeError for anything that is not an item of `Pull`."""
        if not (hasattr(item, "producer") and hasattr(item, "number")):
            raise TypeError(f"an item of Pull.pull() is required, not {type(item).__name__}")
        key = (item.producer, item.number)
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        return False
