"""aiofabric's connectionless endpoints (FI_EP_RDM): tagged messages into the caller's buffers.

Connectionless endpoints have no connections, so a client imitates one: it opens an endpoint and sends its address to
the server. Both then use tags that no other client uses.
"""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

import aiofabric
from aiofabric import EndpointType, Peer, RdmEndpoint

from ..connection import DONE, Connection, Message, Serve
from .messages import POOLED

OPEN = 0  # the tag of a client's address
NAME = 256  # room for it


class Tagged(Connection):
    gone = (anyio.ClosedResourceError,)

    def __init__(self, endpoint: RdmEndpoint, peer: Peer, *, sends: int, receives: int) -> None:
        self.endpoint = endpoint
        self.peer = peer
        self.sends = sends
        self.receives = receives
        self.buffer = bytearray()
        self.opened = AsyncExitStack()

    async def send(self, message: Message) -> None:
        await self.endpoint.send_tagged(message, self.sends, to=self.peer)

    async def recv(self, size: int) -> Message:
        if len(self.buffer) != size:
            self.buffer = bytearray(size)
        await self.endpoint.recv_tagged_into(self.buffer, self.receives)
        return self.buffer

    async def aclose(self) -> None:
        await self.opened.aclose()

    async def flood(self, message: bytes, width: int, count: int) -> None:
        if len(message) <= POOLED:
            await super().flood(message, width, count)  # a small message is copied at once: nothing is in flight
            return
        posted, source = 0, self.memory(len(message), width)

        async def send() -> None:
            nonlocal posted
            while posted < count:
                posted += 1
                await self.send(source)

        async with anyio.create_task_group() as group:
            for _ in range(width):
                group.start_soon(send)
        await self.recv(len(DONE))

    async def sink(self, size: int, width: int, count: int) -> None:
        posted = 0

        async def receive(buffer: memoryview) -> None:
            nonlocal posted
            while posted < count:
                posted += 1
                await self.endpoint.recv_tagged_into(buffer, self.receives)

        async with anyio.create_task_group() as group:
            for slot in range(width):
                group.start_soon(receive, self.memory(size, slot))
        await self.send(DONE)


@asynccontextmanager
async def listen(serve: Serve, provider: str) -> AsyncIterator[str]:
    async def accept(endpoint: RdmEndpoint) -> None:
        while True:
            first = await endpoint.recv_tagged(OPEN, max_bytes=NAME)
            tag = int.from_bytes(first[:4])
            peer = await endpoint.add_peer(bytes(first[4:]))
            group.start_soon(serve, Tagged(endpoint, peer, sends=tag + 1, receives=tag))

    async with (
        aiofabric.open_endpoint(EndpointType.RDM, provider=provider) as endpoint,
        anyio.create_task_group() as group,
    ):
        group.start_soon(accept, endpoint)
        yield endpoint.local_address.raw.hex()


async def connect(address: str, provider: str) -> Connection:
    tag = random.randrange(2, 1 << 32, 2)
    async with AsyncExitStack() as opened:
        endpoint = await opened.enter_async_context(aiofabric.open_endpoint(EndpointType.RDM, provider=provider))
        server = await endpoint.add_peer(bytes.fromhex(address))
        await endpoint.send_tagged(tag.to_bytes(4) + endpoint.local_address.raw, OPEN, to=server)
        connection = Tagged(endpoint, server, sends=tag, receives=tag + 1)
        connection.opened = opened.pop_all()
        return connection
    raise AssertionError
