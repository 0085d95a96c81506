"""One of the two processes: ``python -m aiofabric.cli.bench.side serve|measure LOOP PROVIDER [PORT SECONDS]``."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

import aiofabric
from aiofabric.cli.bench.work import WORKS, Side, serve
from aiofabric.cli.sentence import sentence

if TYPE_CHECKING:
    from aiofabric import MessageEndpoint

__all__ = ["main"]

_HOST = "127.0.0.1"
_POOL: dict[str, Any] = {"recv_size": max(work.size for work in WORKS), "recv_count": 8}


class _Streams:
    """asyncio's streams over a kernel socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.receive = reader.readexactly
        self._writer = writer

    async def send(self, message: bytes) -> None:
        self._writer.write(message)
        await self._writer.drain()


class _Endpoint:
    """Messages over a fabric."""

    def __init__(self, endpoint: MessageEndpoint) -> None:
        self.send = endpoint.send
        self._receive = endpoint.recv

    async def receive(self, size: int) -> bytes:
        return await self._receive()


async def _serve_streams() -> None:
    accepted: asyncio.Future[Side] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(_Streams(reader, writer))

    async with await asyncio.start_server(accept, _HOST, 0) as server:
        _say(server.sockets[0].getsockname()[1])
        await serve(await accepted)


async def _serve_fabric(provider: str) -> None:
    async with aiofabric.listen(_HOST, 0, provider=provider, **_POOL) as listener:
        _say(listener.address.port)
        request = await listener.accept_request()
        async with await request.accept() as endpoint:
            await serve(_Endpoint(endpoint))


async def _measure(side: Side, seconds: float) -> None:
    for work in WORKS:
        _say(await work.repeat(side, seconds))


async def _run(role: str, provider: str, port: str = "0", seconds: str = "0") -> None:
    match role, provider:
        case "serve", "":
            await _serve_streams()
        case "serve", _:
            await _serve_fabric(provider)
        case _, "":
            await _measure(_Streams(*await asyncio.open_connection(_HOST, int(port))), float(seconds))
        case _:
            async with await aiofabric.connect(_HOST, int(port), provider=provider, **_POOL) as endpoint:
                await _measure(_Endpoint(endpoint), float(seconds))


def _say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(role: str, loop: str, *arguments: str) -> None:
    """Run one role on a loop; end with one sentence if it fails."""
    try:
        anyio.run(partial(_run, role, *arguments), backend_options={"use_uvloop": loop == "uvloop"})
    except Exception as error:
        sys.exit(sentence(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
