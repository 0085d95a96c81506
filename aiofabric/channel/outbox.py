"""Outbox: posted buffers that wait to be sent, cut into frames as credits allow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiofabric.channel.base import Done

__all__ = ["Outbox", "Posted"]


class Posted:
    """One posted buffer: ``rest`` waits for credits, ``frames`` frames are with the provider."""

    __slots__ = ("done", "frames", "lent", "rest")

    def __init__(self, data: memoryview, done: Done) -> None:
        self.rest = data
        self.lent = type(data.obj) is not bytes  # bytes never change: free as soon as the provider has them
        self.done = done
        self.frames = 0

    def sent(self, error: BaseException | None) -> None:
        """The provider has completed a frame; the last one, or the first failure, is reported."""
        self.frames -= 1
        if error is not None:
            self.fail(error)
        elif not self.frames and not self.rest:
            self.over()

    def over(self) -> None:
        self._report(None)

    def fail(self, error: BaseException) -> None:
        self.rest = self.rest[:0]
        self._report(error)

    def _report(self, error: BaseException | None) -> None:
        done, self.done = self.done, _ignore
        done(error)


def _ignore(_: BaseException | None) -> None:
    pass


class Outbox:
    """Posted buffers in order."""

    __slots__ = ("_over", "_waiting", "size")

    def __init__(self) -> None:
        self.size = 0  # bytes that wait
        self._waiting: deque[Posted] = deque()
        self._over: list[Posted] = []  # reported as free when the latest frame was handed over

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, posted: Posted) -> None:
        self._waiting.append(posted)
        self.size += len(posted.rest)

    def next_frame(self, payload: int) -> tuple[memoryview, Posted | None]:
        """The data of the next frame, at most ``payload`` bytes; call `report_sent` when it was handed over.

        A large buffer is cut without a copy. If it is lent, its `Posted` is returned, too, and must be notified when
        the frame has left. Adjacent small buffers are joined into one frame.
        """
        first = self._waiting[0]
        if len(self._waiting) == 1 or len(first.rest) + len(self._waiting[1].rest) > payload:
            piece = first.rest[:payload]
            first.rest = first.rest[payload:]
            self.size -= len(piece)
            if not first.rest:
                self._waiting.popleft()
            if first.lent:
                first.frames += 1
                return piece, first
            if not first.rest:
                self._over.append(first)
            return piece, None
        joined = bytearray()
        while self._waiting and len(joined) + len(self._waiting[0].rest) <= payload:
            each = self._waiting.popleft()
            joined += each.rest
            self.size -= len(each.rest)
            each.rest = each.rest[:0]
            if not each.frames:
                self._over.append(each)
        return memoryview(joined), None

    def report_sent(self) -> None:
        """Report the buffers of a frame as free, after the frame was handed over. Call this only then, because the
        callback may send at once.
        """
        over, self._over = self._over, []
        for each in over:
            each.over()

    def fail(self, error: BaseException) -> None:
        """No more data can be sent."""
        self.size = 0
        while self._waiting:
            self._waiting.popleft().fail(error)
