"""Connected streams: over kernel sockets, and over each provider."""

from __future__ import annotations

from typing import TypeAlias

import anyio

from aiofabric.channel.base import ByteChannel
from aiofabric.channel.connect import accept_channel, connect_channel
from aiofabric.streams import MessageStream, connect_messages, listen_messages
from aiofabric.transport.connect import listen
from tests.fixtures.providers import HOST
from tests.socket_channel import socket_channels

Channels: TypeAlias = tuple[ByteChannel, ByteChannel]


async def over_sockets() -> Channels:
    return socket_channels()


async def over_fabric(provider: str) -> Channels:
    accepted = []

    async def accept() -> None:
        accepted.append(await accept_channel(await listener.accept_request()))

    async with listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(accept)
        channel = await connect_channel(listener.address, None, provider=provider)
    return channel, accepted[0]


def clog(channel: ByteChannel) -> int:
    """Send until not a single byte more goes out at once; return how many did."""
    sent = 0
    for size in (1000, 1):
        while channel.try_send(memoryview(bytes(size))):
            sent += size
    return sent


async def over_messages(provider: str) -> tuple[MessageStream, MessageStream]:
    accepted: list[MessageStream] = []

    async def accept() -> None:
        accepted.append(await listener.accept())

    async with listen_messages(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(accept)
        stream = await connect_messages(listener.address, provider=provider)
    return stream, accepted[0]
