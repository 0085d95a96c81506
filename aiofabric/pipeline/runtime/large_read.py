"""LargeRead: a large item that a consumer reads out of its producer's memory, and what waits behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import anyio

from ...remote_region import RemoteRegion
from ..protocol.frames import ITEM_COST, aligned
from .item import Origin

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ..protocol.frames import LargeItem
    from .connection import PipelineConnection
    from .item import Item

__all__ = ["LargeRead", "Pending"]


class Pending:
    """A large item, whose ``entry`` is None while it is being read; or items that have arrived after one."""

    __slots__ = ("entry",)

    def __init__(self, entry: Any = None) -> None:
        self.entry = entry


class Reader(Origin, Protocol):
    """The connection whose items are read: see `Incoming`."""

    connection: PipelineConnection

    def item_of(
        self, place: int, cost: int, parts: Sequence[Any], number: int, redelivered: bool, header: bytes, /
    ) -> Item: ...
    def was_read(self, pending: Pending, item: Item, place: int, /) -> None: ...


class LargeRead:
    """Reads a large item out of the producer's memory, without a task that waits for it. One read is under way at a
    time, however many parts a producer announces; the credits bound how many items are read at once.
    """

    def __init__(self, incoming: Reader, pending: Pending, place: int, large: LargeItem, parts: Sequence[Any]) -> None:
        self._incoming = incoming
        self._pending = pending
        self._place = place
        self._large = large
        self._size = sum(aligned(part[0]) for part in parts if isinstance(part, tuple))
        self._views: list[Any] = []
        try:
            self._memory = incoming.memory.take(self._size)
        except MemoryError as error:
            incoming.connection.end(error)
            return
        self._pieces = self._pieces_of(parts)
        self._read_ended(None)

    def _pieces_of(self, parts: Sequence[Any]) -> Generator[tuple[memoryview, RemoteRegion]]:
        """Each read: where to, and from where."""
        most = self._incoming.connection.endpoint.info.ep_attr.max_msg_size
        at = 0
        for part in parts:
            if not isinstance(part, tuple):
                self._views.append(part)
                continue
            size, description = part
            remote = RemoteRegion.unpack(description)
            if remote.length != size:
                raise ValueError(f"the producer exposes {remote.length} bytes, and announced {size}")
            buffer = memoryview(self._memory)[at : at + size]
            self._views.append(buffer.toreadonly())
            for start in range(0, size, most):
                piece = buffer[start : start + most]
                yield piece, remote[start : start + len(piece)]
            at = aligned(at + size)

    def _read_ended(self, error: BaseException | None) -> None:
        """Begin the next read, or end."""
        if error is not None:
            self._fail(error)
            return
        try:
            if self._read_next():
                return
        except (OSError, ValueError, anyio.ClosedResourceError) as refusal:
            self._fail(refusal)
            return
        incoming = self._incoming
        header, _, number, redelivered, size = self._large
        item = incoming.item_of(self._place, ITEM_COST + size, self._views, number, redelivered, header)
        item._lend(self._memory)
        if incoming.connection.ended:  # another consumer gets it
            item._end_of_scope(incoming)
            return
        incoming.was_read(self._pending, item, self._place)

    def _read_next(self) -> bool:
        """Whether a read was left to begin."""
        piece = next(self._pieces, None)
        if piece is not None:
            self._incoming.connection.endpoint.read_nowait(*piece, self._read_ended)
        return piece is not None

    def _fail(self, error: BaseException) -> None:
        self._pieces.close()
        self._incoming.memory.lose(self._memory)  # the provider may still write there
        problem = ConnectionAbortedError(f"an item of {self._size} bytes could not be read: {error}")
        self._incoming.connection.end(problem)
