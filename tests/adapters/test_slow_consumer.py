"""Promise: on every adapter, the writer waits for a reader that does not read, and the memory of neither side grows."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import psutil
import pytest

from aiofabric import aio
from aiofabric.channel.connect import HELLO
from aiofabric.streams import listen_messages, listen_stream
from tests.adapters import peers
from tests.aio.protocols import Recorder, where
from tests.fixtures.children import Child
from tests.fixtures.internals import channel_of
from tests.fixtures.providers import CARRIERS, OWN_HOST, require

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterator

LONG = float(os.environ.get("AIOFABRIC_SLOW_SECONDS", "5"))  # AIOFABRIC_SLOW_SECONDS=30 for the long one
FULL = HELLO.window - 2 * len(peers.ITEM)  # bytes that a writer can send before it is blocked
GROWTH = 8 << 20  # bytes that a process may grow by, for each connection

ASYNCIO = ("asyncio", {"use_uvloop": False})
UVLOOP = ("asyncio", {"use_uvloop": True})
TRIO: tuple[str, dict[str, Any]] = ("trio", {})

WRITERS: list[tuple[Any, Any]] = [
    (peers.byte_stream, ASYNCIO),
    (peers.byte_stream, TRIO),
    (peers.message_stream, UVLOOP),
    (peers.message_stream, TRIO),
    (peers.asyncio_streams, UVLOOP),
    (peers.asyncio_protocol, ASYNCIO),
]
EXPECTED = len(WRITERS) * len(CARRIERS)


@pytest.fixture
def anyio_backend() -> Any:
    return ASYNCIO


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for each in started:
        each.close()


class Reluctant(Recorder):
    """Paused until a task asks for the received data."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.pause_reading()

    async def read(self, size: int) -> None:
        self.transport.resume_reading()
        await self.until(size)


class Consumers:
    """Listeners of every adapter, and the connections that they have accepted and do not read."""

    def __init__(self) -> None:
        self.channels: list[Any] = []
        self.reads: list[Callable[[], Awaitable[object]]] = []
        self.aborts: list[Callable[[], object]] = []
        self.everybody = anyio.Event()

    def _accepted(self, channel: Any, read: Callable[[], Awaitable[object]], abort: Callable[[], object]) -> None:
        self.channels.append(channel)
        self.reads.append(read)
        self.aborts.append(abort)
        if len(self.channels) == EXPECTED:
            self.everybody.set()

    async def _keep(self, stream: Any) -> None:
        async def read() -> None:
            for _ in range(50):
                await stream.receive()

        self._accepted(channel_of(stream), read, channel_of(stream).abort)

    async def _keep_reader(self, reader: asyncio.StreamReader, writer: Any) -> None:
        transport = writer.transport
        self._accepted(channel_of(transport), lambda: reader.readexactly(3 << 20), transport.abort)

    def _make_protocol(self) -> Reluctant:
        protocol = Reluctant()

        def begin(made: asyncio.Future[Any]) -> None:
            transport = made.result()
            self._accepted(channel_of(transport), lambda: protocol.read(3 << 20), transport.abort)

        protocol.made.add_done_callback(begin)
        return protocol

    async def listen(self, provider: str, stack: AsyncExitStack, tg: anyio.abc.TaskGroup) -> dict[Any, int | None]:
        """Where each kind of writer finds its reader."""
        at = (OWN_HOST, 0)
        of_bytes = await stack.enter_async_context(listen_stream(*at, provider=provider))
        of_messages = await stack.enter_async_context(listen_messages(*at, provider=provider))
        tg.start_soon(of_bytes.serve, self._keep)
        tg.start_soon(of_messages.serve, self._keep)
        readers = await aio.start_server(self._keep_reader, *at, provider=provider)
        protocols = await aio.create_server(self._make_protocol, *at, provider=provider)
        for server in (readers, protocols):
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
        return {
            peers.byte_stream: of_bytes.address.port,
            peers.message_stream: of_messages.address.port,
            peers.asyncio_streams: where(readers)[1],
            peers.asyncio_protocol: where(protocols)[1],
        }

    def abort(self) -> None:
        for abort in self.aborts:
            abort()


async def report(children: list[Child]) -> tuple[list[int], list[int]]:
    """Bytes sent by each writer, and by how much the memory of each has grown."""
    for each in children:
        each.tell("how much?")
    answers = [await each.areceive() for each in children]
    return [sent for sent, _ in answers], [growth for _, growth in answers]


async def blocked(children: list[Child]) -> list[int]:
    """Bytes sent by each writer, once none sends any more."""
    before: list[int] = []
    while True:
        sent, _ = await report(children)
        if sent == before and min(sent) >= FULL:
            return sent
        before = sent
        await anyio.sleep(0.5)


@pytest.mark.anyio
@pytest.mark.long
@pytest.mark.timeout(180)
async def test_slow_consumers(children: list[Child]) -> None:
    me, consumers = psutil.Process(), Consumers()
    async with anyio.create_task_group() as tg, AsyncExitStack() as stack:
        before = me.memory_info().rss
        for provider in map(require, CARRIERS):
            ports = await consumers.listen(provider, stack, tg)
            children += [Child(writer, ports[writer], provider, backend=backend) for writer, backend in WRITERS]
        await consumers.everybody.wait()
        sent = await blocked(children)
        await anyio.sleep(LONG)
        later, growth = await report(children)
        assert later == sent
        assert max(growth) < GROWTH
        assert me.memory_info().rss - before < GROWTH * EXPECTED
        assert all(channel.statistics().receive_queued <= HELLO.window for channel in consumers.channels)
        for read in consumers.reads:
            await read()
        after, _ = await report(children)
        assert all(now > then for now, then in zip(after, sent, strict=True))
        consumers.abort()
        tg.cancel_scope.cancel()
