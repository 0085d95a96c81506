"""Subchannel: one address, the connection to it, and the delays between attempts to connect.

=================  ===============================================  ==========================================
state              meaning                                          next state
=================  ===============================================  ==========================================
IDLE               no connection is wanted                          CONNECTING (`connect`)
CONNECTING         an attempt is under way                          READY, TRANSIENT_FAILURE
READY              `transport` takes calls                               IDLE (the connection ended, or GOAWAY)
TRANSIENT_FAILURE  the last attempt failed; a delay runs            IDLE (the delay is over)
SHUTDOWN           closed                                           none
=================  ===============================================  ==========================================
"""

from __future__ import annotations

from enum import IntEnum
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from ..protocol.client import ClientConnection
from ..protocol.metadata import metadata_size
from ..runtime.transport import RpcTransport, connect_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cm.clients.backoff import Backoff
    from ...cm.clients.targets import Target
    from ..protocol.connection import Limits
    from ..protocol.flow import Budget
    from ..protocol.metadata import Metadata
    from ..runtime.tasks import TaskHandle, Tasks

__all__ = ["Connectivity", "Subchannel"]


class Connectivity(IntEnum):
    """States of a channel and of a subchannel; gRPC's connectivity states."""

    IDLE = 0
    CONNECTING = 1
    READY = 2
    TRANSIENT_FAILURE = 3
    SHUTDOWN = 4


class ChannelConnection(ClientConnection):
    """A connection that tells its subchannel of GOAWAY and of each call that ends."""

    subchannel: Subchannel

    def goaway_arrived(self) -> None:
        self.subchannel.goaway(self)

    def preface_received(self) -> None:
        self.transport.preface_arrived()
        self.subchannel.changed()  # the server may allow more calls than the minimum

    def takes(self, metadata: Metadata) -> bool:
        """Whether a call need not wait for the server's preface: until then only little metadata is allowed."""
        return self.peer_known or not metadata or metadata_size(metadata) <= self.peer.max_metadata

    def call_ended(self) -> None:
        """Called when a call has ended whose connection was retired, or was at its limit of calls."""
        self.subchannel.call_ended(self)


class Subchannel:
    """One address. ``changed`` is called when the state, or the number of calls that it takes, changes."""

    def __init__(
        self,
        target: Target,
        limits: Limits,
        budget: Budget,
        tasks: Tasks,
        changed: Callable[[], object],
        *,
        backoff: Backoff,
        connect_timeout: float,
        options: dict[str, Any],
    ) -> None:
        self.target = target
        self.state = Connectivity.IDLE
        self.transport: RpcTransport | None = None
        self.connection: ChannelConnection | None = None
        self.failure: BaseException | None = None
        self.changed = changed
        self._limits, self._budget, self._tasks = limits, budget, tasks
        self._backoff = backoff
        self._timeout = connect_timeout
        self._options = options
        self._task: TaskHandle | None = None  # of the attempt or the delay that is under way
        self._retired: set[RpcTransport] = set()

    def connect(self) -> None:
        """Begin to connect, if IDLE."""
        if self.state is Connectivity.IDLE:
            self.state = Connectivity.CONNECTING
            self._task = self._tasks.start(self._connect())

    async def _connect(self) -> None:
        begun = monotonic()
        delay = self._backoff.next()
        seconds = max(self._timeout, delay)
        try:
            with anyio.move_on_after(seconds) as scope:
                endpoint = await connect_endpoint(*self.target, self._limits, **self._options)
            if scope.cancelled_caught:
                raise TimeoutError(f"the server did not accept within {seconds:g} s")
        except Exception as error:
            if self.state is not Connectivity.SHUTDOWN:
                self.failure = error
                self._move(Connectivity.TRANSIENT_FAILURE)
                await anyio.sleep(max(0.0, delay - (monotonic() - begun)))
                if self.state is Connectivity.TRANSIENT_FAILURE:
                    self._end_attempt(Connectivity.IDLE)
            return
        if self.state is Connectivity.SHUTDOWN:
            endpoint.abort()
            return
        self._backoff.reset()
        self.failure = None
        connection = ChannelConnection(self._limits, self._budget)
        connection.subchannel = self
        transport = RpcTransport(endpoint, connection, self._transport_ended)
        if transport.ended:
            self._end_attempt(Connectivity.IDLE)
            return
        self.transport, self.connection = transport, connection
        transport.expect_preface(self._timeout)
        self._end_attempt(Connectivity.READY)

    def _move(self, state: Connectivity) -> None:
        self.state = state
        self.changed()

    def _end_attempt(self, state: Connectivity) -> None:
        self._task = None  # before the change, which may begin the next attempt
        self._move(state)

    def _transport_ended(self, transport: RpcTransport, error: BaseException) -> None:
        self._retired.discard(transport)
        if transport is self.transport:
            self.transport = self.connection = None
            self.failure = error
            if self.state is Connectivity.READY:
                self._move(Connectivity.IDLE)

    def goaway(self, connection: ChannelConnection) -> None:
        """The server takes no more calls on this connection: running calls end there, new ones need another."""
        transport: RpcTransport = connection.transport
        if self.transport is transport:
            self.transport = self.connection = None
            self._retired.add(transport)
            if self.state is Connectivity.READY:
                self._move(Connectivity.IDLE)
        if connection.finished:
            transport.driver.call_soon(transport.abort)

    def retire(self) -> None:
        """The address is not among those of the target any more: running calls end, then the connection does."""
        transport, connection = self.transport, self.connection
        self.state = Connectivity.SHUTDOWN
        if self._task is not None:
            self._task.cancel()
        if transport is not None and connection is not None:
            self.transport = self.connection = None
            self._retired.add(transport)
            connection.retire()
            if connection.finished:
                transport.abort()

    def call_ended(self, connection: ChannelConnection) -> None:
        """A call ended on a connection that is retired or had all the calls that it takes."""
        if connection.finished:
            connection.transport.driver.call_soon(connection.transport.abort)
        elif not connection.retired:
            self.changed()

    @property
    def transports(self) -> list[RpcTransport]:
        """The connection that takes calls, and those that were retired."""
        return [*self._retired, self.transport] if self.transport is not None else [*self._retired]

    def loop_ended(self) -> None:
        """Close the connections of a loop that has ended."""
        self.state = Connectivity.SHUTDOWN
        for transport in self.transports:
            transport.loop_ended()
        self.transport = self.connection = None

    def close(self) -> None:
        """End everything; calls that still run end with UNAVAILABLE."""
        self.state = Connectivity.SHUTDOWN
        if self._task is not None:
            self._task.cancel()
        for transport in self.transports:
            transport.abort()
        self.transport = self.connection = None
