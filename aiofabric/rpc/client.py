"""Channel and Call: the client's interface of the runtime, for messages that are bytes."""

from __future__ import annotations

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from anyio import BrokenResourceError, BusyResourceError, ClosedResourceError, EndOfStream

from ..cm.clients.backoff import Backoff
from ..resource import leave_block
from .channel.call import ChannelCall
from .channel.channel import ChannelCore
from .messages import MessageIterator, check_grace, message_bytes, method_name
from .protocol.connection import DEFAULT_LIMITS, Limits
from .protocol.metadata import Metadata, check_metadata
from .protocol.status import StatusCode
from .runtime.waiting import CallWaiter
from .status import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from ..cm.clients.targets import Resolver
    from .channel.policies import Policy
    from .channel.service_config import ServiceConfig
    from .channel.subchannel import Connectivity
    from .protocol.calls import Status

__all__ = ["Call", "Channel"]


class Call(MessageIterator):
    """A call under way; made by `Channel.call`. One task receives at a time.

    ``async with call`` cancels the call at the end of the block, unless it is over by then, and drops unread messages.
    Without it, unread messages count against `Limits.memory` until they are received. A call that its deadline or
    `cancel` ends drops them at once.
    """

    __slots__ = ("__weakref__", "_call", "_channel", "_half_closed")

    _call: StreamCall

    def __init__(self, call: StreamCall, channel: Channel | None = None) -> None:
        if not isinstance(call, StreamCall):
            raise TypeError(f"a Call is made by the method call() of a Channel, not of {call!r:.100}")
        self._call = call
        self._channel = channel  # it closes when the program has neither it nor a call
        self._half_closed = False

    @property
    def over(self) -> bool:
        """Whether the call has ended. Messages that were not received stay."""
        return self._call.over

    async def send(self, message: bytes) -> None:
        """Send one message. Returns when the next one can be sent: the server's credits delay it.

        Cancelling does not take the message back.

        Raises: RpcError if the call has ended with an error; BrokenResourceError if the server ended it with OK before
            the message had left; ClosedResourceError after `half_close`.
        """
        call = self._call
        if self._half_closed:
            raise ClosedResourceError("half_close() was called: no more messages can be sent")
        too_late = call.over
        if not call.post(message_bytes(message)):
            await call.until_writable()
        if call.over:
            if call.status is None or call.status.code:
                raise error_of(call.status)
            if too_late or call.unsent:
                raise BrokenResourceError("The server has ended the call with OK: it takes no more messages")

    async def recv(self) -> bytes:
        """The next message of the server. Cancelling loses none.

        Raises: EndOfStream after the last message of a call that ended with OK; RpcError if it ended otherwise;
            BusyResourceError if another task waits in `recv`.
        """
        call = self._call
        inbox = call.inbox
        while not inbox:
            if call.over:
                if call.status is not None and not call.status.code:
                    raise EndOfStream
                raise error_of(call.status)
            if call.receiver.busy:
                raise BusyResourceError("receiving from")
            call.await_message()
            try:
                await call.wait(call.receiver)
            except BaseException:
                call.stop_awaiting()
                raise
        message = inbox.popleft()
        call.consumed()
        return message

    async def headers(self) -> Metadata:
        """The server's initial metadata; empty if it sent none."""
        call = self._call
        while call.initial_metadata is None and not call.over and not call.inbox:
            await call.change()
        return call.initial_metadata or ()

    async def end(self) -> Status:
        """Wait for the end of the call, whatever its code is. Messages that were not received stay."""
        call = self._call
        while call.status is None:
            await call.change()
        return call.status

    def half_close(self) -> None:
        """Tell the server that no more messages follow; it can be repeated."""
        self._half_closed = True
        self._call.half_close()

    def cancel(self) -> bool:
        """End the call here at once, and tell the server; False if it was over."""
        return self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call.cancel()
        self._call.drop_unread()


class StreamCall(ChannelCall):
    """A call with any number of messages. The program has its `Call`."""

    def __init__(self) -> None:
        self.inbox: deque[bytes] = deque()
        """Messages that the program has not taken."""
        self.receiver = CallWaiter()
        self._others: list[CallWaiter] = []  # of tasks that wait for anything but the next message

    # -- events of the protocol

    def headers_received(self) -> None:
        self._changed()

    def message_received(self, message: bytes) -> None:
        self.commit()
        self.inbox.append(message)
        self.receiver.wake()
        if self._others:
            self._changed()

    def awaited(self) -> bool:
        return self.receiver.busy

    def writable(self) -> None:
        self._changed()

    def finished(self) -> None:
        if self.ended_here:
            self.drop_unread()
        self.receiver.wake()
        self._changed()

    def _changed(self) -> None:
        for each in self._others:
            each.wake()

    # -- for the call

    def drop_unread(self) -> None:
        """Drop the messages that were not taken."""
        self.inbox.clear()
        self.discard()

    async def wait(self, waiter: CallWaiter) -> None:
        """Wait until ``waiter`` is woken; may return earlier."""
        self.channel.bind()
        await waiter.wait(self.channel.driver, self.connection.transport if self.attached else None)

    async def change(self) -> None:
        """Wait for the next event of the call; may return earlier. Several tasks may wait."""
        waiter = CallWaiter()
        self._others.append(waiter)
        try:
            await self.wait(waiter)
        finally:
            self._others.remove(waiter)

    async def until_writable(self) -> None:
        """Wait until all posted messages have left, or the call is over."""
        while not self.over and (self._queue is not None or not self.attached):
            await self.change()


