"""ServerContext: the interface of one call for its handler; and the code that runs the handler."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from anyio import BusyResourceError, EndOfStream, get_cancelled_exc_class

from ..cq.loops.bursts import Burst
from .messages import MessageIterator, message_bytes
from .protocol.metadata import check_metadata
from .protocol.server_call import ServerCall
from .protocol.status import StatusCode
from .runtime.waiting import CallWaiter
from .status import RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from ..address import Address
    from .protocol.metadata import Metadata
    from .runtime.server import ServerCore
    from .runtime.tasks import TaskHandle

__all__ = ["Handler", "Interceptor", "ServerContext", "Service", "is_kind"]

_log = logging.getLogger("aiofabric.rpc")


Proceed = Callable[[], Awaitable[bytes | None]]
Interceptor = Callable[["ServerContext", Proceed], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that handles a method, and the kind of its call. Raises TypeError for a function of another kind."""

    function: Callable[..., Any]
    streams_requests: bool
    streams_replies: bool
    in_thread: bool = field(init=False, repr=False, compare=False)
    """Whether the function is a plain one, which runs in a thread."""

    def __post_init__(self) -> None:
        function = self.function
        if not callable(function):
            raise TypeError(f"A handler must be a function, not {function!r}")
        is_async = is_kind(inspect.iscoroutinefunction, function)
        if self.streams_replies:
            if is_async or is_kind(inspect.isgeneratorfunction, function):
                raise TypeError(
                    f"The handler {function!r} must yield its replies: write it as `async def` with `yield`"
                )
        elif is_kind(inspect.isasyncgenfunction, function) or is_kind(inspect.isgeneratorfunction, function):
            raise TypeError(f"The handler {function!r} has one reply, so it must return it instead of yielding")
        elif self.streams_requests and not is_async:
            raise TypeError(f"The handler {function!r} must be `async def`: a plain function cannot await the requests")
        object.__setattr__(self, "in_thread", not (is_async or self.streams_replies))


