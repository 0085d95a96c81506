"""Receipts: what a consumer has received from one producer, and which of it is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .frames import MOST_RANGES, ProtocolError

if TYPE_CHECKING:
    from .hello import Hello

__all__ = ["Receipts"]


class Receipts:
    """Places and credits of one connection.

    Places are acknowledged in any order. They are sent together, as ranges, by the runtime: see `take`.
    """

    __slots__ = (
        "_bytes_left",
        "_items_left",
        "_max_item_size",
        "_most_unsent",
        "_most_unsent_bytes",
        "_ranges",
        "place",
        "unsent",
        "unsent_bytes",
        "whole_cost",
        "window",
    )

    def __init__(self, ours: Hello) -> None:
        self.window = self._items_left = ours.window
        self._bytes_left = ours.window_bytes
        self._max_item_size = ours.max_item_size
        self._ranges: list[tuple[int, int]] = []
        self.place = 0  # of the next item
        self.whole_cost = 0  # bytes of all items that have arrived
        self.unsent = 0  # acknowledged items that the producer was not told of
        self.unsent_bytes = 0
        self._most_unsent, self._most_unsent_bytes = ours.window // 4, ours.window_bytes // 4

    @property
    def items_out(self) -> int:
        """Items that have arrived, and that are not acknowledged."""
        return self.window - self._items_left

    def arrived(self, items: int, cost: int, largest: int) -> int:
        """Items have arrived, the ``largest`` of so many bytes; returns the place of the first. Raises `ProtocolError`
        if it is too large, or if there was no room for them.
        """
        if largest > self._max_item_size:
            raise ProtocolError(f"an item of {largest} bytes came; the max_item_size here is {self._max_item_size}")
        alone = self._items_left == self.window and items == 1
        if items > self._items_left or (cost > self._bytes_left and not alone):
            raise ProtocolError(
                f"{items} items of {cost} bytes came; there was room for {self._items_left} of {self._bytes_left} bytes"
            )
        self._items_left -= items
        self._bytes_left -= cost
        self.whole_cost += cost
        place = self.place
        self.place = place + items
        return place

    def ack(self, place: int, cost: int, items: int = 1) -> bool:
        """Items from ``place`` on are acknowledged; each only once. Returns whether a quarter of the window waits to be
        sent, which is not delayed further.
        """
        self._items_left += items
        self._bytes_left += cost
        self.unsent += items
        self.unsent_bytes += cost
        ranges = self._ranges
        if ranges and ranges[-1][1] == place:
            ranges[-1] = ranges[-1][0], place + items
        else:
            ranges.append((place, place + items))
        return (
            self.unsent >= self._most_unsent
            or self.unsent_bytes >= self._most_unsent_bytes
            or len(ranges) >= MOST_RANGES
        )

    def take(self) -> list[tuple[int, int]]:
        """The acknowledgements to send."""
        ranges, self._ranges, self.unsent, self.unsent_bytes = self._ranges, [], 0, 0
        if len(ranges) == 1:
            return ranges
        merged: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged
