"""Handlers of grpcio's synchronous kind: they run in threads, and may block.

A thread never waits for the loop without an end: once the call is over, the thread is told so, and every wait of its
handler ends. So the pool gets the thread back when the handler returns.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ..callbacks import check_callback, run_callback
from ..grpcio import EOF, aio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

    from .context import ServicerContext

__all__ = ["SyncServicerContext", "responses_of", "run_in_thread", "to_iterator"]

_log = logging.getLogger(__name__)


def _wait_in_thread(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Run ``coroutine`` in the loop and wait for its result, in another thread than the loop's."""
    if asyncio._get_running_loop() is loop:
        coroutine.close()
        raise RuntimeError(
            "The context and the requests of a synchronous handler wait for the event loop, so they cannot be used in "
            "its thread: use them in the thread that runs the handler"
        )
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


class SyncServicerContext:
    """The context of a synchronous handler. It may be used in the handler's thread only."""

    __slots__ = ("_callbacks", "_context", "_lock", "_loop", "over")

    def __init__(self, context: ServicerContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self.over = False
        """Nobody waits for the handler any more: it has ended, or its call was cancelled."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)  # all that neither waits nor sends

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return _wait_in_thread(coroutine, self._loop)

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
        """Call ``callback`` in the loop's thread when the handler has ended, or its call was cancelled; False if that
        was before.
        """
        check_callback(callback)
        with self._lock:
            if not self.over:
                self._callbacks.append(callback)
            return not self.over

    def is_active(self) -> bool:
        """Whether the call still runs."""
        return not self._context.done()

    def end(self) -> None:
        """The handler has ended, or its call was cancelled: call the callbacks."""
        with self._lock:
            self.over = True
        for callback in self._callbacks:
            run_callback(callback, self._loop)

    def report(self, error: BaseException) -> None:
        """Log what the handler raised after its call was cancelled. Errors that only say so are not worth a line."""
        if not isinstance(error, aio.BaseError):
            _log.error("A handler raised %s after its call had ended", type(error).__name__, exc_info=error)


class _End:
    """The end of a handler, with the exception that it raised."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


async def run_in_thread(
    behaviour: Callable[[Any, Any], Any], request: Any, context: ServicerContext, loop: Any, pool: Any
) -> Any:
    """Run a handler with one response in the pool; None is the loop's own pool."""
    sync_context = SyncServicerContext(context, loop)

    def work() -> tuple[Any, BaseException | None]:
        try:
            return behaviour(request, sync_context), None
        except BaseException as error:  # returned, because a future takes no StopIteration
            if sync_context.over:
                sync_context.report(error)
            return None, error

    try:
        response, error = await loop.run_in_executor(pool, work)
    finally:
        sync_context.end()
    if error is not None:
        raise error
    return response


def to_iterator(requests: Any, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """The requests for a thread: each step waits for the loop."""
    while True:
        item = _wait_in_thread(_next(requests), loop)
        if item is EOF:
            return
        yield item


async def _next(requests: Any) -> Any:
    return await anext(requests, EOF)


async def responses_of(
    behaviour: Callable[[Any, Any], Any], request: Any, context: ServicerContext, loop: Any, pool: Any
) -> AsyncGenerator[Any, None]:
    """Run a handler with many responses in the pool: one thread, until it has given the last one.

    Close the iterator if the call ends before.
    """
    sync_context = SyncServicerContext(context, loop)
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    room = threading.Semaphore()  # for one response that the loop has not taken

    def work() -> None:
        end = _End(None)
        try:
            # Here, because a plain function may wait for the loop before it returns its iterator.
            responses = behaviour(request, sync_context)
            for response in responses:
                room.acquire()
                if sync_context.over:
                    if (close := getattr(responses, "close", None)) is not None:
                        close()
                    break
                loop.call_soon_threadsafe(arrived.put_nowait, response)
        except BaseException as error:
            if sync_context.over:
                sync_context.report(error)
            end = _End(error)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(arrived.put_nowait, end)

    running = loop.run_in_executor(pool, work)
    try:
        while type(response := await arrived.get()) is not _End:
            room.release()
            yield response
    finally:
        sync_context.end()
        room.release()
        running.cancel()  # it may not have begun
    if response.error is not None:
        raise response.error
