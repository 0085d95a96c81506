"""CallWaiter: the one task that waits for an event of a call, on any loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cq.drivers import Driver, Waiter
    from ...cq.source import Source

__all__ = ["CallWaiter"]


class CallWaiter:
    """Waits until `wake`. The queue is polled before, as long as that pays; then an answer needs no loop iteration."""

    __slots__ = ("_source", "_waiter")

    def __init__(self) -> None:
        self._waiter: Waiter | None = None
        self._source: Source | None = None

    def wake(self) -> None:
        """Let the waiting task go on; nothing if none waits."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if self._source is not None:
                self._source.woke()
            waiter.set_result(None)

    async def wait(self, driver: Driver, source: Source | None) -> None:
        """Wait for `wake`; may return earlier."""
        waiter: Any = driver.create_waiter()
        self._waiter, self._source = waiter, source
        try:
            if source is not None:
                if source.winded:  # after one iteration of the loop, polling is allowed again
                    await source.breathe()
                if not waiter.done():
                    source.poll()
                if waiter.done():
                    if source.breathless:
                        await source.checkpoint()
                        source.breathed()
                    return
                source.prepare()
            await waiter
        finally:
            self._waiter = None
