"""Burst: when a task that never waits must yield to the loop."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_ITEMS", "MOST_SECONDS", "Burst"]

MOST_ITEMS: Final = 64
MOST_SECONDS: Final = 100e-6


class Burst:
    """Counts the items that a task has sent since it last waited. After 64 items or 100 us it must yield.

    The time runs on after a yield, because the task may compute before its next item. ``check`` is called before the
    first item is counted: for what cannot change without a wait.
    """

    __slots__ = ("_begun", "_check", "_items")

    def __init__(self, check: Callable[[], object] | None = None) -> None:
        self._check = check
        self._items = 0
        self._begun: float | None = None

    def ended(self) -> bool:
        """Count an item; True if the task must yield now."""
        items, now = self._items, monotonic()
        if not items and self._check is not None:
            self._check()
        if self._begun is None:
            self._begun = now
        elif items >= MOST_ITEMS - 1 or now - self._begun >= MOST_SECONDS:
            self._items = 0
            self._begun = now
            return True
        self._items = items + 1
        return False

    def waited(self) -> None:
        """The task has waited, or the loop has iterated in another way: count from the start."""
        self._items = 0
        self._begun = None
