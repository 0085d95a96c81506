"""Interned names: a name is sent once for each connection and direction, and is an index afterwards.

There are two tables for each direction: methods, and metadata keys. The receiver announces how many bytes the names of
both may take. A sender that has filled them sends further names in full.
"""

from __future__ import annotations

from typing import Final

from .frames import NO_INDEX, Kind, frame
from .status import GoAwayReason, ProtocolError

__all__ = ["KEYS", "METHODS", "ReceivedNames", "SentNames"]

METHODS: Final = 0
KEYS: Final = 1

_COST: Final = 32
"""Bytes that a name takes in the table besides its length."""


class SentNames:
    """The names that this side has defined. ``room`` bytes are left at the peer."""

    __slots__ = ("indexes", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self.indexes: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def define(self, table: int, name: str) -> bytes | None:
        """Give ``name`` an index and return the frame that says so; None if there is no room."""
        data = name.encode()
        cost = len(data) + _COST
        indexes = self.indexes[table]
        if cost > self.room or len(indexes) >= NO_INDEX:
            return None
        self.room -= cost
        index = indexes[name] = len(indexes)
        return frame(Kind.DEFINE, 0, data, flags=table, field=index)


class ReceivedNames:
    """The names that the peer has defined."""

    __slots__ = ("names", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self.names: tuple[list[str], list[str]] = ([], [])

    def add(self, table: int, index: int, data: bytes) -> None:
        """Store a definition; indexes count from 0 in each table."""
        if table not in (METHODS, KEYS):
            raise ProtocolError(f"A name was defined in the unknown table {table}")
        names = self.names[table]
        if index != len(names):
            raise ProtocolError(f"The name with index {index} was defined after {len(names)} names")
        self.room -= len(data) + _COST
        if self.room < 0:
            raise ProtocolError("The defined names take more memory than this side announced", GoAwayReason.LIMIT)
        try:
            names.append(data.decode())
        except UnicodeDecodeError:
            raise ProtocolError("A defined name is not UTF-8") from None

    def look_up(self, table: int, index: int) -> str:
        names = self.names[table]
        if index >= len(names):
            raise ProtocolError(f"The index {index} was never defined")
        return names[index]
