"""Call objects whose interceptors run in a task. When they have made a call, everything goes to that call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from ..callbacks import check_callback
from ..errors import ALREADY_FINISHED, HALF_CLOSED, LOCALLY_CANCELLED, MIXED_STYLES
from ..grpcio import EOF, aio, grpc

if TYPE_CHECKING:
    from .pipe import Pipe

__all__ = [
    "InterceptedCall",
    "InterceptedStreamStreamCall",
    "InterceptedStreamUnaryCall",
    "InterceptedUnaryStreamCall",
    "InterceptedUnaryUnaryCall",
]

Callback = Callable[[Any], object]


class InterceptedCall:
    """A call object before, while and after its interceptors run.

    The task does not hold this object. A stream that the program forgets is cancelled when the task has made it.
    """

    __slots__ = ("__weakref__", "_callbacks", "_loop", "_pipe", "_responses", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._callbacks: list[Callback] | None = None
        self._task: asyncio.Task[Any] = loop.create_task(run)

    def _call(self) -> Any:
        """The call that the interceptors have made; None as long as there is none, or if they have raised."""
        task = self._task
        if not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def _made(self) -> Any:
        """Wait for the call, or raise what the interceptors raised. A waiter that is cancelled cancels nothing."""
        if not self._task.done():
            await asyncio.wait((self._task,))
        return self._task.result()

    def cancel(self) -> bool:
        """Cancel the interceptors, or the call that they have made; False if that has ended."""
        if not self._task.done():
            return self._task.cancel()
        call = self._call()
        return call is not None and call.cancel()

    def cancelled(self) -> bool:
        """Whether the call, or its interceptors, ended with CANCELLED."""
        task = self._task
        if not task.done():
            return False
        if task.cancelled():
            return True
        if (error := task.exception()) is not None:
            return isinstance(error, aio.AioRpcError) and error.code() == grpc.StatusCode.CANCELLED
        return bool(task.result().cancelled())

    def done(self) -> bool:
        """Whether the call has ended, or its interceptors have raised."""
        if not self._task.done():
            return False
        call = self._call()
        return call is None or call.done()

    def add_done_callback(self, callback: Callback) -> None:
        """Call ``callback`` with this object when the call has ended."""
        check_callback(callback)
        if not self._task.done():
            if self._callbacks is None:
                self._callbacks = []
                self._task.add_done_callback(self._interceptors_ended)
            self._callbacks.append(callback)
        elif (call := self._call()) is None:
            callback(self)
        else:
            call.add_done_callback(lambda _: callback(self))

    def _interceptors_ended(self, _: object) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            self.add_done_callback(callback)

    def time_remaining(self) -> float | None:
        """Seconds until the deadline of the call that the interceptors have made; None without one."""
        call = self._call()
        return None if call is None else call.time_remaining()

    async def _ask(self, question: str, cancelled: Any) -> Any:
        """Ask the call, or the error of the interceptors; ``cancelled`` is the answer if they were cancelled."""
        try:
            call = await self._made()
        except aio.AioRpcError as error:
            return getattr(error, question)()
        except asyncio.CancelledError:
            if self._task.cancelled():
                return cancelled
            raise
        return await getattr(call, question)()

    async def initial_metadata(self) -> Any:
        """Wait for the metadata that the server sends first; None if there was no server."""
        return await self._ask("initial_metadata", None)

    async def trailing_metadata(self) -> Any:
        """Wait for the metadata that goes with the status; None if there was no server."""
        return await self._ask("trailing_metadata", None)

    async def code(self) -> Any:
        """Wait for the status code."""
        return await self._ask("code", grpc.StatusCode.CANCELLED)

    async def details(self) -> Any:
        """Wait for the status text."""
        return await self._ask("details", LOCALLY_CANCELLED)

    async def debug_error_string(self) -> Any:
        """Wait for the end."""
        return await self._ask("debug_error_string", "")

    async def wait_for_connection(self) -> None:
        """Wait until the call has a connection; raises the error of a call that has ended with one."""
        await (await self._made()).wait_for_connection()


class _OneResponse(InterceptedCall):
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the response. If the waiting task is cancelled, so is the call."""
        call = yield from self._task.__await__()
        return (yield from call.__await__())


class _ManyResponses(InterceptedCall):
    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Coroutine[Any, Any, Any]) -> None:
        super().__init__(loop, run)
        self._responses: AsyncIterator[Any] | None = None

    async def _iterate(self) -> AsyncIterator[Any]:
        async for response in await self._task:
            yield response

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the responses of the call, or of the interceptor that answered it."""
        if self._responses is None:
            self._responses = self._iterate()
        return self._responses

    async def read(self) -> Any:
        """The next response; EOF after the last one."""
        return await anext(aiter(self), EOF)


class _ManyRequests(InterceptedCall):
    __slots__ = ()

    _pipe: Pipe | None

    async def _writable(self) -> Any:
        """The call, if it takes requests."""
        if self._pipe is None:
            raise aio.UsageError(MIXED_STYLES)
        try:
            call = await self._made()
        except (asyncio.CancelledError, aio.AioRpcError):
            if self._task.done():
                raise asyncio.InvalidStateError(ALREADY_FINISHED) from None
            raise
        if not self._pipe.watched:
            self._pipe.watched = True
            call.add_done_callback(self._pipe.abandon)
        return call

    async def write(self, request: Any) -> None:
        """Send a request, through the interceptors."""
        call = await self._writable()
        assert self._pipe is not None
        if call.done():
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        if self._pipe.closed:
            raise asyncio.InvalidStateError(HALF_CLOSED)
        await self._pipe.put(request)
        if call.done():
            raise asyncio.InvalidStateError(ALREADY_FINISHED)

    async def done_writing(self) -> None:
        """Tell the server that no more requests follow; it can be repeated."""
        await self._writable()
        assert self._pipe is not None
        self._pipe.close()


class InterceptedUnaryUnaryCall(_OneResponse):
    """One request, one response."""

    __slots__ = ()


class InterceptedUnaryStreamCall(_ManyResponses):
    """One request, many responses."""

    __slots__ = ()


class InterceptedStreamUnaryCall(_ManyRequests, _OneResponse):
    """Many requests, one response. ``pipe`` feeds the interceptors with what is written; None with an iterator."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Coroutine[Any, Any, Any], pipe: Pipe | None) -> None:
        super().__init__(loop, run)
        self._pipe = pipe


class InterceptedStreamStreamCall(_ManyRequests, _ManyResponses):
    """Many requests, many responses. ``pipe`` feeds the interceptors with what is written; None with an iterator."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Coroutine[Any, Any, Any], pipe: Pipe | None) -> None:
        super().__init__(loop, run)
        self._pipe = pipe


aio.UnaryUnaryCall.register(InterceptedUnaryUnaryCall)
aio.UnaryStreamCall.register(InterceptedUnaryStreamCall)
aio.StreamUnaryCall.register(InterceptedStreamUnaryCall)
aio.StreamStreamCall.register(InterceptedStreamStreamCall)
