"""Signal: one task waits until a callback says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiofabric.cq.drivers import Waiter
    from aiofabric.cq.source import Source

__all__ = ["PollingSignal", "Signal"]


class Signal(Protocol):
    """What a waiting channel needs of an event; `anyio.Event` is one."""

    def set(self) -> object: ...
    async def wait(self) -> object: ...


class PollingSignal:
    """A signal of a completion queue, whose waiter has looked at it before."""

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
        if not self._set and source.winded:  # one iteration of the loop, and there may be looked again
            await source.breathe()
            if not self._set:
                source.poll()
        if self._set:
            return
        self._waiter = source.driver.create_waiter()
        source.prepare()
        await self._waiter
