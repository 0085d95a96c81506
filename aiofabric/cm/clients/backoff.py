"""Backoff: the delays between attempts to connect, as gRPC's connection backoff specification has them."""

from __future__ import annotations

from random import uniform

__all__ = ["Backoff"]


class Backoff:
    """1 s, then each 1.6 times the one before, at most 120 s; each is varied by 20 %. All can be set, in seconds."""

    __slots__ = ("_next", "first", "jitter", "longest", "multiplier")

    def __init__(
        self, first: float = 1.0, multiplier: float = 1.6, longest: float = 120.0, *, jitter: float = 0.2
    ) -> None:
        self.first, self.multiplier, self.longest, self.jitter = first, multiplier, longest, jitter
        self._next = first

    def next(self) -> float:
        """The next delay."""
        delay = min(self._next, self.longest)
        self._next = min(self._next * self.multiplier, self.longest)
        return delay * uniform(1 - self.jitter, 1 + self.jitter)

    def reset(self) -> None:
        """A connection was made: begin with the shortest delay again."""
        self._next = self.first
