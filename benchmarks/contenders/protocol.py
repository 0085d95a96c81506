"""Raw asyncio Protocols, on asyncio and on uvloop, over sockets and over a fabric.

The work is done in callbacks, and a future reports the end. Small messages are answered inside ``data_received``. A
sink receives into its own buffer through a BufferedProtocol. Neither loop is faster in any other way.
"""

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from ..connection import DONE, Connection, Message, Serve


class Raw(asyncio.Protocol, Connection):
    """All received data goes to ``on_data``, which either collects it or answers it."""

    transport: asyncio.Transport

    def __init__(self, serve: Serve | None = None) -> None:
        self.on_accept = serve
        self.on_data = self.collect
        self.loop = asyncio.get_running_loop()
        self.inbox = bytearray()
        self.wanted = 0
        self.waiter: asyncio.Future[None] | None = None
        self.room = asyncio.Event()
        self.room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        if self.on_accept:
            self.task: asyncio.Task[None] = self.loop.create_task(self.on_accept(self))

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.set()
        if self.waiter and not self.waiter.done():
            self.waiter.set_exception(exc or EOFError())

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def data_received(self, data: bytes) -> None:
        self.on_data(data)

    def collect(self, data: bytes) -> None:
        self.inbox += data
        if len(self.inbox) >= self.wanted:
            self.wake()

    def wake(self) -> None:
        if self.waiter and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self) -> None:
        self.waiter = self.loop.create_future()
        await self.waiter

    async def send(self, message: Message) -> None:
        self.transport.write(message)
        if not self.room.is_set():
            await self.room.wait()

    async def recv(self, size: int) -> Message:
        while len(self.inbox) < size:
            self.wanted = size
            await self.wait()
        message = bytes(self.inbox[:size])
        del self.inbox[:size]
        return message

    async def aclose(self) -> None:
        self.transport.close()

    async def ping(self, message: bytes, width: int, count: int) -> None:
        await self.exchange(message, count=count, to_send=count - width, first=width)

    async def echo(self, size: int, width: int, count: int) -> None:
        await self.exchange(bytes(size), count=count, to_send=count, first=0)

    async def exchange(self, message: bytes, *, count: int, to_send: int, first: int) -> None:
        """Receive ``count`` messages, answering the first ``to_send`` of them with one."""
        size = len(message)
        pending = bytearray()
        received = sent = 0
        write = self.transport.write

        def answer(data: bytes) -> None:
            nonlocal received, sent
            if pending or len(data) != size:
                pending.extend(data)
                whole, rest = divmod(len(pending), size)
                del pending[: len(pending) - rest]
            else:
                whole = 1
            received += whole
            for _ in range(min(whole, to_send - sent)):
                write(message)
                sent += 1
            if received == count:
                self.on_data = self.collect
                self.wake()

        self.on_data = answer
        if self.inbox:
            early = bytes(self.inbox)
            self.inbox.clear()
            answer(early)
        for _ in range(first):
            write(message)
        if received < count:
            await self.wait()

    async def sink(self, size: int, width: int, count: int) -> None:
        sink = Sink(self, size, count)
        self.transport.set_protocol(sink)
        await sink.full
        self.transport.set_protocol(self)
        await self.send(DONE)


class Sink(asyncio.BufferedProtocol):
    """Receives ``count`` messages, each whole, into one buffer."""

    def __init__(self, owner: Raw, size: int, count: int) -> None:
        self.owner = owner
        self.buffer = owner.memory(size)
        self.filled = 0
        self.left = count
        self.full = owner.loop.create_future()
        early, owner.inbox = owner.inbox, bytearray()
        while early:
            part = self.get_buffer(-1)
            taken = min(len(part), len(early))
            part[:taken] = early[:taken]
            del early[:taken]
            self.buffer_updated(taken)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        if self.filled == len(self.buffer):
            self.filled = 0
            self.left -= 1
            if not self.left:
                self.full.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.full.done():
            self.full.set_exception(exc or EOFError())


def network(over: str) -> Any:
    """The object with create_server and create_connection: the loop, or aiofabric with the same names."""
    return importlib.import_module("aiofabric.aio") if over == "fabric" else asyncio.get_running_loop()


@asynccontextmanager
async def listen(serve: Serve, over: str = "sockets") -> AsyncIterator[int]:
    server = await network(over).create_server(lambda: Raw(serve), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]


async def connect(port: int, over: str = "sockets") -> Connection:
    connection: Connection
    _, connection = await network(over).create_connection(Raw, "127.0.0.1", port)
    return connection
