"""Server: like asyncio's, with listeners whose accepted connections become transports."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from aiofabric.aio.sockinfo import FabricSocket
from aiofabric.channel.connect import accept_channel
from aiofabric.cm.acceptor import Acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiofabric.aio.transport import FabricTransport
    from aiofabric.channel.endpoint import EndpointChannel
    from aiofabric.cm.listener import Listener
    from aiofabric.cm.requests import ConnectionRequest


class Server(asyncio.AbstractServer):
    """The result of :func:`create_server`; it has the methods of asyncio's own server.

    The listeners are bound from the start. A client that connects before :meth:`start_serving` waits in their backlog.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        resources: AsyncExitStack,
        begin: Callable[[EndpointChannel, Server], object],
    ) -> None:
        if not isinstance(resources, AsyncExitStack):
            raise TypeError(f"a {type(self).__name__} is made by create_server(), not of {resources!r:.100}")
        self._loop = asyncio.get_running_loop()
        self._listeners: Sequence[Listener] | None = listeners
        self._resources = resources
        self._begin = begin
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: weakref.WeakSet[FabricTransport] = weakref.WeakSet()
        self._attached = 0
        self._serving = False
        self._forever: asyncio.Future[None] | None = None
        self._ended = self._loop.create_future()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sockets={self.sockets!r}>"

    @property
    def sockets(self) -> tuple[FabricSocket, ...]:
        """One substitute socket for each listener, with ``getsockname()``; empty once closed."""
        return tuple(FabricSocket(listener.address) for listener in self._listeners or ())

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        if self._listeners is None:
            raise RuntimeError(f"server {self!r} is closed")
        if not self._serving:
            self._serving = True
            for listener in self._listeners:
                self._spawn(self._accept(listener))

    async def serve_forever(self) -> None:
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        await self.start_serving()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    def close(self) -> None:
        """Stop listening; established connections continue."""
        if self._listeners is None:
            return
        self._listeners = None
        self._serving = False
        for task in self._tasks:
            task.cancel()
        self._spawn(self._resources.aclose())
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()

    def close_clients(self) -> None:
        """Close every transport of this server."""
        for transport in list(self._transports):
            transport.close()

    def abort_clients(self) -> None:
        """Abort every transport of this server."""
        for transport in list(self._transports):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server is closed and all its connections have ended."""
        await asyncio.shield(self._ended)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "a server failed to begin or to take a connection", "exception": error, "task": task}
            )
        self._perhaps_ended()

    def _perhaps_ended(self) -> None:
        if self._listeners is None and not self._tasks and not self._attached and not self._ended.done():
            self._ended.set_result(None)

    async def _accept(self, listener: Listener) -> None:
        requests = Acceptor(listener)
        async for request in requests:
            self._spawn(self._handshake(requests, request))

    async def _handshake(self, requests: Acceptor, request: ConnectionRequest) -> None:
        channel = await requests.accept(request, partial(accept_channel, request))
        if channel is not None:
            self._begin(channel, self)

    def _attach(self, transport: FabricTransport) -> None:
        self._attached += 1
        self._transports.add(transport)

    def _detach(self, transport: FabricTransport) -> None:
        self._attached -= 1
        self._transports.discard(transport)
        self._perhaps_ended()
