"""The measurements. The client announces each one in a few bytes, then both sides do it."""

from __future__ import annotations

import statistics
import struct
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["WORKS", "Side", "Work", "serve"]

_NEXT = struct.Struct("!BII")  # kind, bytes of a message, number of messages
_ECHO, _SINK = range(2)
_DONE = b"!"


class Side(Protocol):
    """One end of a connection that carries messages of agreed length."""

    async def send(self, message: Any, /) -> None: ...
    async def receive(self, size: int, /) -> Any: ...


async def serve(side: Side) -> None:
    """Run the announced measurements until the client disconnects."""
    while True:
        what, size, count = _NEXT.unpack(await side.receive(_NEXT.size))
        for _ in range(count):
            message = await side.receive(size)
            if what == _ECHO:
                await side.send(message)
        if what == _SINK:
            await side.send(_DONE)


async def _round_trips(side: Side, size: int, count: int) -> float:
    """The median round trip in seconds."""
    message = bytes(size)
    await side.send(_NEXT.pack(_ECHO, size, count))
    times = []
    for _ in range(count):
        start = perf_counter()
        await side.send(message)
        await side.receive(size)
        times.append(perf_counter() - start)
    return statistics.median(times)


async def _one_way(side: Side, size: int, count: int) -> float:
    """Messages per second, until the last one has arrived."""
    message = bytes(size)
    await side.send(_NEXT.pack(_SINK, size, count))
    start = perf_counter()
    for _ in range(count):
        await side.send(message)
    await side.receive(len(_DONE))
    return count / (perf_counter() - start)


@dataclass(frozen=True)
class Work:
    """One column of the table."""

    title: str
    size: int
    batch: int
    measure: Callable[[Side, int, int], Awaitable[float]]
    words: Callable[[float], str]
    best: Callable[[list[float]], float] = max

    def speed(self, result: float) -> float:
        """A number that is larger when it is faster."""
        return 1 / result if self.best is min else result

    async def repeat(self, side: Side, seconds: float) -> float:
        """The best batch within the time: other programs disturbed it least."""
        results: list[float] = []
        end = perf_counter() + seconds
        while not results or perf_counter() < end:
            results.append(await self.measure(side, self.size, self.batch))
        return self.best(results)


WORKS = (
    Work("64 B ROUND TRIP", 64, 200, _round_trips, lambda seconds: f"{seconds * 1e6:.1f} us", min),
    Work("64 B ONE WAY", 64, 2000, _one_way, lambda rate: f"{rate / 1000:.0f} k/s"),
    Work("1 MIB ONE WAY", 1 << 20, 32, _one_way, lambda rate: f"{rate * (1 << 20) / 1e9:.2f} GB/s"),
)
