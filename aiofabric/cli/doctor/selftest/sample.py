"""The median time of an operation."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiofabric.cli.pingpong.pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ROUNDS", "median_of", "median_trip"]

ROUNDS = 200
_LONG_ENOUGH = 0.05  # seconds for each size
_FEWEST = 3


async def median_trip(size: int, trip: Callable[[bytes], Awaitable[Any]]) -> float:
    """The median time of a round trip in microseconds, after a first one that may include connecting."""
    pattern = Pattern(size)
    times: list[float] = []
    while len(times) < _FEWEST or (len(times) < ROUNDS and sum(times[1:]) < _LONG_ENOUGH):
        message = bytes(pattern.next(size))  # bytes are compared faster than views
        start = perf_counter()
        answer = await trip(message)
        times.append(perf_counter() - start)
        if answer != message:
            raise ValueError(f"{size} bytes came back with other contents in round {len(times)}")
    return round(statistics.median(times[1:]) * 1e6, 1)


async def median_of(size: int, operation: Callable[[], Awaitable[Any]]) -> float:
    """The median time of an operation whose contents are checked elsewhere."""

    async def same(message: bytes) -> bytes:
        await operation()
        return message

    return await median_trip(size, same)
