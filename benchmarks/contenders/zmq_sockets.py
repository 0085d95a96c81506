"""pyzmq's asyncio sockets: DEALER clients and one ROUTER, which is how its guide builds request-reply servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import zmq
import zmq.asyncio

from ..connection import DONE, HELLO, READY, SLOW, Connection, Message, Serve

context = zmq.asyncio.Context()


class Dealer(Connection):
    def __init__(self, address: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.connect(address)

    async def send(self, message: Message) -> None:
        await self.socket.send(message, copy=len(message) < zmq.COPY_THRESHOLD)

    async def recv(self, size: int) -> Message:
        return bytes(await self.socket.recv())

    async def aclose(self) -> None:
        self.socket.close()


async def route(router: zmq.asyncio.Socket) -> None:
    """The ROUTER receives from every client on one socket; the state of a client is stored by its name."""
    doing: dict[bytes, tuple[bytes, int]] = {}
    while True:
        client, frame = await router.recv_multipart(copy=False)
        name = client.bytes
        work, left = doing.get(name, (b"", 0))
        if not left:
            work, _, _, count = HELLO.unpack(frame.bytes)
            doing[name] = work.rstrip(b"\0"), count
            await router.send_multipart((name, READY))
            continue
        doing[name] = work, left - 1
        if work == b"slow":
            await asyncio.sleep(SLOW)
        if work != b"flood":
            await router.send_multipart((name, frame), copy=len(frame) < zmq.COPY_THRESHOLD)
        elif left == 1:
            await router.send_multipart((name, DONE))


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[str]:
    router = context.socket(zmq.ROUTER)
    router.bind_to_random_port("tcp://127.0.0.1")
    task = asyncio.create_task(route(router))
    yield router.get_string(zmq.LAST_ENDPOINT)
    await task


async def connect(address: str) -> Connection:
    return Dealer(address)
