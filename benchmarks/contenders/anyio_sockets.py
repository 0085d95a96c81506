"""anyio's TCP streams, on asyncio and on uvloop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from ..connection import Connection, Message, Serve


class Anyio(Connection):
    gone = (anyio.EndOfStream, anyio.BrokenResourceError)

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream

    async def send(self, message: Message) -> None:
        await self.stream.send(bytes(message))  # itself where it is bytes already

    async def recv(self, size: int) -> Message:
        message: Message = await self.stream.receive(size)
        if len(message) < size:
            message = bytearray(message)
            while len(message) < size:
                message += await self.stream.receive(size - len(message))
        return message

    async def aclose(self) -> None:
        await self.stream.aclose()


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[int]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=1024)

    async def accepted(stream: SocketStream) -> None:
        await serve(Anyio(stream))

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, accepted)
        yield listener.extra(SocketAttribute.local_port)


async def connect(port: int) -> Connection:
    return Anyio(await anyio.connect_tcp("127.0.0.1", port))