def is_kind(kind: Callable[[Any], bool], function: Any) -> bool:
    """Whether a function, or an object that is called like one, is of a kind of `inspect`."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - its kind is asked, not whether


class ServerContext(MessageIterator):
    """One call, as its handler sees it."""

    __slots__ = ("__weakref__", "_call")

    _call: RunningCall

    def __init__(self, call: RunningCall) -> None:
        self._call = call

    @property
    def method(self) -> str:
        """The name of the method, such as ``/service/method``."""
        return self._call.method

    @property
    def metadata(self) -> Metadata:
        """The metadata that the client sent."""
        return self._call.metadata

    @property
    def trailing_metadata(self) -> Metadata:
        """The metadata that goes with the status. Set it before the handler ends."""
        return self._call.trailing_metadata

    @trailing_metadata.setter
    def trailing_metadata(self, metadata: Metadata) -> None:
        self._call.trailing_metadata = metadata

    @property
    def peer(self) -> Address | None:
        """The address of the client, if the provider knows it."""
        address: Address | None = self._call.connection.transport.endpoint.peer_address
        return address

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        deadline = self._call.deadline
        return None if deadline is None else max(0.0, deadline - monotonic())

    async def recv(self) -> bytes:
        """The next request. Cancelling loses none.

        Raises: EndOfStream after the last one; BusyResourceError if another task waits in `recv`.
        """
        call = self._call
        inbox, receiver = call.inbox, call.receiver
        if inbox is None or receiver is None:
            raise RuntimeError(
                "this method takes one request, which the handler gets as an argument: do not call recv()"
            )
        while not inbox:
            if call.received_end or call.over:
                raise EndOfStream
            if receiver.busy:
                raise BusyResourceError("receiving from")
            call.await_message()
            try:
                await receiver.wait(call.service.core.driver, call.connection.transport)
            except BaseException:
                call.stop_awaiting()
                raise
        message = inbox.popleft()
        call.consumed()
        return message

    def send_headers(self, metadata: Iterable[Sequence[str | bytes]]) -> None:
        """Send the initial metadata: once, before the first message.

        Raises: TypeError or ValueError for bad pairs; RuntimeError if it was sent already, or a message was.
        """
        call = self._call
        pairs = check_metadata(metadata)
        if call.sent_headers and not call.over:
            raise RuntimeError("The initial metadata was sent already: it goes once, before the first message")
        call.send_headers(pairs)

    async def send(self, message: bytes) -> None:
        """Send one reply of a stream. Returns when the next one can be sent."""
        call = self._call
        if not call.post(message_bytes(message)):
            await call.until_writable()


class RunningCall(ServerCall):
    """One call of a server, and its handler's task. The handler has its `ServerContext`."""

    service: Service
    inbox: deque[bytes] | None = None
    """Requests that the handler has not taken; None if the method takes one."""
    receiver: CallWaiter | None = None
    trailing_metadata: Metadata = ()
    _senders: list[CallWaiter] | None = None
    _task: TaskHandle | None = None

    # -- events of the protocol

    def started(self, message: bytes | None) -> None:
        service = self.service
        handler = service.handlers.get(self.method)
        if handler is None:
            self.finish(StatusCode.UNIMPLEMENTED, f"This server has no method {self.method}")
            self.release()
            return
        core = service.core
        if self.deadline is not None:
            core.deadlines.add(self)
        if handler.streams_requests:
            self.inbox = deque()
            self.receiver = CallWaiter()
            if message is not None:
                self.inbox.append(message)
            self._task = core.tasks.start(self._run(handler, None), on_end=self.release, name=self.method)
        elif message is not None:
            self._task = core.tasks.start(self._run(handler, message), on_end=self.release, name=self.method)
        elif self.received_end:
            self.end_received()

    def message_received(self, message: bytes) -> None:
        if self.inbox is not None:
            self.inbox.append(message)
            self._wake()
        elif self._task is None:
            self.consumed()
            handler, tasks = self.service.handlers[self.method], self.service.core.tasks
            self._task = tasks.start(self._run(handler, message), on_end=self.release, name=self.method)
        else:
            self.cut(StatusCode.UNIMPLEMENTED, "The method takes one request, and the client sent more")

    def awaited(self) -> bool:
        return self.receiver is None or self.receiver.busy

    def end_received(self) -> None:
        if self.inbox is not None:
            self._wake()
        elif self._task is None:
            self.finish(StatusCode.UNIMPLEMENTED, "The method takes one request, and the client sent none")
            self.release()

    def writable(self) -> None:
        for sender in self._senders or ():
            sender.wake()

    def cancelled(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self.release()

    def expired(self) -> None:
        """The deadline has passed."""
        self.cut(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _wake(self) -> None:
        if self.receiver is not None:
            self.receiver.wake()

    async def until_writable(self) -> bool:
        """Wait until all posted messages have left, or the call is over; return False if that was so at once."""
        waited = False
        sender = CallWaiter()
        if self._senders is None:
            self._senders = []
        self._senders.append(sender)
        try:
            while self._queue is not None and not self.over:
                waited = True
                await sender.wait(self.service.core.driver, self.connection.transport)
        finally:
            self._senders.remove(sender)
        return waited

    # -- running the handler

    async def _run(self, handler: Handler, message: bytes | None) -> None:
        context = ServerContext(self)
        interceptors = self.service.interceptors
        try:
            try:
                if interceptors:
                    reply = await self._intercepted(interceptors, handler, message, context)
                else:
                    reply = await self._handle(handler, message, context)
                final = None if handler.streams_replies else message_bytes(reply)
                self.finish(metadata=check_metadata(self.trailing_metadata), message=final)
            except RpcError as error:
                self.finish(int(error.code) or 2, error.details, check_metadata(error.trailing_metadata))
        except get_cancelled_exc_class():
            if not self.over:
                self.finish(StatusCode.CANCELLED, "The handler was cancelled")
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not self.service.core.driver.running():
                raise
            self.finish(StatusCode.UNKNOWN, "The handler failed")
            _log.error("the handler of %s failed", self.method, exc_info=error)
            if isinstance(
                error, KeyboardInterrupt
            ):  # not SystemExit: a handler does not decide on the end of its server
                raise

    async def _intercepted(
        self, interceptors: Sequence[Interceptor], handler: Handler, message: bytes | None, context: ServerContext
    ) -> bytes | None:
        proceed: Proceed = partial(self._handle, handler, message, context)
        for interceptor in reversed(interceptors):
            proceed = partial(interceptor, context, proceed)
        return await proceed()

    async def _handle(self, handler: Handler, message: bytes | None, context: ServerContext) -> bytes | None:
        function = handler.function
        arguments = (context,) if handler.streams_requests else (message, context)
        if handler.streams_replies:
            replies: Any = function(*arguments)
            try:
                await self._send_all(replies)
            finally:
                if (aclose := getattr(replies, "aclose", None)) is not None:
                    await aclose()
            return None
        if handler.in_thread:
            reply = await anyio.to_thread.run_sync(partial(function, *arguments), limiter=self.service.limiter)
        else:
            reply = await function(*arguments)
        return reply  # type: ignore[no-any-return]  # checked by `message_bytes`

    async def _send_all(self, replies: AsyncIterator[bytes]) -> None:
        burst = Burst()
        async for reply in replies:
            if not self.post(message_bytes(reply)) and await self.until_writable():
                burst.waited()
            elif burst.ended():  # a generator that never waits must let other tasks run
                await anyio.lowlevel.checkpoint()


class Service:
    """The part of a server that its calls need. It does not refer to the server, so a dropped server is collected."""

    core: ServerCore

    def __init__(
        self,
        handlers: dict[str, Handler],
        interceptors: tuple[Interceptor, ...],
        max_running: int | None,
        limiter: anyio.CapacityLimiter | None,
    ) -> None:
        self.handlers = handlers
        self.interceptors = interceptors
        self.max_running = max_running
        self.limiter = limiter

    def new_call(self) -> RunningCall:
        call = RunningCall()
        call.service = self
        return call

    def admits(self) -> str | None:
        """None, or why a new call is refused."""
        if self.max_running is not None and len(self.core.tasks) >= self.max_running:
            return "Concurrent RPC limit exceeded"
        return None
