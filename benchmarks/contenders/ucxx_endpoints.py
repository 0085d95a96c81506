"""ucxx's asyncio endpoints (UCX), on the transports that UCX_TLS names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import ucxx
from ucxx.exceptions import UCXError

from ..connection import Connection, Message, Serve


class Endpoint(Connection):
    gone = (UCXError,)

    def __init__(self, endpoint: "ucxx.Endpoint") -> None:
        self.endpoint = endpoint
        self.buffer = bytearray()

    async def send(self, message: Message) -> None:
        await self.endpoint.send(message)

    async def recv(self, size: int) -> Message:
        if len(self.buffer) != size:
            self.buffer = bytearray(size)
        await self.endpoint.recv(self.buffer)
        return self.buffer

    async def aclose(self) -> None:
        await self.endpoint.close()


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[int]:
    async def accepted(endpoint: "ucxx.Endpoint") -> None:
        await serve(Endpoint(endpoint))

    listener = ucxx.create_listener(accepted)
    yield listener.port


async def connect(port: int) -> Connection:
    return Endpoint(await ucxx.create_endpoint("127.0.0.1", port))
