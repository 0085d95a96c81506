"""grpclib over a fabric: its client channel and its server, for the stubs that its plugin makes from .proto files.

``pip install '.[grpc]'``. Only connecting is different; arguments, deadlines, cancellation, metadata and events
are grpclib's own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpclib.client
import grpclib.server

from aiofabric import aio

if TYPE_CHECKING:
    import ssl as _ssl
    from collections.abc import Collection
    from typing import Self

    from grpclib._typing import IServable
    from grpclib.protocol import H2Protocol

    from aiofabric.domain import Domain

__all__ = ["Channel", "Server"]

_BUSY_POLL: Final = 400.0
"""Microseconds. grpclib and h2 take 200 to 300 of them on each side for a call. With the default of connections, 200,
each side slept before the other's answer came. One call at a time over tcp: 2,290 a second, and 2,050 with the default.
"""


class Channel(grpclib.client.Channel):
    """grpclib's Channel to a :class:`Server` at a fabric address; it connects at the first call.

    ``provider``, ``domain`` and ``busy_poll`` are those of :func:`aiofabric.aio.create_connection`, ``options``
    grpclib's.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        provider: str | None = None,
        domain: Domain | None = None,
        busy_poll: float = _BUSY_POLL,
        **options: Any,
    ) -> None:
        super().__init__(host, port, **options)
        self._provider = provider
        self._domain = domain
        self._busy_poll = busy_poll

    async def _create_connection(self) -> H2Protocol:
        name = self._config.ssl_target_name_override if self._ssl is not None else None
        _, protocol = await aio.create_connection(
            self._protocol_factory,
            self._host,
            self._port,
            provider=self._provider,
            domain=self._domain,
            ssl=self._ssl,
            server_hostname=name,
            busy_poll=self._busy_poll,
        )
        return protocol


class Server(grpclib.server.Server):
    """grpclib's Server at a fabric address.

    ``provider``, ``domain`` and ``busy_poll`` are those of :func:`aiofabric.aio.create_server`, ``options`` grpclib's.
    """

    _server: aio.Server | None

    def __init__(
        self,
        handlers: Collection[IServable],
        *,
        provider: str | None = None,
        domain: Domain | None = None,
        busy_poll: float = _BUSY_POLL,
        **options: Any,
    ) -> None:
        super().__init__(handlers, **options)
        self._provider = provider
        self._domain = domain
        self._busy_poll = busy_poll
        self._address: tuple[str, int] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._server is not None:  # otherwise grpclib's error would hide the reason why it did not start
            await super().__aexit__(*error)

    @property
    def address(self) -> tuple[str, int] | None:
        """The listening address, once started; the port is the chosen one if 0 was asked for."""
        return self._address

    async def start(  # type: ignore[override]  # grpclib's other arguments are for kernel sockets
        self, host: str | None = None, port: int | None = None, *, ssl: _ssl.SSLContext | None = None
    ) -> None:
        """Listen. Raises: FabricError, NoProviderError; RuntimeError (started before)."""
        if self._server is not None:
            raise RuntimeError("Server is already started")
        self._server = await aio.create_server(
            self._protocol_factory,
            host,
            port,
            provider=self._provider,
            domain=self._domain,
            ssl=ssl,
            busy_poll=self._busy_poll,
        )
        self._address = self._server.sockets[0].getsockname()
        self._server_closed_fut = self._loop.create_future()

    async def wait_closed(self) -> None:
        """Wait until it is closed and its handlers have ended; then close the connections."""
        if self._server is not None and self._server_closed_fut is not None:
            await self._server_closed_fut
            await asyncio.gather(*(handler.wait_closed() for handler in self._handlers))
            self._server.close_clients()
        await super().wait_closed()
