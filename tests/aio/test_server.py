"""Server, open_connection and start_server over real fabric endpoints."""

# Doubles: a name server, which knows a name of several addresses.

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import aio
from aiofabric.errors import FabricConnectionRefusedError
from tests.aio.protocols import Echo, Recorder, where

pytestmark = pytest.mark.asyncio

HERE = "127.0.0.1"
BIG = os.urandom(1 << 20) * 4


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100_000):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def _use(server: aio.Server, provider: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await aio.open_connection(*where(server), provider=provider)


async def test_streams_echo_and_end(provider: str) -> None:
    async with await aio.start_server(_echo, "127.0.0.1", 0, provider=provider) as server:
        reader, writer = await _use(server, provider)
        writer.writelines([b"a line\n", b"another\n"])
        assert await reader.readline() == b"a line\n"
        assert await reader.readuntil(b"r\n") == b"another\n"

        async def send() -> None:
            writer.write(BIG)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        assert await reader.readexactly(len(BIG)) == BIG
        await sending
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    await server.wait_closed()


async def test_drain_waits_for_a_slow_reader(provider: str) -> None:
    may_read = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await may_read.wait()
        total = 0
        while data := await reader.read(1 << 20):
            total += len(data)
        writer.write(str(total).encode())
        writer.close()

    async with await aio.start_server(serve, "127.0.0.1", 0, provider=provider) as server:
        reader, writer = await _use(server, provider)
        writer.write(BIG * 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.1)
        may_read.set()
        await writer.drain()
        writer.write_eof()
        assert await reader.read() == str(len(BIG) * 2).encode()
        writer.close()
        await writer.wait_closed()


async def test_many_clients_at_once(provider: str) -> None:
    async def client(number: int) -> None:
        reader, writer = await _use(server, provider)
        message = b"%d" % number * 1000
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
        writer.close()
        await writer.wait_closed()

    async with await aio.start_server(_echo, "127.0.0.1", 0, provider=provider) as server:
        await asyncio.gather(*map(client, range(50)))
    await server.wait_closed()


async def test_serving_starts_when_told(provider: str) -> None:
    server = await aio.create_server(Echo, "127.0.0.1", 0, provider=provider, start_serving=False)
    assert not server.is_serving()
    assert server.get_loop() is asyncio.get_running_loop()
    async with server:
        await server.start_serving()
        await server.start_serving()
        assert server.is_serving()
        reader, writer = await _use(server, provider)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
    assert not server.is_serving()
    assert server.sockets == ()
    with pytest.raises(RuntimeError, match="is closed"):
        await server.serve_forever()


async def test_serve_forever_ends_with_its_cancel(provider: str) -> None:
    server = await aio.create_server(Echo, "127.0.0.1", 0, provider=provider, start_serving=False)
    serving = asyncio.create_task(server.serve_forever())
    await asyncio.sleep(0)
    assert server.is_serving()
    with pytest.raises(RuntimeError, match="already being awaited"):
        await server.serve_forever()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert server.sockets == ()


async def test_closing_ends_serve_forever(provider: str) -> None:
    server = await aio.create_server(Echo, "127.0.0.1", 0, provider=provider)
    serving = asyncio.create_task(server.serve_forever())
    await asyncio.sleep(0)
    server.close()
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_wait_closed_waits_for_the_connections(provider: str) -> None:
    server = await aio.create_server(Echo, "127.0.0.1", 0, provider=provider)
    reader, writer = await _use(server, provider)
    writer.write(b"x")
    await reader.readexactly(1)
    server.close()
    waiting = asyncio.create_task(server.wait_closed())
    writer.write(b"still there")
    assert await reader.readexactly(11) == b"still there"
    assert not waiting.done()
    writer.close()
    await waiting


@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
async def test_a_server_ends_its_connections(provider: str, how: str) -> None:
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider) as server:
        _, protocol = await aio.create_connection(Recorder, *where(server), provider=provider)
        protocol.transport.write(b"x")
        await protocol.until(1)
        getattr(server, how)()
        assert isinstance(await protocol.lost, ConnectionResetError if how == "abort_clients" else type(None))


async def test_several_hosts(provider: str) -> None:
    async with await aio.start_server(_echo, ["127.0.0.1", "127.0.0.2"], 0, provider=provider) as server:
        assert [where(server, which)[0] for which in (0, 1)] == ["127.0.0.1", "127.0.0.2"]
        for which in (0, 1):
            reader, writer = await aio.open_connection(*where(server, which), provider=provider)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()
            await writer.wait_closed()


