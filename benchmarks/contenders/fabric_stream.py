"""aiofabric's FabricStream, which has anyio's interface: anyio's contender over another network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from aiofabric.streams import FabricStream, connect_stream, listen_stream

from ..connection import Connection, Message, Serve
from .anyio_sockets import Anyio

SMALL = 1 << 14


class Fabric(Anyio):
    stream: FabricStream

    async def recv(self, size: int) -> Message:
        if size <= SMALL:
            return await super().recv(size)
        message = rest = self.memory(size)
        while rest:
            rest = rest[await self.stream.receive_into(rest) :]
        return message


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[str]:
    async def accepted(stream: FabricStream) -> None:
        await serve(Fabric(stream))

    async with listen_stream("127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, accepted)
        yield str(listener.address)


async def connect(address: str) -> Connection:
    return Fabric(await connect_stream(address))
