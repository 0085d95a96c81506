"""Signal: one task waits until a callback sets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiofabric.cq.loops.drivers import Waiter
    from aiofabric.cq.source.source import Source

__all__ = ["PollingSignal", "Signal"]


class Signal(Protocol):
    """The methods of an event that a waiting channel needs; `anyio.Event` has them."""

    def set(self) -> object: ...
    async def wait(self) -> object: ...


class PollingSignal:
    """A signal for waiting on a completion queue that was polled before."""

    __slots__ = ("_set", "_source", "_waiter")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._set = False
        self._waiter: Waiter | None = None

    def set(self) -> None:
        self._set = True
        if self._waiter is not None and not self._waiter.done():
            self._source.woke()
            self._waiter.set_result(None)

    async def wait(self) -> None:
        source = self._source
        if not self._set and source.must_iterate:  # after one iteration of the loop, polling is allowed again
            await source.yield_to_loop()
            if not self._set:
                source.poll()
        if self._set:
            return
        self._waiter = source.driver.create_waiter()
        source.prepare()
        await self._waiter
