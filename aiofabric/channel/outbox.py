"""What a channel still has to send: posted buffers, cut into frames as credits allow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiofabric.channel.base import Done

__all__ = ["Outbox", "Posted"]


class Posted:
    """One posted buffer: ``rest`` waits for credits, ``frames`` are with the provider."""

    __slots__ = ("done", "frames", "rest")

    def __init__(self, data: memoryview, done: Done) -> None:
        self.rest = data
        self.done = done
        self.frames = 0

    def sent(self, error: BaseException | None) -> None:
        """The provider is done with a frame; the last one, or the first that failed, is told."""
        self.frames -= 1
        if error is not None:
            self.fail(error)
        elif not self.frames and not self.rest:
            self._tell(None)

    def fail(self, error: BaseException) -> None:
        self.rest = self.rest[:0]
        self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        done, self.done = self.done, _nobody
        done(error)


def _nobody(_: BaseException | None) -> None:
    pass


class Outbox:
    """Posted buffers in order."""

    __slots__ = ("_waiting", "size")

    def __init__(self) -> None:
        self.size = 0  # bytes that wait
        self._waiting: deque[Posted] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, posted: Posted) -> None:
        self._waiting.append(posted)
        self.size += len(posted.rest)

    def next_frame(self, payload: int) -> tuple[memoryview, Posted | None]:
        """What the next frame carries, at most ``payload`` bytes.

        A large buffer is cut where it lies and its `Posted` comes along; it is told when the frame has left.
        Small neighbours are joined instead, one frame for many writes, and told right away.
        """
        first = self._waiting[0]
        if len(self._waiting) == 1 or len(first.rest) + len(self._waiting[1].rest) > payload:
            piece = first.rest[:payload]
            first.rest = first.rest[payload:]
            first.frames += 1
            self.size -= len(piece)
            if not first.rest:
                self._waiting.popleft()
            return piece, first
        joined = bytearray()
        while self._waiting and len(joined) + len(self._waiting[0].rest) <= payload:
            each = self._waiting.popleft()
            joined += each.rest
            self.size -= len(each.rest)
            each.rest = each.rest[:0]
            if not each.frames:
                each._tell(None)
        return memoryview(joined), None

    def fail(self, error: BaseException) -> None:
        """Nothing more goes out."""
        self.size = 0
        while self._waiting:
            self._waiting.popleft().fail(error)
