"""CallWaiter: the one task that waits for an event of a call, on any loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cq.loops.drivers import Driver, Waiter
    from .transport import RpcTransport

__all__ = ["CallWaiter"]


class CallWaiter:
    """Waits until `wake`. The queue is polled before, as long as that pays; then an answer needs no loop iteration."""

    __slots__ = ("_transport", "_waiter")

    def __init__(self) -> None:
        self._waiter: Waiter | None = None
        self._transport: RpcTransport | None = None

    @property
    def busy(self) -> bool:
        """Whether a task waits."""
        return self._waiter is not None

    def wake(self) -> None:
        """Wake the waiting task, if there is one."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if self._transport is not None:
                self._transport.source.woke()
            waiter.set_result(None)

    async def wait(self, driver: Driver, transport: RpcTransport | None) -> None:
        """Wait for `wake`; may return earlier.

        ``transport`` is None while the call has no connection.
        """
        waiter: Any = driver.create_waiter()
        self._waiter, self._transport = waiter, transport
        try:
            if transport is not None:
                source = transport.source
                if source.must_iterate:  # after one iteration of the loop, polling is allowed again
                    await source.yield_to_loop()
                if not waiter.done():
                    transport.poll()
                if waiter.done():
                    if source.must_yield:
                        await source.checkpoint()
                        source.loop_iterated()
                    return
                source.prepare()
            await waiter
        finally:
            self._waiter = None
