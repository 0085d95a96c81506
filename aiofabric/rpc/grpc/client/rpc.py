"""ClientRpc: the runtime's call as grpc.aio's call objects need it.

The runtime calls the events while a frame is handled. A waiter is made when a task begins to wait. So a unary call that
is awaited at once makes one waiter and no task.

``final`` is the status that the program sees. A status of the server with messages that were not read yet waits for
them: until then the call is not done and can be cancelled, as in gRPC.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ...channel.call import ChannelCall
from ...protocol.calls import Status
from ...protocol.status import StatusCode
from ...runtime.waiting import CallWaiter
from ..callbacks import run_callback
from ..errors import LOCALLY_CANCELLED, error_of, text_of
from ..grpcio import EOF

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..metadata import Pairs

__all__ = ["ClientRpc", "StreamRpc"]


class ClientRpc(ChannelCall):
    """One call with one response, from the client's side; ``ClientRpc(loop)``."""

    received: bytes | None
    """The response, if there is one."""
    final: Status | None
    locally_cancelled = False
    failure: BaseException | None = None
    """The exception of the program's own code: of a serializer, or of the iterator of requests."""

    _messages: deque[bytes] | None = None
    _receiver: Any  # of the first task that waits for the response, or for the next message
    _waiters: list[asyncio.Future[None]] | None  # of everything else
    _callbacks: list[Callable[[], object]] | None = None
    _feeder: asyncio.Task[None] | None = None  # it iterates over the requests

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self.owner  # type: ignore[no-any-return]  # it is the core's

    # -- events of the runtime

    def headers_received(self) -> None:
        self.replay = None
        if self._waiters is not None:
            self._wake_all()

    def message_received(self, message: bytes) -> None:
        self.replay = None
        self.consumed()
        if self.received is None:
            self.received = message
        else:
            self.cancel(StatusCode.INTERNAL, "The server sent more than one response")

    def answered(self, message: bytes) -> None:
        if self.retries is not None or self._feeder is not None or self._callbacks is not None:
            super().answered(message)
            return
        connection = self.connection
        if connection.retired or len(connection.calls) >= connection.peer_max_calls - 1:
            connection.call_ended()
        self.replay = None
        self.received = message
        self.final = self.status
        self.channel.call_over(self)
        self._wake()

    def writable(self) -> None:
        if self._waiters is not None:
            self._wake_all()

    def finished(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
        if self.locally_cancelled or not self._messages:
            self._settle(self.status or Status(StatusCode.INTERNAL, "The call ended without a status"))

    # -- the end

    def _settle(self, status: Status) -> None:
        if not status.code and self._incomplete():
            status = Status(StatusCode.INTERNAL, "The server ended the call without a response")
        self.final = status
        self._wake()
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                run_callback(callback, self._loop)

    def _incomplete(self) -> bool:
        return self.received is None and self.failure is None

    def cancel(self, code: int = StatusCode.CANCELLED, details: str = "") -> bool:
        if code == StatusCode.CANCELLED and not self.over:
            self.locally_cancelled = True  # the channel closes
        return super().cancel(code, details)

    def cancel_locally(self, details: str = LOCALLY_CANCELLED, code: int = StatusCode.CANCELLED) -> bool:
        """Cancel the call for the program; False if it has ended."""
        if self.final is not None:
            return False
        self.locally_cancelled = True
        if self._messages:
            self._messages.clear()
        if self.over:  # its status waited for messages to be read
            self.discard()
            self._settle(Status(code, details))
        else:
            self.cancel(code, details)
            self.discard()
        return True

    def give_up(self, failure: BaseException) -> None:
        """End a call that runs, because the program's own code raised: tasks that wait for it get the exception.

        A call whose status has come, too: its requests may be incomplete, whatever the server made of them.
        """
        if self.final is None:
            self.failure = failure
            self.cancel_locally(f"{type(failure).__name__}: {text_of(failure)}", StatusCode.INTERNAL)

    def refuse(self, failure: BaseException) -> None:
        """End a call that has not begun, because the program's own code raised."""
        self.failure = failure
        self.over = True
        self._settle(Status(StatusCode.INTERNAL, f"{type(failure).__name__}: {text_of(failure)}", may_have_run=False))

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` at the end, or now if the call has ended."""
        if self.final is not None:
            callback()
        elif self._callbacks is None:
            self.plain = False
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    # -- waiting

    def _wake_all(self) -> None:
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None  # not before: Ctrl-C in the loop must leave the others for the next call

    async def arrival(self) -> None:
        """Wait for the next message, or for the end; may return earlier. The queue is polled first, if that pays."""
        if self._receiver is not None:
            await self.change()
            return
        receiver = self._receiver = CallWaiter()
        self.await_message()
        try:
            transport = self.connection.transport if self.attached else None
            await receiver.wait(self.channel.driver, transport)
        except BaseException:
            self.stop_awaiting()
            raise
        finally:
            self._receiver = None
            if self._waiters is not None:  # one of the other waiting tasks becomes the receiver
                self._wake_all()

    async def yield_to_loop(self) -> None:
        """Let other tasks run, after many awaits in a row that returned at once."""
        source = self.connection.transport.source
        await source.checkpoint()
        source.loop_iterated()

    def change(self) -> asyncio.Future[None]:
        """A future for the next event of the call other than a message."""
        waiter = self._loop.create_future()
        if self._waiters is None:
            self._waiters = [waiter]
        else:
            self._waiters.append(waiter)
        return waiter

    async def end(self) -> Status:
        """Wait for the end."""
        while self.final is None:
            await self.change()
        return self.final

    async def headers(self) -> Pairs:
        """Wait for the initial metadata, which is empty if the call ends without."""
        while self.initial_metadata is None and self.final is None and not self._messages:
            await self.change()
        return self.initial_metadata or ()

    async def connected(self) -> None:
        """Wait until the call has a connection, or has ended."""
        while not self.attached and not self.over:
            await self.change()

    async def room(self) -> None:
        """Wait until everything that was posted has left, or the call has ended."""
        while (self._queue is not None or not self.attached) and not self.over:
            await self.change()

    # -- results

    def check(self) -> None:
        """Raise if the call has ended with an error."""
        if self.failure is not None:
            raise self.failure
        if self.locally_cancelled:
            raise asyncio.CancelledError
        if self.final is not None and self.final.code:
            raise error_of(self.final, self.initial_metadata or ())

    def take(self) -> Any:
        """The oldest message that was not read; EOF if there is none."""
        messages = self._messages
        if not messages:
            return EOF
        message = messages.popleft()
        self.consumed()
        if self.over and not messages and self.final is None:
            assert self.status is not None
            self._settle(self.status)
        return message


class StreamRpc(ClientRpc):
    """One call with many responses."""

    def message_received(self, message: bytes) -> None:
        self.replay = None
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        if self._receiver is not None:
            self._receiver.wake()

    def answered(self, message: bytes) -> None:
        self.message_received(message)
        self.ended()

    def awaited(self) -> bool:
        return self._receiver is not None

    def _incomplete(self) -> bool:
        return False
