"""create_connection, create_server, open_connection, start_server: like asyncio's, but over a fabric."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from aiofabric.address import Address
from aiofabric.aio.reader import FabricStreamReader
from aiofabric.aio.server import Server
from aiofabric.aio.sockinfo import FabricSocket, socket_name
from aiofabric.aio.tls import LoopWithTLS, tls_protocol
from aiofabric.aio.transport import FabricTransport
from aiofabric.channel.connect import connect_channel
from aiofabric.errors import NoProviderError
from aiofabric.transport.connect import listen
from aiofabric.transport.opening.keywords import StreamKeywords, stream_options
from aiofabric.transport.opening.resolution import local_places

if TYPE_CHECKING:
    import ssl as _ssl
    from collections.abc import Awaitable, Callable, Sequence

    from aiofabric.channel.endpoint import EndpointChannel
    from aiofabric.cm.listener import Listener
    from aiofabric.domain import Domain


def _check_tls(ssl: object, handshake_timeout: float | None, shutdown_timeout: float | None) -> None:
    """Raise the errors that asyncio raises for these arguments."""
    for name, timeout in (
        ("ssl_handshake_timeout", handshake_timeout),
        ("ssl_shutdown_timeout", shutdown_timeout),
    ):
        if timeout is not None and ssl is None:
            raise ValueError(f"{name} is only meaningful with ssl")


def _context_of(ssl: _ssl.SSLContext | bool | None, server_hostname: str | None) -> _ssl.SSLContext | None:
    """A client's context. ``True`` is the default one, as asyncio makes it: with the system's certificates."""
    if not isinstance(ssl, bool):
        return ssl
    if not ssl:
        return None
    import ssl as tls

    context = tls.create_default_context()
    context.check_hostname = server_hostname != ""
    return context


class ServerKeywords(StreamKeywords, total=False):
    """Keywords that `start_server` passes to `create_server`."""

    provider: str | None
    domain: Domain | None
    interface: str | None
    backlog: int
    ssl: _ssl.SSLContext | None
    ssl_handshake_timeout: float | None
    ssl_shutdown_timeout: float | None
    start_serving: bool


class ConnectionKeywords(StreamKeywords, total=False):
    """Keywords that `open_connection` passes to `create_connection`."""

    provider: str | None
    domain: Domain | None
    interface: str | None
    ssl: _ssl.SSLContext | bool | None
    server_hostname: str | None
    ssl_handshake_timeout: float | None
    ssl_shutdown_timeout: float | None


P = TypeVar("P", bound=asyncio.BaseProtocol)

LIMIT = 2**16
"""Default buffer limit of a StreamReader, in bytes; asyncio's own."""


def _describe(channel: EndpointChannel) -> dict[str, Any]:
    local, peer = channel.local_address, channel.peer_address
    return {
        "sockname": socket_name(local),
        "peername": socket_name(peer),
        "socket": FabricSocket(local, peer),
        "fabric": channel.info,
    }