async def test_a_host_name_stands_for_all_its_addresses(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with asyncio's server: a client may choose the family. One that this host does not have is left out."""
    hosts = ["198.51.100.1", "::1", "127.0.0.1", "127.0.0.1"]

    async def found(host: str, *args: Any, **kwds: Any) -> Any:
        return [
            each
            for one in (hosts if host == "several.test" else [host])
            for each in socket.getaddrinfo(one, *args, **kwds)
        ]

    monkeypatch.setattr(anyio, "getaddrinfo", found)
    async with await aio.start_server(_echo, "several.test", 0, provider=provider) as server:
        assert [where(server, which)[0] for which in range(len(server.sockets))] == ["::1", "127.0.0.1"]
        for which in (0, 1):
            reader, writer = await aio.open_connection("several.test", where(server, which)[1], provider=provider)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()
            await writer.wait_closed()
    hosts[:] = ["198.51.100.1", "203.0.113.1"]
    with pytest.raises(OSError, match="not one of this host"):
        await aio.start_server(_echo, "several.test", 0, provider=provider)


async def test_nobody_listens(provider: str) -> None:
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider) as server:
        address = where(server)
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await aio.open_connection(*address, provider=provider)


async def test_a_client_without_our_hello_is_rejected_with_the_reason(provider: str) -> None:
    async with await aio.create_server(Echo, "127.0.0.1", 0, provider=provider) as server:
        with pytest.raises(FabricConnectionRefusedError) as caught:
            await aiofabric.connect(*where(server), provider=provider, param=b"something else")
        assert b"the other one a plain connection" in caught.value.param
        reader, writer = await _use(server, provider)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
        await writer.wait_closed()


async def test_a_server_without_our_hello_is_refused(provider: str) -> None:
    async def accept(listener: aiofabric.Listener) -> None:
        request = await listener.accept_request()
        async with await request.accept(param=b"something else"):
            pass

    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        accepting = asyncio.create_task(accept(listener))
        with pytest.raises(ConnectionAbortedError, match="byte channel"):
            await aio.open_connection(listener.address, provider=provider)
        await accepting


async def test_a_protocol_factory_that_fails_is_reported_and_serving_goes_on(provider: str) -> None:
    outcomes: list[Any] = [ZeroDivisionError(), None]
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def factory() -> Echo:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return Echo()

    async with await aio.create_server(factory, "127.0.0.1", 0, provider=provider) as server:
        _, first = await aio.create_connection(Recorder, *where(server), provider=provider)
        await first.lost
        _, second = await aio.create_connection(Recorder, *where(server), provider=provider)
        second.transport.write(b"x")
        assert await second.until(1) == b"x"
        second.transport.close()
        await second.lost
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def test_backlog_is_how_many_may_wait(provider: str) -> None:
    few: dict[str, Any] = {"provider": provider, "backlog": 2, "start_serving": False}
    for streams in (True, False):
        server = await (aio.start_server(_echo, HERE, 0, **few) if streams else aio.create_server(Echo, HERE, 0, **few))
        clients = [asyncio.create_task(_use(server, provider)) for _ in range(3)]
        done, waiting = await asyncio.wait(clients, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert all(isinstance(each.exception(), FabricConnectionRefusedError) for each in done)
        assert len(done) == 1
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        server.close()
        await server.wait_closed()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
async def test_a_transport_that_was_never_made_is_collected_quietly() -> None:
    object.__new__(aio.transport.FabricTransport)


async def test_options_of_connections_are_taken_and_others_are_refused() -> None:
    options: Any = {"provider": "tcp", "interface": "lo", "heartbeat": 5.0, "close_timeout": 3.0}
    async with await aio.start_server(_echo, HERE, 0, **options) as server:
        reader, writer = await aio.open_connection(*where(server), **options)
        writer.write(b"a line\n")
        assert await reader.readline() == b"a line\n"
        writer.close()
        await writer.wait_closed()
        with pytest.raises(TypeError, match=r"create_connection\(\) chooses recv_count itself"):
            await aio.open_connection(*where(server), recv_count=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"create_server\(\) chooses recv_size itself"):
        await aio.start_server(_echo, HERE, 0, recv_size=3)  # type: ignore[call-arg]
    with pytest.raises(aiofabric.NoProviderError, match="nowhere"):
        await aio.open_connection(HERE, 1, provider="tcp", interface="nowhere")
