"""Each adapter as a child process: one peer sends without end, one reads nothing, one sends and then closes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import psutil

from aiofabric import aio
from aiofabric.streams import connect_messages, connect_stream
from tests.fixtures.providers import OWN_HOST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.children import Parent

ITEM = bytes(100_000)


async def _send_on(parent: Parent, send: Callable[[bytes], Awaitable[object]]) -> None:
    """Send without end; when the parent asks, report the number of sent bytes and the growth of our memory."""
    process, sent = psutil.Process(), 0
    before = process.memory_info().rss

    async def answer() -> None:
        while True:
            await parent.areceive()
            parent.tell((sent, process.memory_info().rss - before))

    async with anyio.create_task_group() as tg:
        tg.start_soon(answer)
        while True:
            await send(ITEM)
            sent += len(ITEM)


async def byte_stream(parent: Parent, port: int, provider: str) -> None:
    async with await connect_stream(OWN_HOST, port, provider=provider) as stream:
        await _send_on(parent, stream.send)


async def message_stream(parent: Parent, port: int, provider: str) -> None:
    async with await connect_messages(OWN_HOST, port, provider=provider) as stream:
        await _send_on(parent, stream.send)


async def asyncio_streams(parent: Parent, port: int, provider: str) -> None:
    _, writer = await aio.open_connection(OWN_HOST, port, provider=provider)

    async def send(item: bytes) -> None:
        writer.write(item)
        await writer.drain()

    await _send_on(parent, send)


async def asyncio_protocol(parent: Parent, port: int, provider: str) -> None:
    class Sender(asyncio.Protocol):
        def __init__(self) -> None:
            self.may_write = asyncio.Event()
            self.may_write.set()

        def pause_writing(self) -> None:
            self.may_write.clear()

        def resume_writing(self) -> None:
            self.may_write.set()

    transport, protocol = await aio.create_connection(Sender, OWN_HOST, port, provider=provider)

    async def send(item: bytes) -> None:
        transport.write(item)
        await protocol.may_write.wait()

    await _send_on(parent, send)


CONNECT: dict[str, Any] = {"bytes": connect_stream, "messages": connect_messages}


async def reads_nothing(parent: Parent, port: int, provider: str, kind: str) -> None:
    async with await CONNECT[kind](OWN_HOST, port, provider=provider) as stream:
        await stream.send(b"hello")
        await anyio.sleep_forever()


async def sends_and_leaves(parent: Parent, port: int, provider: str, kind: str, count: int) -> None:
    async with await CONNECT[kind](OWN_HOST, port, provider=provider) as stream:
        for _ in range(count):
            await stream.send(ITEM)


async def writes_and_leaves(parent: Parent, port: int, provider: str, count: int) -> None:
    _, writer = await aio.open_connection(OWN_HOST, port, provider=provider)
    for _ in range(count):
        writer.write(ITEM)
    writer.close()
    await writer.wait_closed()