class UnaryCall(ChannelCall):
    """A call with one message each way."""

    reply: bytes | None = None
    waiter: CallWaiter | None = None

    def message_received(self, message: bytes) -> None:
        self.replay = None
        self.consumed()
        if self.reply is None:
            self.reply = message
        else:
            self.cancel(StatusCode.INTERNAL, "The server sent more than one message to a unary call")

    def finished(self) -> None:
        if self.waiter is not None:
            self.waiter.wake()


def error_of(status: Any) -> RpcError:
    """The exception for a status."""
    return RpcError(status.code, status.details, status.metadata, may_have_run=status.may_have_run)


class Channel:
    """Calls to the servers behind a target. ``async with`` closes it.

    It belongs to the event loop in which it is first used. It connects at the first call, and again after a failure.
    Time limits belong to the calls: ``channel.unary(method, request, timeout=5)``.

    Args:
        target: ``host:port``, ``dns:///host:port``, ``ipv4:1.2.3.4:port``, ``ipv6:[::1]:port`` (several, with commas
            between them), or the text of an `Address`.
        limits: what this side accepts.
        resolver: an async function that returns the addresses of the target.
        policy: ``"pick_first"``, ``"round_robin"``, or a function that makes a policy.
        service_config: gRPC's service config, from ``ServiceConfig.parse(text)``.
        backoff: makes the delays between attempts to connect.
        connect_timeout: seconds after which an attempt to connect is given up, and in which the server must then send
            its preface.
        options: the other arguments of `aiofabric.connect`. The provider goes here: ``{"provider": "shm"}``.

    Raises:
        TypeError, ValueError: an argument has another type, or the policy is not known.
    """

    def __init__(
        self,
        target: str,
        limits: Limits = DEFAULT_LIMITS,
        *,
        resolver: Resolver | None = None,
        policy: str | Callable[[], Policy] = "pick_first",
        service_config: ServiceConfig | None = None,
        backoff: Callable[[], Backoff] = Backoff,
        connect_timeout: float = 20.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.core = ChannelCore(
            target,
            limits,
            resolver=resolver,
            policy=policy,
            service_config=service_config,
            backoff=backoff,
            connect_timeout=connect_timeout,
            options=options,
        )

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout: float | None = None,
        metadata: Iterable[Sequence[str | bytes]] = (),
        wait_for_ready: bool | None = None,
    ) -> bytes:
        """Call ``/service/method`` with one message; return the one of the answer.

        ``timeout`` in seconds. Cancelling cancels the call at the server, too.

        Raises: RpcError if the call ends with another status than OK.
        """
        core = self.core
        core.bind()
        call = UnaryCall()
        pairs = check_metadata(metadata) if metadata else ()
        message = message_bytes(request)
        call.begin(
            core, method_name(method), pairs, timeout=timeout, message=message, end=True, wait_for_ready=wait_for_ready
        )
        if not call.over:
            call.waiter = CallWaiter()
            try:
                while not call.over:
                    await call.waiter.wait(core.driver, call.connection.transport if call.attached else None)
            except BaseException:
                call.cancel()
                raise
        status = call.status
        assert status is not None
        if status.code:
            raise error_of(status)
        if call.reply is None:
            raise RpcError(StatusCode.INTERNAL, f"{method} ended with OK, but the server sent no response message")
        return call.reply

    def call(
        self,
        method: str,
        *,
        timeout: float | None = None,
        metadata: Iterable[Sequence[str | bytes]] = (),
        wait_for_ready: bool | None = None,
    ) -> Call:
        """Begin a call of any kind; use it with ``async with``."""
        self.core.bind()
        call = StreamCall()
        pairs = check_metadata(metadata)
        call.begin(self.core, method_name(method), pairs, timeout=timeout, wait_for_ready=wait_for_ready)
        return Call(call, self)

    def get_state(self, try_to_connect: bool = False) -> Connectivity:
        """The state; with ``try_to_connect``, an IDLE channel begins to connect."""
        return self.core.get_state(try_to_connect)

    async def wait_for_state_change(self, last: Connectivity) -> None:
        """Wait until the state is another one than ``last``."""
        await self.core.wait_for_state_change(last)

    async def close(self, grace: float | None = None) -> None:
        """Begin no more calls; running ones may take ``grace`` seconds, then they are cancelled.

        Raises: TypeError or ValueError if ``grace`` is no number of seconds, or negative.
        """
        await self.core.close(check_grace(grace))

    def __del__(self) -> None:
        core = getattr(self, "core", None)  # absent if the constructor failed
        if core is not None and core.forgotten():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    async def __aenter__(self) -> Self:
        self.core.bind()
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await leave_block(error, self.close)
