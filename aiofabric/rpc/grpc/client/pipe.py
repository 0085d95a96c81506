"""Pipe: what a program writes, as an iterator of requests that interceptors can wrap."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import asyncio

__all__ = ["Pipe"]

_ROOM = 1


class Pipe:
    """An asynchronous iterator with room for one request. Its other end is `put`, and then `close`."""

    __slots__ = ("_items", "_loop", "_reader", "_writers", "abandoned", "closed", "watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self.closed = False
        """No more requests follow."""
        self.abandoned = False
        """The call has ended: no request is taken any more."""
        self.watched = False
        """Whether the end of the call abandons the pipe."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            if self.closed or self.abandoned:
                raise StopAsyncIteration
            self._reader = self._loop.create_future()
            await self._reader
        item = self._items.popleft()
        while self._writers and not self._wake(self._writers.popleft()):
            pass  # that writer was cancelled
        return item

    async def put(self, item: Any) -> None:
        """Wait for room, and hand over ``item``; return without doing so if the call has ended."""
        while len(self._items) >= _ROOM and not self.abandoned:
            writer = self._loop.create_future()
            self._writers.append(writer)
            await writer
        if not self.abandoned:
            self._items.append(item)
            self._wake(self._reader)

    def close(self) -> None:
        """End the iterator after the requests that were put."""
        self.closed = True
        self._wake(self._reader)

    def abandon(self, _: object = None) -> None:
        """The call has ended: wake both sides."""
        self.abandoned = True
        self._wake(self._reader)
        while self._writers:
            self._wake(self._writers.popleft())

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> bool:
        if waiter is None or waiter.done():
            return False
        waiter.set_result(None)
        return True
