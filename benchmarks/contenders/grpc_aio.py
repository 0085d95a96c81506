"""grpc.aio without protobuf: a unary method that echoes and a client-streaming one that counts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio

from ..connection import DONE, SLOW, Connection, Message, Serve

ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Channel(Connection):
    """Calls stand for messages, so there is nothing to announce and nothing to receive."""

    def __init__(self, port: int) -> None:
        # Channels to one address would otherwise share one connection.
        own = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[*ANY_SIZE, *own])

    async def begin(self, work: str, size: int, width: int, count: int) -> None:
        self.call = self.channel.unary_unary("/bench/slow" if work == "slow" else "/bench/echo")
        await self.channel.channel_ready()

    async def ping(self, message: bytes, width: int, count: int) -> None:
        async def one_by_one() -> None:
            for _ in range(count // width):
                await self.call(message)

        await asyncio.gather(*(one_by_one() for _ in range(width)))

    async def flood(self, message: bytes, width: int, count: int) -> None:
        call = self.channel.stream_unary("/bench/sink")()
        for _ in range(count):
            await call.write(message)
        await call.done_writing()
        await call

    async def send(self, message: Message) -> None:
        raise TypeError("grpc has calls, not messages")

    recv = send  # type: ignore[assignment]

    async def aclose(self) -> None:
        await self.channel.close()


async def echo(request: bytes, context: object) -> bytes:
    return request


async def slow(request: bytes, context: object) -> bytes:
    await asyncio.sleep(SLOW)
    return request


async def sink(requests: AsyncIterator[bytes], context: object) -> bytes:
    async for _ in requests:
        pass
    return DONE


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[int]:
    server = grpc.aio.server(options=ANY_SIZE)
    methods = {
        "echo": grpc.unary_unary_rpc_method_handler(echo),
        "slow": grpc.unary_unary_rpc_method_handler(slow),
        "sink": grpc.stream_unary_rpc_method_handler(sink),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port


async def connect(port: int) -> Connection:
    return Channel(port)
