"""Run a gRPC service and its client over a fabric instead of TCP sockets.

The stub is written by hand here. A stub that grpclib's plugin makes from a .proto file is used in the same way.
"""

import asyncio

from google.protobuf.wrappers_pb2 import StringValue
from grpclib.client import UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from aiofabric.integrations.grpclib import Channel, Server

HELLO, SPELL = "/example.Greeter/Hello", "/example.Greeter/Spell"


class Greeter:
    async def hello(self, stream: Stream[StringValue, StringValue]) -> None:
        if request := await stream.recv_message():
            await stream.send_message(StringValue(value=f"hello, {request.value}"))

    async def spell(self, stream: Stream[StringValue, StringValue]) -> None:
        if request := await stream.recv_message():
            for letter in request.value:
                await stream.send_message(StringValue(value=letter))

    def __mapping__(self) -> dict[str, Handler]:
        return {
            HELLO: Handler(self.hello, Cardinality.UNARY_UNARY, StringValue, StringValue),
            SPELL: Handler(self.spell, Cardinality.UNARY_STREAM, StringValue, StringValue),
        }


async def main() -> None:
    async with Server([Greeter()]) as server:
        await server.start("127.0.0.1", 0)
        assert server.address is not None
        async with Channel(*server.address) as channel:
            hello = UnaryUnaryMethod(channel, HELLO, StringValue, StringValue)
            print((await hello(StringValue(value="fabric"), timeout=5)).value)
            spell = UnaryStreamMethod(channel, SPELL, StringValue, StringValue)
            print("-".join([letter.value for letter in await spell(StringValue(value="gRPC"), timeout=5)]))


if __name__ == "__main__":
    asyncio.run(main())
