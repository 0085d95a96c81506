"""Burst: when a task that never waits must yield to the loop."""

from __future__ import annotations

from time import monotonic
from typing import Final

__all__ = ["MOST_ITEMS", "MOST_SECONDS", "Burst"]

MOST_ITEMS: Final = 64
MOST_SECONDS: Final = 100e-6


class Burst:
    """Counts the items that a task has sent since it last waited. After 64 items or 100 us it must yield."""

    __slots__ = ("_begun", "_items")

    def __init__(self) -> None:
        self._items = 0
        self._begun = 0.0

    def ended(self) -> bool:
        """Count an item; True if the task must yield now."""
        items, now = self._items, monotonic()
        if not items:
            self._begun = now
        elif items >= MOST_ITEMS - 1 or now - self._begun >= MOST_SECONDS:
            self._items = 0
            return True
        self._items = items + 1
        return False

    def waited(self) -> None:
        """The task has waited: count from the start."""
        self._items = 0
