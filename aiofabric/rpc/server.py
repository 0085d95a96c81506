"""Server: handlers of methods, for messages that are bytes."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio import EndOfStream, get_cancelled_exc_class

from .messages import message_bytes, method_name
from .protocol.connection import DEFAULT_LIMITS, Limits
from .protocol.metadata import check_metadata
from .protocol.server_call import ServerCall
from .runtime.server import ServerCore
from .runtime.waiting import CallWaiter
from .status import RpcError, StatusCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
    from types import TracebackType

    from ..address import Address
    from ..cm.listener import Listener
    from .protocol.metadata import Metadata
    from .runtime.tasks import TaskHandle

__all__ = ["Handler", "Server", "ServerContext", "stream_stream", "stream_unary", "unary_stream", "unary_unary"]

_log = logging.getLogger("aiofabric.rpc")


Proceed = Callable[[], Awaitable[bytes | None]]
Interceptor = Callable[["ServerContext", Proceed], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that handles a method, and the kind of its call."""

    function: Callable[..., Any]
    streams_requests: bool
    streams_replies: bool


def unary_unary(
    function: Callable[[bytes, ServerContext], Awaitable[bytes]] | Callable[[bytes, ServerContext], bytes],
) -> Handler:
    """``async def function(request, context) -> reply``. A plain function runs in a thread."""
    return Handler(function, False, False)


def unary_stream(function: Callable[[bytes, ServerContext], AsyncIterator[bytes]]) -> Handler:
    """``async def function(request, context)`` that yields replies."""
    return Handler(function, False, True)


def stream_unary(function: Callable[[ServerContext], Awaitable[bytes]]) -> Handler:
    """``async def function(context) -> reply``; the context is an async iterator of the requests."""
    return Handler(function, True, False)


def stream_stream(function: Callable[[ServerContext], AsyncIterator[bytes]]) -> Handler:
    """``async def function(context)`` that yields replies; the context is an async iterator of the requests."""
    return Handler(function, True, True)


