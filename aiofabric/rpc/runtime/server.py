"""ServerCore: listeners, connections and running calls of a server. ``new_call`` makes the call objects."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

import anyio

from ...cm.acceptor import Acceptor
from ...cq.reactor import Reactor
from ...transport.connect import listen
from ..protocol.flow import Budget
from ..protocol.server import ServerConnection
from ..protocol.status import GoAwayReason, StatusCode
from .deadlines import Deadlines
from .ended_loops import watch
from .memory_reclaim import MemoryReclaim
from .tasks import tasks_of
from .transport import RECV_COUNT, RpcTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address import Address
    from ...cm.listener import Listener
    from ...cm.requests import ConnectionRequest
    from ..protocol.connection import Limits
    from ..protocol.server_call import ServerCall
    from ..protocol.status import ProtocolError

__all__ = ["ServerCore"]


_log = logging.getLogger(__name__)

CANCEL_TIMEOUT = 1.0
"""Seconds in which clients must close their connections after the last call of a drain has ended, and in which the
handlers of cut calls must end."""


PREFACE_TIMEOUT = 20.0
"""Seconds in which a client must send its preface."""


class AcceptedConnection(ServerConnection):
    """A connection that is closed if its client stays silent. It logs why the server ends it for its use of memory."""

    def preface_received(self) -> None:
        self.transport.preface_arrived()

    def fail(self, error: ProtocolError) -> None:
        super().fail(error)
        if error.reason is GoAwayReason.LIMIT:  # the client may be a good one; other errors are the client's own
            peer = self.transport.endpoint.peer_address
            _log.warning("The server has ended the connection with the client %s: %s", peer, error)


class ServerCore:
    """Accepts connections and calls on one loop.

    ``new_call`` makes the object of each call. ``limits.memory`` bounds all calls of the server together.
    """

    def __init__(
        self,
        new_call: Callable[[], ServerCall],
        limits: Limits,
        *,
        admits: Callable[[], str | None] | None = None,
    ) -> None:
        self.limits = limits
        self.budget = Budget(limits.memory)
        self.driver = Reactor.current().driver
        self.deadlines = Deadlines.of(self.driver)
        self.tasks = tasks_of(self.driver)
        self.transports: set[RpcTransport] = set()
        self.memory_reclaim = MemoryReclaim(self.budget, self.transports, self.driver)
        self.listeners: list[Listener] = []
        self._accepts = tasks_of(self.driver)
        self._new_call = new_call
        self._admits = admits
        self._listeners = AsyncExitStack()
        self._quiet: list[Callable[[], object]] = []
        self.stopping = False
        self.preface_timeout = PREFACE_TIMEOUT
        self._grace: anyio.CancelScope | None = None
        self._stopped = anyio.Event()
        self._thread = get_ident()
        watch(self)

    async def listen(self, node: str | Address | None, service: str | int | None, **options: Any) -> Listener:
        """Listen at one more address, and accept clients from now on."""
        listener = await self._listeners.enter_async_context(
            listen(node, service, recv_size=self.limits.recv_size, recv_count=RECV_COUNT, **options)
        )
        self.listeners.append(listener)
        self._accepts.start(self._accept_all(listener))
        return listener

    async def _accept_all(self, listener: Listener) -> None:
        requests = Acceptor(listener)
        async for request in requests:
            self._accepts.start(self._accept(requests, request))

    async def _accept(self, requests: Acceptor, request: ConnectionRequest) -> None:
        endpoint = await requests.accept(request, request.accept)
        if endpoint is None:
            return
        connection = AcceptedConnection(self.limits, self._new_call, self.budget, admits=self._admits)
        transport = RpcTransport(endpoint, connection, self._transport_ended)
        if not transport.ended:
            self.transports.add(transport)
            transport.expect_preface(self.preface_timeout)
            if self.stopping:
                connection.drain()

    def _transport_ended(self, transport: RpcTransport, error: BaseException) -> None:
        self.transports.discard(transport)
        if not self.transports:
            quiet, self._quiet = self._quiet, []
            for callback in quiet:
                callback()

    async def close_listeners(self) -> None:
        """Accept no more connections."""
        self.stopping = True
        await self._listeners.aclose()

    def drain(self) -> None:
        """Announce the end: clients begin no more calls here. Calls of the next round trip are still handled."""
        self.stopping = True
        for transport in list(self.transports):  # a connection may end during this call
            transport.connection.drain()  # type: ignore[union-attr]

    async def stop(self, grace: float | None) -> None:
        """Stop: no new connections and calls; the running calls may take ``grace`` seconds, then they are cut.

        Handlers of calls that were ended are cancelled. `stop` no longer waits for handlers that still run
        `CANCEL_TIMEOUT` seconds later.

        Called again meanwhile, the shortest grace wins, and each call returns when the server has stopped.
        """
        deadline = anyio.current_time() + (grace or 0)
        if self._grace is not None:
            self._grace.deadline = min(self._grace.deadline, deadline)
            await self._stopped.wait()
            return
        self._grace = anyio.CancelScope(deadline=deadline)
        try:
            await self.close_listeners()
            self.drain()
            with self._grace:
                await self.tasks.wait()
            await self.cut()
        # This call was cancelled. End everything now, because another call of `stop` only waits for this one.
        except BaseException:
            self.tasks.cancel_all()
            self._accepts.cancel_all()
            for transport in list(self.transports):
                transport.abort()
            with anyio.CancelScope(shield=True):
                await self.close_listeners()
            raise
        finally:
            self.memory_reclaim.close()
            self._stopped.set()

    async def cut(self) -> None:
        """End the calls that still run with UNAVAILABLE, and close all connections."""
        for transport in list(self.transports):
            for call in list(transport.connection.calls.values()):
                call.cut(StatusCode.UNAVAILABLE, "The server has stopped")
        self.tasks.cancel_all()
        if self.transports:
            with anyio.move_on_after(CANCEL_TIMEOUT):  # each client closes when it has read GOAWAY and its last status
                await self._until_no_transports()
        for transport in list(self.transports):
            transport.abort()
        with anyio.move_on_after(CANCEL_TIMEOUT):
            await self.tasks.wait()
        if self.tasks:
            _log.warning(
                "The server has stopped, but %d handlers still run although they were cancelled: let handlers "
                "end when they get CancelledError",
                len(self.tasks),
            )
        self._accepts.cancel_all()
        await self._accepts.wait()

    def forgotten(self) -> bool:
        """The program has dropped its server: end everything soon. False if it has stopped, or its loop has ended.

        The collector may run in any thread.
        """
        if self.stopping:
            return False
        self.stopping = True
        if self.driver.closed():
            if self._thread == get_ident():
                self.loop_ended()
            return False
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.driver.call_soon_threadsafe(self._abort)
        return True

    def loop_ended(self) -> None:
        """Close the listeners and the connections of a loop that has ended."""
        self.stopping = True
        for listener in self.listeners:
            listener.close()
        for transport in list(self.transports):
            transport.loop_ended()

    def _abort(self) -> None:
        self.memory_reclaim.close()
        self.tasks.cancel_all()
        self._accepts.cancel_all()
        for listener in self.listeners:
            listener.close()
        for transport in list(self.transports):
            transport.abort()

    async def _until_no_transports(self) -> None:
        event = anyio.Event()
        self._quiet.append(event.set)
        await event.wait()
