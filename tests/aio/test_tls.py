"""TLS over fabric transports, on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
import os
import ssl
from functools import partial
from typing import Any

import pytest

from aiofabric import aio
from tests.aio.protocols import Buffered, Echo, Recorder, where
from tests.fixtures.certificates import NAME, Tls

pytestmark = pytest.mark.asyncio

BIG = os.urandom(1 << 20) * 3


async def test_echo_over_tls(tls: Tls, provider: str) -> None:
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider, ssl=tls.server) as server:
        transport, protocol = await aio.create_connection(
            Recorder, *where(server), provider=provider, ssl=tls.client, server_hostname=NAME
        )
        transport.write(BIG)
        assert await protocol.until(len(BIG)) == BIG
        assert transport.get_extra_info("ssl_object").version().startswith("TLS")
        transport.close()
        assert await protocol.lost is None


async def test_a_buffered_protocol_over_tls(tls: Tls, provider: str) -> None:
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider, ssl=tls.server) as server:
        transport, protocol = await aio.create_connection(
            Buffered, *where(server), provider=provider, ssl=tls.client, server_hostname=NAME
        )
        transport.write(BIG[:100_000])
        assert await protocol.until(100_000) == BIG[:100_000]
        transport.close()
        await protocol.lost


async def test_a_certificate_for_another_name_is_refused(tls: Tls, provider: str) -> None:
    async with await aio.create_server(Recorder, "127.0.0.1", 0, provider=provider, ssl=tls.server) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await aio.create_connection(Recorder, *where(server), provider=provider, ssl=tls.client)


async def test_server_hostname_belongs_to_ssl() -> None:
    with pytest.raises(ValueError, match="only meaningful with ssl"):
        await aio.create_connection(Recorder, "127.0.0.1", 1, server_hostname=NAME)
    with pytest.raises(ValueError, match="without a host"):
        await aio.create_connection(Recorder, port=1, ssl=ssl.create_default_context())


class Upgrading(Recorder):
    """Starts TLS when it is told to, then sends back as many bytes as it was made for."""

    def __init__(self, tls: Tls, size: int) -> None:
        super().__init__()
        self.tls = tls
        self.size = size

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.task = asyncio.create_task(self.serve())

    async def serve(self) -> None:
        assert await self.until(8) == b"STARTTLS"
        self.transport.write(b"GO")
        secure = await aio.start_tls(self.transport, self, self.tls.server, server_side=True)
        secure.write(await self.until(self.size))


@pytest.mark.parametrize("whose", ["ours", "the loop's"])
async def test_start_tls_upgrades_a_transport(tls: Tls, provider: str, whose: str) -> None:
    loop = asyncio.get_running_loop()
    upgrade: Any = aio.start_tls if whose == "ours" else loop.start_tls
    if upgrade is not aio.start_tls and not isinstance(loop, asyncio.BaseEventLoop):
        pytest.skip("uvloop's start_tls upgrades uvloop's own transports only")
    factory = partial(Upgrading, tls, len(BIG))
    async with await aio.create_server(factory, "127.0.0.1", 0, provider=provider) as server:
        plain, protocol = await aio.create_connection(Recorder, *where(server), provider=provider)
        plain.write(b"STARTTLS")
        assert await protocol.until(2) == b"GO"
        secure = await upgrade(plain, protocol, tls.client, server_hostname=NAME)
        secure.write(BIG)
        assert await protocol.until(len(BIG)) == BIG
        secure.close()
        assert await protocol.lost is None
    await server.wait_closed()


async def test_a_stream_writer_upgrades_itself(tls: Tls, provider: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"GO")
        await writer.start_tls(tls.server)
        writer.write(await reader.readexactly(len(BIG)))
        writer.close()
        await writer.wait_closed()

    async with await aio.start_server(serve, "127.0.0.1", 0, provider=provider) as server:
        reader, writer = await aio.open_connection(*where(server), provider=provider)
        writer.write(b"STARTTLS")
        assert await reader.readexactly(2) == b"GO"
        await writer.start_tls(tls.client, server_hostname=NAME)
        writer.write(BIG)
        assert await reader.readexactly(len(BIG)) == BIG
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    await server.wait_closed()


async def test_a_client_that_speaks_no_tls_ends_alone(tls: Tls, provider: str) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider, ssl=tls.server) as server:
        address = where(server)
        plain, protocol = await aio.create_connection(Recorder, *address, provider=provider)
        plain.write(b"GET / HTTP/1.0\r\n\r\n" * 10)
        await protocol.lost
        transport, good = await aio.create_connection(
            Recorder, *address, provider=provider, ssl=tls.client, server_hostname=NAME
        )
        transport.write(b"x")
        assert await good.until(1) == b"x"
        transport.close()
        await good.lost