class ServerContext(ServerCall):
    """One call, as its handler sees it."""

    server: Server
    _inbox: deque[bytes] | None = None
    _receiver: CallWaiter | None = None
    _sender: CallWaiter | None = None
    _task: TaskHandle | None = None
    trailing_metadata: Metadata = ()

    # -- events of the protocol

    def started(self, message: bytes | None) -> None:
        server = self.server
        handler = server.handlers.get(self.method)
        if handler is None:
            self.finish(StatusCode.UNIMPLEMENTED, f"This server has no method {self.method}")
            self.release()
            return
        if self.deadline is not None:
            server.core.deadlines.add(self)
        if handler.streams_requests:
            self._inbox = deque()
            self._receiver = CallWaiter()
            if message is not None:
                self._inbox.append(message)
            self._task = server.core.tasks.start(self._run(handler, None), on_end=self.release)
        elif message is not None:
            self._task = server.core.tasks.start(self._run(handler, message), on_end=self.release)
        elif self.received_end:
            self.end_received()

    def message_received(self, message: bytes) -> None:
        if self._inbox is not None:
            self._inbox.append(message)
            self._wake()
        elif self._task is None:
            self.consumed()
            handler = self.server.handlers[self.method]
            self._task = self.server.core.tasks.start(self._run(handler, message), on_end=self.release)
        else:
            self.cut(StatusCode.UNIMPLEMENTED, "The method takes one request, and the client sent more")

    def end_received(self) -> None:
        if self._inbox is not None:
            self._wake()
        elif self._task is None:
            self.finish(StatusCode.UNIMPLEMENTED, "The method takes one request, and the client sent none")
            self.release()

    def writable(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def cancelled(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self.release()

    def expired(self) -> None:
        """The deadline has passed."""
        self.cut(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _wake(self) -> None:
        if self._receiver is not None:
            self._receiver.wake()

    # -- the handler's side

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())

    @property
    def peer(self) -> Any:
        """The address of the client."""
        return self.connection.link.endpoint.peer_address

    async def recv(self) -> bytes:
        """The next request. Raises: EndOfStream after the last one. Cancelling loses none."""
        if self._inbox is None or self._receiver is None:
            raise RuntimeError("this method takes one request; its handler has it as an argument")
        while not self._inbox:
            if self.received_end or self.over:
                raise EndOfStream
            await self._receiver.wait(self.server.core.driver, self.connection.link)
        message = self._inbox.popleft()
        self.consumed()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except EndOfStream:
            raise StopAsyncIteration from None

    def send_headers(self, metadata: Metadata) -> None:
        """Send the initial metadata: once, before the first message. Raises TypeError or ValueError for bad pairs."""
        super().send_headers(check_metadata(metadata))

    async def send(self, message: bytes) -> None:
        """Send one reply of a stream. Returns when the next one can be sent."""
        if not self.post(message_bytes(message)):
            await self._until_writable()

    async def _until_writable(self) -> None:
        if self._sender is None:
            self._sender = CallWaiter()
        while self._queue is not None and not self.over:
            await self._sender.wait(self.server.core.driver, self.connection.link)

    # -- running the handler

    async def _run(self, handler: Handler, message: bytes | None) -> None:
        async def handle() -> bytes | None:
            return await self._handle(handler, message)

        proceed: Proceed = handle
        for interceptor in reversed(self.server.interceptors):
            proceed = partial(interceptor, self, proceed)
        try:
            try:
                reply = await proceed()
                message = None if handler.streams_replies else message_bytes(reply)
                self.finish(metadata=check_metadata(self.trailing_metadata), message=message)
            except RpcError as error:
                self.finish(int(error.code) or 2, error.details, check_metadata(error.trailing_metadata))
        except get_cancelled_exc_class():
            if not self.over:
                self.finish(StatusCode.CANCELLED, "The handler was cancelled")
            raise
        except Exception as error:
            self.finish(StatusCode.UNKNOWN, "The handler failed")
            _log.error("the handler of %s failed", self.method, exc_info=error)

    async def _handle(self, handler: Handler, message: bytes | None) -> bytes | None:
        function = handler.function
        arguments = (self,) if handler.streams_requests else (message, self)
        if handler.streams_replies:
            replies: AsyncGenerator[bytes, None] = function(*arguments)
            async with aclosing(replies):
                await self._send_all(replies)
            return None
        if inspect.iscoroutinefunction(function):
            reply: bytes = await function(*arguments)
        else:
            reply = await anyio.to_thread.run_sync(partial(function, *arguments), limiter=self.server.limiter)
        return reply

    async def _send_all(self, replies: AsyncIterator[bytes]) -> None:
        count = 0
        async for reply in replies:
            if not self.post(message_bytes(reply)):
                await self._until_writable()
            count += 1
            if not count & 63:  # a generator that never waits must let other tasks run
                await anyio.lowlevel.checkpoint()


class Server:
    """Serves methods. ``async with Server(handlers) as server``; then `listen`. The end of the block stops it.

    Args:
        handlers: handlers by method, ``/service/method``.
        limits: what the server accepts.
        max_running: handlers at the same time; further calls are refused with RESOURCE_EXHAUSTED.
        interceptors: ``async def interceptor(context, proceed)`` around each handler, the first outermost. ``await
            proceed()`` runs the rest and returns the reply, which is None for handlers that stream replies. An
            interceptor may raise `RpcError`, before or after that.
        limiter: bounds the threads of handlers that are plain functions; by default anyio's.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler] | Iterable[tuple[str, Handler]],
        *,
        limits: Limits = DEFAULT_LIMITS,
        max_running: int | None = None,
        interceptors: Sequence[Interceptor] = (),
        limiter: anyio.CapacityLimiter | None = None,
    ) -> None:
        self.handlers = dict(handlers)
        for method, handler in self.handlers.items():
            method_name(method)
            if not isinstance(handler, Handler):
                raise TypeError(
                    f"The handler of {method!r} must be made by unary_unary(), unary_stream(), stream_unary() or "
                    f"stream_stream(), not {handler!r}"
                )
        self.interceptors = tuple(interceptors)
        self.limits = limits
        self.max_running = max_running
        self.limiter = limiter
        self._core: ServerCore | None = None

    @property
    def core(self) -> ServerCore:
        """The runtime's server; RuntimeError before ``async with``."""
        if self._core is None:
            raise RuntimeError("Enter the server first: async with Server(handlers) as server")
        return self._core

    async def __aenter__(self) -> Self:
        admits = None if self.max_running is None else self._admits
        self._core = ServerCore(self._new_call, self.limits, admits=admits)
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop(None)

    async def listen(
        self, node: str | Address | None = None, service: str | int | None = None, **options: Any
    ) -> Listener:
        """Listen at one more address; arguments as for `aiofabric.listen`."""
        return await self.core.listen(node, service, **options)

    async def stop(self, grace: float | None = None) -> None:
        """Stop: no new calls; the running ones may take ``grace`` seconds, then they end with UNAVAILABLE."""
        await self.core.stop(grace)

    def _new_call(self) -> ServerContext:
        call = ServerContext()
        call.server = self
        return call

    def _admits(self) -> str | None:
        if self.max_running is not None and len(self.core.tasks) >= self.max_running:
            return "Concurrent RPC limit exceeded"
        return None
