"""Handlers of grpcio's synchronous kind: they run in threads, and may block."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from ..grpcio import EOF

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from .context import ServicerContext

__all__ = ["SyncServicerContext", "responses_of", "run_in_thread", "to_iterator"]


class SyncServicerContext:
    """The context of a synchronous handler. It may be used in the handler's thread only."""

    __slots__ = ("_callbacks", "_context", "_loop")

    def __init__(self, context: ServicerContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._callbacks: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)  # all that neither waits nor sends

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with an error now; raises."""
        self._wait(self._context.abort(code, details, trailing_metadata))
        raise AssertionError  # abort has raised

    def abort_with_status(self, status: Any) -> NoReturn:
        """`abort` with a status."""
        self.abort(status.code, status.details, status.trailing_metadata)

    def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Send metadata before the first response: once."""
        self._wait(self._context.send_initial_metadata(initial_metadata))

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Call ``callback`` when the handler has ended."""
        self._callbacks.append(callback)
        return True

    def is_active(self) -> bool:
        """Whether the call still runs."""
        return not self._context.done()

    def run_callbacks(self) -> None:
        """The handler has ended."""
        for callback in self._callbacks:
            callback()


async def run_in_thread(
    behaviour: Callable[[Any, Any], Any], request: Any, context: ServicerContext, loop: Any, pool: Any
) -> Any:
    """Run a handler with one response in the pool; None is the loop's own pool."""
    sync_context = SyncServicerContext(context, loop)
    response = await loop.run_in_executor(pool, behaviour, request, sync_context)
    sync_context.run_callbacks()
    return response


def to_iterator(requests: Any, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """The requests for a thread: each step waits for the loop."""
    while True:
        item = asyncio.run_coroutine_threadsafe(_next(requests), loop).result()
        if item is EOF:
            return
        yield item


async def _next(requests: Any) -> Any:
    return await anext(requests, EOF)


async def responses_of(
    behaviour: Callable[[Any, Any], Any], request: Any, context: ServicerContext, loop: Any, pool: Any
) -> AsyncIterator[Any]:
    """Run a handler with many responses in the pool: one thread, until it has given the last one."""
    sync_context = SyncServicerContext(context, loop)
    responses = behaviour(request, sync_context)
    queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
    abandoned = False

    def work() -> None:
        try:
            for response in responses:
                if abandoned:
                    return
                asyncio.run_coroutine_threadsafe(queue.put(response), loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(queue.put(EOF), loop).result()

    future = loop.run_in_executor(pool, work)
    try:
        while (response := await queue.get()) is not EOF:
            yield response
    finally:
        abandoned = True
        while not queue.empty():
            queue.get_nowait()
    await future
    sync_context.run_callbacks()
