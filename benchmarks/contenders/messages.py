"""aiofabric's message endpoints (FI_EP_MSG over tcp).

By default, small messages arrive through the pool, and larger ones in the caller's buffers. An endpoint does one or the
other. So the client states its choice in the private data of its connection request, and connects only when it knows
the size of the messages.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio

import aiofabric

from ..connection import DONE, Connection, Message, Serve

POOLED = 1 << 15  # bytes; from 64 KiB on the copy out of the pool costs more than it saves
DIRECT: dict[str, Any] = {"recv_size": None}


class Messages(Connection):
    gone = (aiofabric.FabricConnectionError,)
    endpoint: aiofabric.MessageEndpoint
    direct = False

    def __init__(self) -> None:
        self.buffer = bytearray()

    async def send(self, message: Message) -> None:
        await self.endpoint.send(message)

    async def recv(self, size: int) -> Message:
        if not self.direct:
            return await self.endpoint.recv()
        if len(self.buffer) != size:
            self.buffer = bytearray(size)
        await self.endpoint.recv_into(self.buffer)
        return self.buffer

    async def aclose(self) -> None:
        await self.endpoint.aclose()

    async def flood(self, message: bytes, width: int, count: int) -> None:
        if not self.direct:
            await super().flood(message, width, count)  # a small message is copied at once: nothing is in flight
            return
        left = count
        while left:
            async with self.endpoint.batch() as batch:
                for _ in range(min(width, left)):
                    await batch.send(message)
                    left -= 1
        await self.recv(len(DONE))

    async def sink(self, size: int, width: int, count: int) -> None:
        if not self.direct:
            await super().sink(size, width, count)
            return
        posted = 0

        async def receive(buffer: memoryview) -> None:
            nonlocal posted
            while posted < count:
                posted += 1
                await self.endpoint.recv_into(buffer)

        async with anyio.create_task_group() as group:
            for slot in range(width):
                group.start_soon(receive, self.memory(size, slot))
        await self.send(DONE)


class Client(Messages):
    def __init__(self, address: str, waiting: aiofabric.Waiting) -> None:
        super().__init__()
        self.address = address
        self.options: dict[str, Any] = {"waiting": waiting}
        self.connected = False

    async def begin(self, work: str, size: int, width: int, count: int) -> None:
        if not self.connected:
            self.direct = size > POOLED
            options = self.options | (DIRECT if self.direct else {})
            self.endpoint = await aiofabric.connect(self.address, param=bytes([self.direct]), **options)
            self.connected = True
        await super().begin(work, size, width, count)


@asynccontextmanager
async def listen(serve: Serve, waiting: str) -> AsyncIterator[str]:
    async def answer(request: aiofabric.ConnectionRequest) -> None:
        connection = Messages()
        connection.direct = request.param == b"\1"
        async with await request.accept(**DIRECT if connection.direct else {}) as connection.endpoint:
            await serve(connection)

    async with accepting(answer, waiting=aiofabric.Waiting(waiting)) as address:
        yield address


@asynccontextmanager
async def accepting(
    answer: Callable[[aiofabric.ConnectionRequest], Coroutine[Any, Any, None]], **options: Any
) -> AsyncIterator[str]:
    """Listen, and answer each request in a task of its own; the value is the address."""

    async def accept(listener: aiofabric.Listener) -> None:
        async for request in listener:
            group.start_soon(answer, request)

    async with aiofabric.listen("127.0.0.1", **options) as listener, anyio.create_task_group() as group:
        group.start_soon(accept, listener)
        yield str(listener.address)


async def connect(address: str, waiting: str) -> Connection:
    return Client(address, aiofabric.Waiting(waiting))
