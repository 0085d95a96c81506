"""The servicer of interop.proto, as a user of grpc.aio writes it, and its server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.rpc.grpc.generated import pb2, pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ECHO_BINARY", "ECHO_TEXT", "Interop", "connected", "started"]

ECHO_TEXT = "x-grpc-test-echo-initial"
ECHO_BINARY = "x-grpc-test-echo-trailing-bin"


async def echo_metadata(context: Any) -> None:
    for key, value in context.invocation_metadata():
        if key == ECHO_TEXT:
            await context.send_initial_metadata(((key, value),))
        elif key == ECHO_BINARY:
            context.set_trailing_metadata(((key, value),))


async def pause(request: Any) -> None:
    if request.wait_ms:
        await asyncio.sleep(request.wait_ms / 1000)


async def check_status(request: Any, context: Any) -> None:
    if request.HasField("status"):
        await context.abort(request.status.code, request.status.text)


class Interop(pb2_grpc.InteropServicer):
    """All methods but `Unimplemented`."""

    async def Nothing(self, request: Any, context: Any) -> Any:
        return pb2.Empty()

    async def Unary(self, request: Any, context: Any) -> Any:
        await echo_metadata(context)
        await pause(request)
        await check_status(request, context)
        return pb2.Response(body=bytes(request.size))

    async def Output(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await echo_metadata(context)
        for size in request.sizes:
            await pause(request)
            yield pb2.Response(body=bytes(size))
        await check_status(request, context)

    async def Input(self, request_iterator: Any, context: Any) -> Any:
        await echo_metadata(context)
        return pb2.Total(size=sum([len(request.body) async for request in request_iterator]))

    async def Duplex(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        await echo_metadata(context)
        async for request in request_iterator:
            await check_status(request, context)
            for size in request.sizes:
                await pause(request)
                yield pb2.Response(body=bytes(size))


@asynccontextmanager
async def started(aio: Any, servicer: Any = None, **options: Any) -> AsyncIterator[tuple[Any, str]]:
    """A server with the servicer, and its target."""
    server = aio.server(**options)
    pb2_grpc.add_InteropServicer_to_server(servicer or Interop(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def connected(
    aio: Any, servicer: Any = None, *, interceptors: Any = None, server_interceptors: Any = None, **options: Any
) -> AsyncIterator[Any]:
    """A stub whose channel is connected to a server of its own."""
    async with (
        started(aio, servicer, interceptors=server_interceptors, **options) as (_, target),
        aio.insecure_channel(target, interceptors=interceptors) as channel,
    ):
        yield pb2_grpc.InteropStub(channel)
