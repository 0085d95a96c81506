"""aiofabric's MessageStream: whole messages, small ones of one loop iteration packed into one of the fabric's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from aiofabric.streams import MessageStream, connect_messages, listen_messages

from ..connection import Connection, Message, Serve


class Messages(Connection):
    gone = (anyio.EndOfStream, anyio.BrokenResourceError)

    def __init__(self, stream: MessageStream) -> None:
        self.stream = stream

    async def send(self, message: Message) -> None:
        await self.stream.send(message)

    async def recv(self, size: int) -> Message:
        return await self.stream.receive()

    async def aclose(self) -> None:
        await self.stream.aclose()


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[str]:
    async def accepted(stream: MessageStream) -> None:
        await serve(Messages(stream))

    async with listen_messages("127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, accepted)
        yield str(listener.address)


async def connect(address: str) -> Connection:
    return Messages(await connect_messages(address))
