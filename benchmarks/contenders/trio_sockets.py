"""trio's SocketStream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ..connection import Connection, Message, Serve


class Trio(Connection):
    gone = (EOFError, trio.BrokenResourceError)

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def send(self, message: Message) -> None:
        await self.stream.send_all(message)

    async def recv(self, size: int) -> Message:
        message: Message = await self.stream.receive_some(size)
        if len(message) == size:
            return message
        message = bytearray(message)
        while len(message) < size:
            part = await self.stream.receive_some(size - len(message))
            if not part:
                raise EOFError
            message += part
        return message

    async def aclose(self) -> None:
        await self.stream.aclose()


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[int]:
    async def accepted(stream: trio.SocketStream) -> None:
        await serve(Trio(stream))

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, accepted, [listener])
        yield listener.socket.getsockname()[1]


async def connect(port: int) -> Connection:
    return Trio(await trio.open_tcp_stream("127.0.0.1", port))
