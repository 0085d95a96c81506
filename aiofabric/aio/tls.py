"""TLS over any transport, on any loop, with asyncio's own TLS protocol; uvloop's TLS refuses other transports."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any

from aiofabric.arguments import check_type


def tls_protocol(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    sslcontext: ssl.SSLContext,
    waiter: asyncio.Future[None] | None,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    call_connection_made: bool = True,
) -> Any:
    """The protocol between a transport and the application's ``protocol``."""
    return SSLProtocol(
        loop,
        protocol,
        sslcontext,
        waiter,  # type: ignore[arg-type]  # None is for servers, where no task waits
        server_side,
        server_hostname,
        call_connection_made,
        ssl_handshake_timeout,  # type: ignore[arg-type]  # seconds; fractions are allowed
        ssl_shutdown_timeout,
    )


async def start_tls(
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    sslcontext: ssl.SSLContext,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
) -> asyncio.Transport:
    """Upgrade ``transport`` to TLS; return the transport that ``protocol`` uses from now on.

    Like ``loop.start_tls``, which also works with these transports on asyncio's own loops; uvloop's accepts only its
    own transports. Cancelling closes the transport.
    """
    check_type("transport", transport, asyncio.BaseTransport)
    check_type("sslcontext", sslcontext, ssl.SSLContext)
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    tls = tls_protocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        server_side=server_side,
        server_hostname=server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
        call_connection_made=False,
    )
    transport.pause_reading()  # data that arrives now is ciphertext, but the TLS protocol is not connected yet
    transport.set_protocol(tls)
    tls.connection_made(transport)
    transport.resume_reading()
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    upgraded: asyncio.Transport = tls._app_transport
    return upgraded


class LoopWithTLS:
    """The running loop with this module's :func:`start_tls` instead of its own.

    asyncio's StreamWriter starts TLS through the loop that it was given. With this loop, that also works on uvloop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    start_tls = staticmethod(start_tls)
