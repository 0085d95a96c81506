"""Requests of httpx to uvicorn, and calls of grpclib, between two processes on uvloop: over a fabric, or sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HOST = "127.0.0.1"
SMALL = b"\1" * 64
PIECE = 1 << 20  # of a large body


class Work(NamedTuple):
    kind: str
    unit: str
    at_a_time: int = 1
    requests: int = 0
    body: int = 0  # bytes, up or down


WORKS = {
    "httpx to uvicorn, 1 at a time": Work("http", "/s", 1, 3000),
    "httpx to uvicorn, 32 at a time": Work("http", "/s", 32, 3000),
    "httpx to uvicorn, 100 MB up": Work("up", "GB/s", body=100_000_000),
    "httpx to uvicorn, 100 MB down": Work("down", "GB/s", body=100_000_000),
    "grpclib, 1 at a time": Work("grpc", "/s", 1, 3000),
    "grpclib, 32 at a time": Work("grpc", "/s", 32, 6000),
}


def side(work: str, provider: str, share: int, which: str) -> None:
    """The server prints its port and serves until it is ended; the client prints the rate."""
    import uvloop

    what = WORKS[work]
    if which == "serve":
        uvloop.run(_serve_grpc(provider) if what.kind == "grpc" else _serve_http(provider))
    else:
        print(uvloop.run(_measure(what, provider, int(which), share)))


async def _measure(work: Work, provider: str, port: int, share: int) -> float:
    if work.body:
        return await _move(work.kind, provider, port, work.body // share)
    asking = _asks_by_grpc if work.kind == "grpc" else _asks_by_http
    async with asking(provider, port) as ask:
        await _ask_many(ask, work.at_a_time, 100)
        count = work.requests // share
        begin = perf_counter()
        await _ask_many(ask, work.at_a_time, count)
        return count / (perf_counter() - begin)


async def _ask_many(ask: Callable[[], Awaitable[None]], at_a_time: int, count: int) -> None:
    left = iter(range(count))

    async def some() -> None:
        for _ in left:
            await ask()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_a_time):
            tasks.create_task(some())


# -- HTTP


def _client(provider: str) -> Any:
    import httpx

    if not provider:
        return httpx.AsyncClient(timeout=60)
    from aiofabric.integrations.httpcore import FabricHTTPTransport

    return httpx.AsyncClient(transport=FabricHTTPTransport(provider=provider), timeout=60)


@asynccontextmanager
async def _asks_by_http(provider: str, port: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    async with _client(provider) as client:

        async def ask() -> None:
            answer = await client.post(f"http://{HOST}:{port}/echo", content=SMALL)
            assert answer.content == SMALL

        yield ask


async def _move(kind: str, provider: str, port: int, size: int) -> float:
    """GB/s of a large body."""

    async def pieces() -> AsyncIterator[bytes]:
        piece = bytes(PIECE)
        for at in range(0, size, PIECE):
            yield piece[: size - at]

    url = f"http://{HOST}:{port}/{kind}"
    async with _client(provider) as client:
        await client.post(f"http://{HOST}:{port}/echo", content=SMALL)  # connects
        begin = perf_counter()
        if kind == "up":
            assert (await client.post(url, content=pieces())).content == b"%d" % size
        else:
            async with client.stream("POST", url, content=b"%d" % size) as answer:
                assert sum([len(each) async for each in answer.aiter_raw()]) == size
        return size / (perf_counter() - begin) / 1e9


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Echo a body; or count it (/up); or answer with one of the length that it names (/down)."""
    kept, size, more = b"", 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        if scope["path"] != "/up":
            kept += message["body"]
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/down":
        piece, size = bytes(PIECE), int(kept)
        for at in range(0, size, PIECE):
            await send({"type": "http.response.body", "body": piece[: size - at], "more_body": True})
        kept = b""
    await send({"type": "http.response.body", "body": b"%d" % size if scope["path"] == "/up" else kept})


async def _serve_http(provider: str) -> None:
    import uvicorn

    config = uvicorn.Config(_app, host=HOST, port=0, lifespan="off", ws="none", log_config=None, access_log=False)
    server: Any = uvicorn.Server(config)
    if provider:
        from aiofabric.integrations.uvicorn import FabricServer

        server = FabricServer(config, provider=provider)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


# -- grpclib, with messages of bytes: what protobuf costs is the same over both


class _Bytes:
    __content_subtype__ = "bytes"

    def encode(self, message: bytes, message_type: Any) -> bytes:
        return message

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return bytes(data)


_METHOD = "/bench.Bench/Echo"


class _Echo:
    def __mapping__(self) -> dict[str, Any]:
        from grpclib.const import Cardinality, Handler

        async def echo(stream: Any) -> None:
            await stream.send_message(await stream.recv_message())

        return {_METHOD: Handler(echo, Cardinality.UNARY_UNARY, bytes, bytes)}


@asynccontextmanager
async def _asks_by_grpc(provider: str, port: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    from grpclib.client import Channel, UnaryUnaryMethod

    codec: Any = _Bytes()
    channel = Channel(HOST, port, codec=codec)
    if provider:
        from aiofabric.integrations.grpclib import Channel as FabricChannel

        channel = FabricChannel(HOST, port, provider=provider, codec=codec)
    async with channel:
        method: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, _METHOD, bytes, bytes)

        async def ask() -> None:
            assert await method(SMALL) == SMALL

        yield ask


async def _serve_grpc(provider: str) -> None:
    from grpclib.server import Server

    codec: Any = _Bytes()
    server = Server([_Echo()], codec=codec)
    if provider:
        from aiofabric.integrations.grpclib import Server as FabricServer

        server = FabricServer([_Echo()], provider=provider, codec=codec)
    await server.start(HOST, 0)
    listener: Any = server._server
    print(listener.sockets[0].getsockname()[1], flush=True)
    await server.wait_closed()
