"""httpcore and httpx: HTTP clients whose connections are streams over a fabric (``pip install '.[http]'``).

    pool = httpcore.AsyncConnectionPool(network_backend=FabricBackend())

For httpx there is :class:`FabricHTTPTransport`: ``httpx.AsyncClient(transport=FabricHTTPTransport())``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpcore
import httpx
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSAttribute, TLSStream

from aiofabric.streams import connect_stream

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator

    from anyio.abc import ByteStream

    from aiofabric.domain import Domain
    from aiofabric.streams import FabricStream

__all__ = ["FabricBackend", "FabricHTTPTransport"]


@contextmanager
def _errors(broken: type[Exception], late: type[Exception]) -> Iterator[None]:
    """Convert errors of aiofabric and anyio into httpcore's."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise broken(str(error)) from error


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, fabric: FabricStream, stream: ByteStream) -> None:
        self._fabric = fabric
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _errors(httpcore.ReadError, httpcore.ReadTimeout), anyio.fail_after(timeout):
            try:
                return await self._stream.receive(max_bytes)
            except anyio.EndOfStream:
                return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:
            with _errors(httpcore.WriteError, httpcore.WriteTimeout), anyio.fail_after(timeout):
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        with _errors(httpcore.ConnectError, httpcore.ConnectTimeout), anyio.fail_after(timeout):
            try:
                tls = await TLSStream.wrap(
                    self._stream,
                    hostname=server_hostname,
                    ssl_context=ssl_context,
                    standard_compatible=False,
                    server_side=False,
                )
            except BaseException:
                await anyio.aclose_forcefully(self._stream)
                raise
        return _Stream(self._fabric, tls)

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "is_readable":  # data on an idle connection means that it has ended: it must not be reused
                return self._fabric.readable
            case "client_addr":
                return self._stream.extra(SocketAttribute.local_address, None)
            case "server_addr":
                return self._stream.extra(SocketAttribute.remote_address, None)
            case "ssl_object":
                return self._stream.extra(TLSAttribute.ssl_object, None)
            case _:
                return None


class FabricBackend(httpcore.AsyncNetworkBackend):
    """Opens httpcore's connections over a fabric, on asyncio, uvloop and trio.

    ``provider`` and ``domain`` are those of :func:`aiofabric.streams.connect_stream`; the URL's host and port are the
    fabric address. ``local_address`` and socket options have no effect.
    """

    def __init__(self, *, provider: str | None = None, domain: Domain | None = None) -> None:
        self._provider = provider
        self._domain = domain

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect. Raises: httpcore.ConnectError, httpcore.ConnectTimeout."""
        with _errors(httpcore.ConnectError, httpcore.ConnectTimeout), anyio.fail_after(timeout):
            stream = await connect_stream(host, port, provider=self._provider, domain=self._domain)
        return _Stream(stream, stream)

    async def sleep(self, seconds: float) -> None:
        """Wait between two attempts to connect."""
        await anyio.sleep(seconds)


class FabricHTTPTransport(httpx.AsyncHTTPTransport):
    """httpx's own transport with its connections over a fabric; ``options`` are httpx's."""

    def __init__(self, *, provider: str | None = None, domain: Domain | None = None, **options: Any) -> None:
        super().__init__(**options)
        # httpx has no public way to set a network backend; its pool has this attribute since httpcore 0.17.
        self._pool._network_backend = FabricBackend(provider=provider, domain=domain)
