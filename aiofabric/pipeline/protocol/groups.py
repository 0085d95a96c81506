"""ItemGroup: items that left in one frame, until the consumer has acknowledged them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .frames import ITEM_COST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Large", "ItemGroup"]


class Large:
    """An item that is not copied: several parts, a header, or more bytes than a small item. ``in_row``: whether it may
    share a frame with others.
    """

    __slots__ = ("exposed", "header", "in_row", "parts", "size")

    def __init__(self, header: bytes, parts: Sequence[Any], size: int, in_row: bool = False) -> None:
        self.in_row = in_row
        self.header = header
        self.parts = parts
        self.size = size
        self.exposed: Any = None  # what the runtime must close when the consumer has read the parts


class ItemGroup:
    """Items with their numbers, and ``start``, the place of the first among the items of the connection.

    ``since``: when the first one was sent for the first time, in seconds of any clock; 0: not yet. ``items`` has small
    ones, as bytes, or is a row of `Large`; most rows have only one.
    """

    __slots__ = ("_acked", "items", "left", "left_bytes", "numbers", "redelivered", "since", "start")

    def __init__(
        self, items: Sequence[Any], numbers: Sequence[int], cost: int, *, redelivered: bool = False, since: float = 0.0
    ) -> None:
        self.items = items
        self.numbers = numbers
        self.redelivered = redelivered
        self.since = since
        self.start = 0
        self.left = len(items)  # not acknowledged
        self.left_bytes = cost  # of those, as `cost_of` counts them
        self._acked: set[int] | None = None  # None: none of them

    @property
    def end(self) -> int:
        return self.start + len(self.items)

    @property
    def large(self) -> Large | None:
        """The first item of a row."""
        first = self.items[0]
        return first if type(first) is Large else None

    def add(self, item: bytes | Large, number: int, cost: int) -> None:
        """An item joins a group whose ``items`` and ``numbers`` are lists."""
        self.items.append(item)  # type: ignore[attr-defined]
        self.numbers.append(number)  # type: ignore[attr-defined]
        self.left += 1
        self.left_bytes += cost

    def ack(self, start: int, end: int) -> tuple[int, int]:
        """Acknowledge places; returns how many items, and how many bytes, were not acknowledged before."""
        if self._acked is None and start <= self.start and end >= self.end:
            items, size, self.left, self.left_bytes = self.left, self.left_bytes, 0, 0
            return items, size
        if self._acked is None:
            self._acked = set()
        items = size = 0
        for at in range(max(start, self.start) - self.start, min(end, self.end) - self.start):
            if at not in self._acked:
                self._acked.add(at)
                items += 1
                item = self.items[at]
                size += cost_of(item)
                if type(item) is Large:
                    item.parts = ()  # the others of the row do not keep its memory
        self.left -= items
        self.left_bytes -= size
        return items, size

    def numbers_to_ack(self, start: int, end: int) -> list[int]:
        """The numbers of the items that `ack` would acknowledge."""
        acked = self._acked or ()
        places = range(max(start, self.start) - self.start, min(end, self.end) - self.start)
        return [self.numbers[at] for at in places if at not in acked]

    def not_acknowledged(self) -> Iterator[tuple[Any, int]]:
        """The items with their numbers."""
        acked = self._acked or ()
        return (pair for at, pair in enumerate(zip(self.items, self.numbers, strict=True)) if at not in acked)


def cost_of(item: Any) -> int:
    """The bytes that an item counts for."""
    return ITEM_COST + (item.size if type(item) is Large else len(item))
