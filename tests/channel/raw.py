"""A byte channel whose peer is a bare endpoint, so that a test reads and writes its frames."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import anyio

import aiofabric
from aiofabric import MessageEndpoint
from aiofabric.channel.connect import accept_channel
from aiofabric.channel.endpoint import EndpointChannel
from aiofabric.channel.frames import Hello

RAW = Hello(recv_size=65540, window=1 << 20)

Peers: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[EndpointChannel, MessageEndpoint]]]


def raw_peers(provider: str) -> Peers:
    """``async with peers(hello) as (channel, raw)``: a channel, and a bare endpoint that introduced itself so."""

    @asynccontextmanager
    async def connected(hello: Hello = RAW) -> AsyncIterator[tuple[EndpointChannel, MessageEndpoint]]:
        accepted: list[EndpointChannel] = []

        async def accept() -> None:
            accepted.append(await accept_channel(await listener.accept_request()))

        listening = aiofabric.listen("127.0.0.1", 0, provider=provider)
        async with listening as listener, anyio.create_task_group() as tg:
            tg.start_soon(accept)
            raw = await aiofabric.connect(listener.address, provider=provider, param=hello.pack(), recv_size=65540)
        try:
            async with raw:
                yield accepted[0], raw
        finally:
            accepted[0].abort()

    return connected
