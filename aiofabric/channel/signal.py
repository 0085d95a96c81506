"""Signal: one task waits until a callback says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiofabric.cq.drivers import Waiter
    from aiofabric.cq.source import Source

__all__ = ["LookingSignal", "Signal"]


class Signal(Protocol):
    """What a waiting channel needs of an event; `anyio.Event` is one."""

    def set(self) -> object: ...
    async def wait(self) -> object: ...


class LookingSignal:
    """A signal whose waiter first looks at the completion queue, for as long as that has been paying."""

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
        if not self._set:
            self._source.look()
        if self._set:
            await self._source.checkpoint()
            return
        self._waiter = self._source.driver.create_waiter()
        self._source.prepare()
        await self._waiter
