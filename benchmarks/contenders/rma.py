"""aiofabric's RMA over tcp: the client writes to the server's registered memory, or reads from it, without pause."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

import aiofabric
from aiofabric import Access, RemoteRegion

from ..connection import DONE, Connection, Message, Serve
from .messages import accepting

MOVED = b"m"


class Rma(Connection):
    gone = (aiofabric.FabricConnectionError,)

    def __init__(self, endpoint: aiofabric.MessageEndpoint, operation: str) -> None:
        self.endpoint = endpoint
        self.operation = operation

    async def send(self, message: Message) -> None:
        await self.endpoint.send(message)

    async def recv(self, size: int) -> Message:
        return await self.endpoint.recv()

    async def aclose(self) -> None:
        await self.endpoint.aclose()

    async def begin(self, work: str, size: int, width: int, count: int) -> None:
        await super().begin(work, size, width, count)
        self.remote = RemoteRegion.unpack(await self.endpoint.recv())

    async def flood(self, message: bytes, width: int, count: int) -> None:
        size = len(message)
        transfer: Callable[[memoryview, RemoteRegion], Awaitable[int]] = (
            self.endpoint.write if self.operation == "write" else self.endpoint.read_into
        )
        posted = 0

        async def move(local: memoryview, remote: RemoteRegion) -> None:
            nonlocal posted
            while posted < count:
                posted += 1
                await transfer(local, remote)

        async with anyio.create_task_group() as group:
            for slot in range(width):
                # One source for all writes, as with messages and in C.
                local = self.memory(size, 0 if self.operation == "write" else slot)
                group.start_soon(move, local, self.remote[slot * size : (slot + 1) * size])
        await self.send(MOVED)
        await self.recv(len(DONE))

    async def sink(self, size: int, width: int, count: int) -> None:
        memory = self.memory(size * width)
        with self.endpoint.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
            await self.send(region.remote.pack())
            await self.recv(len(MOVED))
        await self.send(DONE)


@asynccontextmanager
async def listen(serve: Serve, operation: str) -> AsyncIterator[str]:
    async def answer(request: aiofabric.ConnectionRequest) -> None:
        async with await request.accept() as endpoint:
            await serve(Rma(endpoint, operation))

    async with accepting(answer) as address:
        yield address


async def connect(address: str, operation: str) -> Connection:
    return Rma(await aiofabric.connect(address), operation)
