"""Hazard: one connection that cannot be accepted, because no descriptor is left, ends a server and its connections."""

# Doubles: no provider runs out of descriptors on request, so fi_enable of the next accepted endpoint returns the code.

import errno
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

import aiofabric.aio
from aiofabric import rpc
from aiofabric.streams import connect_stream, listen_stream
from tests.rpc.services import HANDLERS

pytestmark = [pytest.mark.anyio, pytest.mark.once]

LOCAL = "127.0.0.1"
Serving = AbstractAsyncContextManager[Callable[[], Any]]


class Shortage:
    """libfabric, whose fi_enable fails for accepted endpoints with the codes in ``codes``."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.codes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def fi_enable(self, ep: Any) -> int:
        accepted = self.codes and self._enabled % 2
        self._enabled += bool(self.codes)
        return -self.codes.pop() if accepted else self._library.fi_enable(ep)

    _enabled = 0


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Shortage:
    module: Any = importlib.import_module("aiofabric.transport.connected.endpoint")
    double = Shortage(module.lib)
    monkeypatch.setattr(module, "lib", double)
    return double


async def echo(stream: Any) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


@asynccontextmanager
async def streams() -> AsyncIterator[Callable[[], Any]]:
    async with listen_stream(LOCAL, provider="tcp") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        yield lambda: connect_stream(listener.address, provider="tcp")
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def loop_of_the_program() -> AsyncIterator[Callable[[], Any]]:
    """A program that calls `accept` itself."""
    async with listen_stream(LOCAL, provider="tcp") as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            while True:
                tasks.start_soon(echo, await listener.accept())

        tasks.start_soon(accept)
        yield lambda: connect_stream(listener.address, provider="tcp")
        tasks.cancel_scope.cancel()


async def talk(stream: Any) -> None:
    await stream.send(b"hello")
    assert await stream.receive() == b"hello"


@pytest.mark.parametrize("serving", [streams, loop_of_the_program])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
async def test_streams_go_on(
    serving: Callable[[], Serving], code: int, shortage: Shortage, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as connect, await connect() as before:
        await talk(before)
        for _ in range(3):
            shortage.codes.append(code)
            with pytest.raises(ConnectionError):
                await connect()
        with anyio.fail_after(10):
            async with await connect() as later:
                await talk(later)
        await talk(before)
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "could not be accepted" in warnings[0]


async def test_an_rpc_server_goes_on(shortage: Shortage, caplog: pytest.LogCaptureFixture) -> None:
    async with rpc.Server(HANDLERS) as server:
        port = (await server.listen(LOCAL, 0, provider="tcp")).address.port
        shortage.codes.append(errno.ENFILE)
        async with rpc.Channel(f"{LOCAL}:{port}", options={"provider": "tcp"}) as channel:
            with anyio.fail_after(10):
                assert await channel.unary("/test/echo", b"x", wait_for_ready=True) == b"x"
    assert "could not be accepted" in caplog.text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_asyncio_server_goes_on(shortage: Shortage, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(reader: Any, writer: Any) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    server = await aiofabric.aio.start_server(handle, LOCAL, 0, provider="tcp")
    async with server:
        place: Any = server.sockets[0].getsockname()
        shortage.codes.append(errno.ENOMEM)
        with pytest.raises(ConnectionError):
            await aiofabric.aio.open_connection(*place[:2], provider="tcp")
        with anyio.fail_after(10):
            reader, writer = await aiofabric.aio.open_connection(*place[:2], provider="tcp")
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            await writer.wait_closed()
    assert "could not be accepted" in caplog.text
