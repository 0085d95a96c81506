"""ServerRpc: the runtime's call with the state of its handler."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ...._core import ServerRpcCore
from ....cq.loops.bursts import Burst
from ...protocol.server_call import ServerCall
from ...protocol.status import StatusCode
from ..grpcio import EOF, aio
from ..messages import serialized

if TYPE_CHECKING:
    from ..metadata import Pairs

__all__ = ["Host", "Plan", "ServerRpc"]

_log = logging.getLogger(__name__)

Plan = Callable[["ServerRpc"], Coroutine[Any, Any, None]]
"""Handles one call to its end."""


class Host(Protocol):
    """The server of a call."""

    loop: asyncio.AbstractEventLoop
    pool: Any
    plans: dict[str, Plan]
    """By method, where all calls without metadata and deadline are handled in the same way."""

    def begin(self, rpc: ServerRpc) -> None:
        """The call has begun; run its handler."""

    def run(self, rpc: ServerRpc, plan: Plan) -> None:
        """Run ``plan`` in a task of its own."""

    def failed_to_begin(self, rpc: ServerRpc, error: BaseException) -> None:
        """The handler could not be found or started, because of ``error``; end the call."""


class ServerRpc(ServerRpcCore, ServerCall):
    """One call, from the server's side; ``ServerRpc(host)``.

    `ServerRpcCore` has `started`, which runs the plan of the call's method, or calls `begin`.
    """

    owner: Host
    task: asyncio.Task[None] | None
    first: bytes | None
    """The request that came with the start of the call."""
    decided: bool
    """The status is sent, or waits for the last message."""
    gone: bool
    """The client has cancelled, or is lost."""
    aborted: BaseException | None
    code: Any
    """As the handler gave it."""
    code_number: int
    details: str | None
    trailing: Pairs | None
    trailing_given: Any
    callbacks: list[Callable[[], object]] | None
    burst: Burst | None

    _messages: deque[bytes] | None = None
    _readers = 0
    """Tasks that wait for the next request."""
    _waiters: list[asyncio.Future[None]] | None = None

    # -- events of the runtime

    def begin(self) -> None:
        """Run the handler of a call that does not use the `Plan` of its method."""
        host = self.owner
        plan = host.plans.get(self.method)
        if plan is None or self.deadline is not None or self.metadata:
            host.begin(self)
        else:
            host.run(self, plan)

    def message_received(self, message: bytes) -> None:
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self._changed()

    def awaited(self) -> bool:
        return self._readers > 0

    def end_received(self) -> None:
        self._changed()

    def writable(self) -> None:
        self._changed()

    def cancelled(self) -> None:
        self.gone = True
        if self.task is not None and not self.decided:
            self.task.cancel()
        self._changed()

    def _changed(self) -> None:
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None  # not before: Ctrl-C in the loop must leave the others for the next call

    def expired(self) -> None:
        """The deadline has passed."""
        self.decided = True
        self.gone = True
        self.cut(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if self.task is not None:
            self.task.cancel()

    # -- for the handler

    def change(self) -> asyncio.Future[None]:
        """A future of anything that happens to the call."""
        waiter = self.owner.loop.create_future()
        if self._waiters is None:
            self._waiters = [waiter]
        else:
            self._waiters.append(waiter)
        return waiter

    def check(self) -> None:
        """Raise if the handler must stop: it called abort(), its status was sent, or the client has disconnected."""
        if self.aborted is not None:
            raise self.aborted
        if self.decided:
            raise aio.UsageError("RPC already finished.")
        if self.gone:
            raise aio.InternalError("The client has cancelled the call, or its connection was lost")

    async def receive(self) -> Any:
        """The next request as bytes; EOF after the last one."""
        if self.first is not None:
            first, self.first = self.first, None
            return first
        while not self._messages:
            if self.received_end or self.over:
                return EOF
            await self._next_arrival()
        message = self._messages.popleft()
        self.consumed()
        return message

    async def _next_arrival(self) -> None:
        """Wait for anything that happens to the call, and above all for the next request."""
        self._readers += 1
        self.await_message()
        try:
            await self.change()
        except BaseException:
            if self._readers == 1:
                self.stop_awaiting()
            raise
        finally:
            self._readers -= 1

    async def transmit(self, message: bytes) -> None:
        """Send one response, and wait for room if there is none."""
        if not self.transmit_now(message):
            await self.until_room()

    def transmit_now(self, message: bytes) -> bool:
        """Send one response; False if the handler must await `until_room` before the next."""
        if self.burst is None:
            self.burst = Burst()
        if not self.post(message):
            return False
        return not self.burst.ended()

    async def until_room(self) -> None:
        """Wait until everything that was posted has left; at least let other tasks run."""
        waited = False
        while self._queue is not None and not self.over:
            waited = True
            await self.change()
        if not waited:
            await asyncio.sleep(0)
        elif self.burst is not None:
            self.burst.waited()

    def respond(self, response: Any, serializer: Any) -> None:
        """The handler has returned ``response``: end the call with it, or with the status that the handler has set."""
        if self._may_respond():
            self.conclude(None if self.code_number else serialized(response, serializer, True))

    def end_stream(self) -> None:
        """The handler has sent all its responses: end the call with the status that the handler has set."""
        if self._may_respond():
            self.conclude()

    def _may_respond(self) -> bool:
        if self.aborted is None:
            return True
        _log.error("The handler of %s caught the AbortError of context.abort()", self.method)
        return False

    def conclude(self, message: bytes | None = None) -> None:
        """Send the status that the handler has set."""
        if not self.decided:
            if (
                message is None
                or self.code_number
                or self.details
                or self.trailing
                or not self.connection.conclude(self, message)
            ):
                self.finish(self.code_number, self.details or "", self.trailing or (), message)
            self.decided = True  # not before: if finish raises, the handler has failed

    def reject(self, code: int, details: str) -> None:
        """End the call with an error that is not the handler's own."""
        if not self.decided:
            self.decided = True
            self.finish(code, details, self.trailing or ())
