"""grpc.aio's interface, of grpc itself or of aiofabric: the same program with another import.

Messages are bytes, or protobuf messages that hold them. A unary method echoes, one counts the requests of a stream, one
streams replies, and one swallows requests or makes replies.
"""

import asyncio
import importlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import BytesValue

from ..connection import DONE, SLOW, CallConnection, Connection, Message, Serve

ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
LIBRARIES = {"grpc": "grpc.aio", "aiofabric": "aiofabric.rpc.grpc"}
LARGE = 1 << 20


def pack(message: bytes) -> bytes:
    return BytesValue(value=message).SerializeToString()


def unpack(data: bytes) -> bytes:
    return BytesValue.FromString(data).value


class Channel(CallConnection):
    """Calls stand for messages, so there is nothing to announce and nothing to receive."""

    def __init__(self, aio: Any, port: int, protobuf: bool) -> None:
        # Channels to one address would otherwise share one connection.
        own = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = aio.insecure_channel(f"127.0.0.1:{port}", options=[*ANY_SIZE, *own])
        self.codec = {"request_serializer": pack, "response_deserializer": unpack} if protobuf else {}
        # Written as generated stubs have it: the multi-callables are made once.
        self.echo_call = self.channel.unary_unary("/bench/echo", **self.codec)
        self.slow_call = self.channel.unary_unary("/bench/slow", **self.codec)
        self.sink_call = self.channel.stream_unary("/bench/sink", **self.codec)
        self.items_call = self.channel.unary_stream("/bench/items", **self.codec)
        self.swallow_call = self.channel.unary_unary("/bench/swallow", **self.codec)
        self.make_call = self.channel.unary_unary("/bench/make", **self.codec)

    async def begin(self, work: str, size: int, width: int, count: int) -> None:
        self.call = self.slow_call if work == "slow" else self.echo_call
        await self.channel.channel_ready()

    async def ping(self, message: bytes, width: int, count: int) -> None:
        async def one_by_one() -> None:
            call = self.call
            for _ in range(count // width):
                await call(message)

        await asyncio.gather(*(one_by_one() for _ in range(width)))

    async def flood(self, message: bytes, width: int, count: int) -> None:
        call = self.sink_call()
        for _ in range(count):
            await call.write(message)
        await call.done_writing()
        await call

    async def items(self, message: bytes, width: int, count: int) -> None:
        got = 0
        async for _ in self.items_call(b"%d %d" % (count, len(message))):
            got += 1
        assert got == count

    async def up(self, message: bytes, width: int, count: int) -> None:
        for _ in range(count):
            await self.swallow_call(message)

    async def down(self, message: bytes, width: int, count: int) -> None:
        wanted = b"%d" % len(message)
        for _ in range(count):
            assert len(await self.make_call(wanted)) == len(message)

    async def beside(self, message: bytes, seconds: float) -> list[float]:
        """How long calls take, one after the other, beside a stream of large messages."""
        took: list[float] = []
        stream = self.items_call(b"%d %d" % (1 << 40, LARGE))

        async def read() -> None:
            async for _ in stream:
                pass

        reader = asyncio.ensure_future(read())
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            await self.echo_call(message)
            took.append(time.perf_counter() - begun)
        stream.cancel()
        await asyncio.wait([reader])
        return took

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


async def items(request: bytes, context: object) -> AsyncIterator[bytes]:
    count, size = map(int, request.split())
    message = b"\1" * size
    for _ in range(count):
        yield message


async def swallow(request: bytes, context: object) -> bytes:
    return DONE


async def make(request: bytes, context: object) -> bytes:
    return b"\1" * int(request)


@asynccontextmanager
async def listen(serve: Serve, library: str = "grpc", messages: str = "bytes") -> AsyncIterator[int]:
    aio = importlib.import_module(LIBRARIES[library])
    codec: dict[str, Any] = {}
    if messages == "protobuf":
        codec = {"request_deserializer": unpack, "response_serializer": pack}
    server = aio.server(options=ANY_SIZE)
    unary = {"echo": echo, "slow": slow, "swallow": swallow, "make": make}
    methods = {name: grpc.unary_unary_rpc_method_handler(each, **codec) for name, each in unary.items()}
    methods["sink"] = grpc.stream_unary_rpc_method_handler(sink, **codec)
    methods["items"] = grpc.unary_stream_rpc_method_handler(items, **codec)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port


async def connect(port: int, library: str = "grpc", messages: str = "bytes") -> Connection:
    return Channel(importlib.import_module(LIBRARIES[library]), port, messages == "protobuf")
