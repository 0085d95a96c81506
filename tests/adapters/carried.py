"""Count the bytes that Python's sockets carry. The patch is made in a process of its own, where no other code uses
sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import sniffio

from aiofabric import aio
from aiofabric.streams import FabricStream, MessageStream
from tests.aio.protocols import where
from tests.fixtures.providers import OWN_HOST
from tests.streams.pairs import over_fabric, over_messages, over_sockets

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.fixtures.children import Parent

Stream: TypeAlias = FabricStream | MessageStream

SIZE = 8 << 20
ITEM = bytes(1 << 20)

_SOCKET = (
    "send", "sendall", "sendto", "sendmsg", "sendfile",
    "recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into",
)  # fmt: skip
_OS = ("read", "readv", "write", "writev", "sendfile")
_LOOP = (
    "create_connection", "create_server", "connect_accepted_socket", "create_datagram_endpoint",
    "sock_recv", "sock_recv_into", "sock_sendall", "sock_sendfile", "sock_connect", "sock_accept",
)  # fmt: skip


class Carried:
    """Bytes that went through Python's calls on sockets and descriptors since `watch`."""

    def __init__(self) -> None:
        self.bytes = 0

    def watch(self) -> None:
        for owner, names in ((socket.socket, _SOCKET), (os, _OS)):
            for name in names:
                self._count(owner, name)

    def _count(self, owner: Any, name: str) -> None:
        genuine = getattr(owner, name)

        def counting(*args: Any, **options: Any) -> Any:
            result = genuine(*args, **options)
            match result:
                case None:  # sendall
                    self.bytes += len(args[1])
                case int():
                    self.bytes += result
                case bytes():
                    self.bytes += len(result)
                case _:  # recvfrom and similar calls
                    self.bytes += result[0] if isinstance(result[0], int) else len(result[0])
            return result

        setattr(owner, name, counting)


def _forbid_the_loops_own() -> None:
    """uvloop's transports read and write in C."""
    if sniffio.current_async_library() == "trio":
        return

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a adapter asks the loop for a connection of the kernel's")

    for name in _LOOP:
        setattr(type(asyncio.get_running_loop()), name, forbidden)


async def _move(one: Stream, other: Stream) -> None:
    async with one, other, anyio.create_task_group() as tg:

        async def send() -> None:
            for _ in range(SIZE // len(ITEM)):
                await one.send(ITEM)

        tg.start_soon(send)
        received = 0
        while received < SIZE:
            received += len(await other.receive())


async def _write(provider: str) -> None:
    async def drain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(len(await reader.read()))
        writer.close()

    received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with await aio.start_server(drain, OWN_HOST, 0, provider=provider) as server:
        _, writer = await aio.open_connection(*where(server), provider=provider)
        for _ in range(SIZE // len(ITEM)):
            writer.write(ITEM)
            await writer.drain()
        writer.close()
        assert await received == SIZE


async def over_every_adapter(parent: Parent, provider: str) -> dict[str, int]:
    """Bytes over kernel sockets while each adapter moved `SIZE` bytes; the last adapter runs on a socket."""
    _forbid_the_loops_own()
    carried, found = Carried(), {}
    carried.watch()

    async def measure(adapter: str, move: Awaitable[None]) -> None:
        before = carried.bytes
        await move
        found[adapter] = carried.bytes - before

    await measure("bytes", _move(*map(FabricStream, await over_fabric(provider))))
    await measure("messages", _move(*await over_messages(provider)))
    if sniffio.current_async_library() == "asyncio":
        await measure("asyncio", _write(provider))
    await measure("a socket", _move(*map(FabricStream, await over_sockets())))
    return found
