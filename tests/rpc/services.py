"""A service with a method of each kind, in this process or in one of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from aiofabric import rpc
from tests.fixtures.providers import HOST, OWN_HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.children import Parent

__all__ = ["HANDLERS", "Tally", "serve", "served", "target"]


class Tally:
    """The handlers that this process has begun, and their ends."""

    begun = 0
    cancelled = 0


async def echo(request: bytes, context: rpc.ServerContext) -> bytes:
    return request


async def slow(request: bytes, context: rpc.ServerContext) -> bytes:
    """Wait for the given milliseconds."""
    Tally.begun += 1
    try:
        await anyio.sleep(int(request) / 1000)
    except anyio.get_cancelled_exc_class():
        Tally.cancelled += 1
        raise
    return request


async def fail(request: bytes, context: rpc.ServerContext) -> bytes:
    raise rpc.RpcError(rpc.StatusCode.NOT_FOUND, "ürgh", (("key", "value"), ("key-bin", b"\0\xff")))


async def raise_one(request: bytes, context: rpc.ServerContext) -> bytes:
    raise ValueError("a secret of the server")


async def metadata(request: bytes, context: rpc.ServerContext) -> bytes:
    context.send_headers(context.metadata)
    context.trailing_metadata = context.metadata
    return request


async def count(request: bytes, context: rpc.ServerContext) -> AsyncIterator[bytes]:
    for number in range(int(request)):
        yield b"%d" % number


async def total(context: rpc.ServerContext) -> bytes:
    return b"%d" % sum([len(message) async for message in context])


async def mirror(context: rpc.ServerContext) -> AsyncIterator[bytes]:
    async for message in context:
        yield message


def reverse(request: bytes, context: rpc.ServerContext) -> bytes:
    return request[::-1]


HANDLERS = {
    "/test/echo": rpc.unary_unary(echo),
    "/test/slow": rpc.unary_unary(slow),
    "/test/fail": rpc.unary_unary(fail),
    "/test/raise": rpc.unary_unary(raise_one),
    "/test/metadata": rpc.unary_unary(metadata),
    "/test/reverse": rpc.unary_unary(reverse),
    "/test/count": rpc.unary_stream(count),
    "/test/total": rpc.stream_unary(total),
    "/test/mirror": rpc.stream_stream(mirror),
}


def target(address: Any) -> str:
    """The target for a listener's address."""
    return f"{address.host}:{address.port}"


@asynccontextmanager
async def served(
    provider: str, *, server_options: dict[str, Any] | None = None, **channel_options: Any
) -> AsyncIterator[tuple[rpc.Channel, rpc.Server]]:
    """A channel and its server on this loop."""
    async with rpc.Server(HANDLERS, **server_options or {}) as server:
        listener = await server.listen(HOST, 0, provider=provider)
        options = {"options": {"provider": provider}, **channel_options}
        async with rpc.Channel(target(listener.address), **options) as channel:
            yield channel, server


async def serve(parent: Parent, provider: str, port: int = 0, limits: rpc.Limits | None = None) -> int:
    """A server in a process of its own: tells its port; ``stop`` and a grace period end it."""
    async with rpc.Server(HANDLERS, limits=limits or rpc.Limits()) as server:
        listener = await server.listen(OWN_HOST, port, provider=provider)
        parent.tell(listener.address.port)
        while True:
            word = await parent.areceive()
            if word == "tally":
                parent.tell((Tally.begun, Tally.cancelled, len(server.core.tasks), server.core.budget.used))
            else:
                await server.stop(float(word))
                return Tally.begun