async def create_connection(
    protocol_factory: Callable[[], P],
    host: str | Address | None = None,
    port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    interface: str | None = None,
    ssl: _ssl.SSLContext | bool | None = None,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    **options: Unpack[StreamKeywords],
) -> tuple[asyncio.Transport, P]:
    """Connect to a fabric address; return ``(transport, protocol)``, like ``loop.create_connection``.

    The listener is one of :func:`create_server`, :func:`start_server` or :func:`aiofabric.streams.listen_stream`.
    ``interface`` and ``options`` are those of :func:`aiofabric.streams.connect_stream`.
    Cancelling closes the incomplete connection.

    Raises: FabricConnectionError and its subclasses, NoProviderError, ssl.SSLError.
    """
    if host is None and port is None:
        raise ValueError("host and port was not specified and no sock specified")
    ssl = _context_of(ssl, server_hostname)
    _check_tls(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    if server_hostname is None and ssl is not None:
        if not host:
            raise ValueError("You must set server_hostname when using ssl without a host")
        server_hostname = host.host if isinstance(host, Address) else host
    if server_hostname is not None and ssl is None:
        raise ValueError("server_hostname is only meaningful with ssl")
    loop = asyncio.get_running_loop()
    chosen = stream_options("create_connection", options)
    channel = await connect_channel(host, port, provider=provider, domain=domain, interface=interface, **chosen)
    waiter: asyncio.Future[None] = loop.create_future()
    try:
        protocol = protocol_factory()
        if ssl is None:
            transport = FabricTransport(loop, channel, protocol, waiter, extra=_describe(channel))
        else:
            tls = tls_protocol(
                loop,
                protocol,
                ssl,
                waiter,
                server_hostname=server_hostname,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
            FabricTransport(loop, channel, tls, extra=_describe(channel))
            transport = tls._app_transport
    except BaseException:
        channel.abort()
        raise
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return transport, protocol


async def _listen_at_each(places: list[Any], resources: AsyncExitStack, options: Any) -> list[Listener]:
    """Listen at the addresses of one host, without those that this host or the provider does not have."""
    listeners = []
    missing: OSError | None = None
    for node, service in places:
        try:
            listeners.append(await resources.enter_async_context(listen(node, service, **options)))
        except OSError as error:
            if len(places) == 1 or not (isinstance(error, NoProviderError) or error.errno == errno.EADDRNOTAVAIL):
                raise
            missing = error
    if missing is not None and not listeners:
        raise missing
    return listeners


async def create_server(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: str | Address | Sequence[str] | None = None,
    port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    interface: str | None = None,
    backlog: int = 128,
    ssl: _ssl.SSLContext | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    start_serving: bool = True,
    **options: Unpack[StreamKeywords],
) -> Server:
    """Listen on one or several hosts; each connection gets a protocol, like ``loop.create_server``.

    A host name stands for all its addresses, such as 127.0.0.1 and ::1 for localhost, without those of a family that
    this host does not have. Port 0 or None lets the provider choose, for each address: see
    ``server.sockets[0].getsockname()``. ``backlog`` connection requests may wait to be accepted; further requests are
    rejected. ``interface`` and ``options`` are those of :func:`aiofabric.streams.listen_stream`.

    Raises: FabricError, NoProviderError; ValueError (neither host nor port, or TLS timeouts without TLS).
    """
    if host is None and port is None:
        raise ValueError("Neither host/port nor sock were specified")
    if isinstance(ssl, bool):
        raise TypeError("ssl argument must be an SSLContext or None")
    _check_tls(ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
    loop = asyncio.get_running_loop()

    def begin(channel: EndpointChannel, server: Server) -> None:
        try:
            protocol = protocol_factory()
            if ssl is not None:
                protocol = tls_protocol(
                    loop,
                    protocol,
                    ssl,
                    None,
                    server_side=True,
                    ssl_handshake_timeout=ssl_handshake_timeout,
                    ssl_shutdown_timeout=ssl_shutdown_timeout,
                )
            FabricTransport(loop, channel, protocol, extra=_describe(channel), server=server)
        except BaseException:
            channel.abort()
            raise

    chosen = stream_options("create_server", options)
    several = isinstance(host, Iterable) and not isinstance(host, str | bytes | bytearray)
    hosts: Any = host if several else [host or None]
    options_of_all: Any = {"provider": provider, "domain": domain, "interface": interface, "backlog": backlog, **chosen}
    async with AsyncExitStack() as resources:
        listeners: list[Listener] = []
        for each in hosts:
            listeners += await _listen_at_each(await local_places(each, port), resources, options_of_all)
        server = Server(listeners, resources.pop_all(), begin)
    if start_serving:
        await server.start_serving()
    return server


async def open_connection(
    host: str | Address | None = None,
    port: int | str | None = None,
    *,
    limit: int = LIMIT,
    **kwds: Unpack[ConnectionKeywords],
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; return ``(reader, writer)``, like ``asyncio.open_connection``.

    ``writer.start_tls`` works on every loop. Keywords are those of :func:`create_connection`.
    """
    loop = cast("asyncio.AbstractEventLoop", LoopWithTLS(asyncio.get_running_loop()))
    reader = FabricStreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(lambda: protocol, host, port, **kwds)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def start_server(
    client_connected_cb: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None],
    host: str | Address | Sequence[str] | None = None,
    port: int | str | None = None,
    *,
    limit: int = LIMIT,
    **kwds: Unpack[ServerKeywords],
) -> Server:
    """Serve each client with a ``(reader, writer)`` pair, like ``asyncio.start_server``.

    Keywords are those of :func:`create_server`.
    """
    loop = cast("asyncio.AbstractEventLoop", LoopWithTLS(asyncio.get_running_loop()))

    def factory() -> asyncio.StreamReaderProtocol:
        reader = FabricStreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, client_connected_cb, loop=loop)

    return await create_server(factory, host, port, **kwds)
