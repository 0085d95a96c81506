"""Channel and Call: the client's interface of the runtime, for messages that are bytes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

from anyio import EndOfStream

from .channel.call import ChannelCall
from .channel.channel import ChannelCore
from .messages import message_bytes, method_name
from .protocol.metadata import Metadata, check_metadata
from .runtime.waiting import CallWaiter
from .status import RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from .protocol.calls import Status

__all__ = ["Call", "Channel"]

INTERNAL = 13


class Call(ChannelCall):
    """A call under way; made by `Channel.call`. One task sends and one receives at a time.

    ``async with call`` cancels the call at the end of the block, unless it is over by then, and drops unread messages.
    Without it, unread messages count against `Limits.memory` until they are received. A call that its deadline or
    `cancel` ends drops them at once.
    """

    def __init__(self) -> None:
        self._inbox: deque[bytes] = deque()
        self._receiver = CallWaiter()
        self._sender = CallWaiter()

    # -- events of the protocol

    def headers_received(self) -> None:
        self._receiver.wake()

    def message_received(self, message: bytes) -> None:
        self.commit()
        self._inbox.append(message)
        self._receiver.wake()

    def writable(self) -> None:
        self._sender.wake()

    def finished(self) -> None:
        if self.ended_here:
            self._drop_unread()
        self._receiver.wake()
        self._sender.wake()

    def _drop_unread(self) -> None:
        self._inbox.clear()
        self.discard()

    # -- the caller's side

    async def send(self, message: bytes) -> None:
        """Send one message. Returns when the next one can be sent: the server's credits delay it.

        Raises: RpcError if the call is over. Cancelling does not take the message back.
        """
        if not self.post(message_bytes(message)):
            while not self.over and (self._queue is not None or not self.attached):
                await self._wait(self._sender)
        if self.over:
            raise self._error()

    async def recv(self) -> bytes:
        """The next message of the server. Cancelling loses none.

        Raises: EndOfStream after the last message of a call that ended with OK; RpcError if it ended otherwise.
        """
        inbox = self._inbox
        while not inbox:
            if self.over:
                if self.status is not None and not self.status.code:
                    raise EndOfStream
                raise self._error()
            await self._wait(self._receiver)
        message = inbox.popleft()
        self.consumed()
        return message

    async def headers(self) -> Metadata:
        """The server's initial metadata; empty if it sent none."""
        while self.initial_metadata is None and not self.over and not self._inbox:
            await self._wait(self._receiver)
        return self.initial_metadata or ()

    async def end(self) -> Status:
        """Wait for the end of the call, whatever its code is. Messages that were not received stay."""
        while self.status is None:
            await self._wait(self._receiver)
        return self.status

    async def _wait(self, waiter: CallWaiter) -> None:
        await waiter.wait(self.channel.driver, self.connection.link if self.attached else None)

    def _error(self) -> RpcError:
        return error_of(self.status)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()
        self._drop_unread()


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
            self.cancel(INTERNAL, "The server sent more than one message to a unary call")

    def finished(self) -> None:
        if self.waiter is not None:
            self.waiter.wake()


def error_of(status: Any) -> RpcError:
    """The exception for a status."""
    return RpcError(status.code, status.details, status.metadata, may_have_run=status.may_have_run)


class Channel(ChannelCore):
    """Calls to the servers behind a target; arguments as for `ChannelCore`. ``async with`` closes it."""

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
        self.bind()
        call = UnaryCall()
        pairs = check_metadata(metadata) if metadata else ()
        message = message_bytes(request)
        call.begin(
            self, method_name(method), pairs, timeout=timeout, message=message, end=True, wait_for_ready=wait_for_ready
        )
        if not call.over:
            call.waiter = CallWaiter()
            try:
                while not call.over:
                    await call.waiter.wait(self.driver, call.connection.link if call.attached else None)
            except BaseException:
                call.cancel()
                raise
        status = call.status
        assert status is not None
        if status.code:
            raise error_of(status)
        if call.reply is None:
            raise RpcError(INTERNAL, f"{method} ended with OK and without a message")
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
        self.bind()
        call = Call()
        pairs = check_metadata(metadata)
        call.begin(self, method_name(method), pairs, timeout=timeout, wait_for_ready=wait_for_ready)
        return call

    async def __aenter__(self) -> Self:
        self.bind()
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
