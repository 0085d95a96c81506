"""Hazard: invalid data from a client ends a stream listener or an asyncio server instead of the client's connection."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from aiofabric import aio
from aiofabric.streams import connect_messages, connect_stream, listen_messages, listen_stream
from tests.fixtures.children import Child, Parent
from tests.fixtures.clients import HERE, ONE_LOOP, Listening, connections, first_words, kinds, questions

pytestmark = pytest.mark.anyio

SOME = 100  # fewer than the backlog


async def echo(stream: Any) -> None:
    async with stream:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await stream.send(await stream.receive())


async def serve_bytes(parent: Parent, provider: str) -> None:
    async with listen_stream(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        parent.tell(listener.address.port)
        await questions(parent, dict)
        tasks.cancel_scope.cancel()


async def serve_messages(parent: Parent, provider: str) -> None:
    async with listen_messages(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        parent.tell(listener.address.port)
        await questions(parent, dict)
        tasks.cancel_scope.cancel()


async def serve_asyncio(parent: Parent, provider: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async with await aio.start_server(answer, HERE, 0, provider=provider) as server:
        name = server.sockets[0].getsockname()
        assert name is not None
        parent.tell(name[1])
        await questions(parent, dict)


async def call_bytes(provider: str, port: int) -> None:
    async with await connect_stream(HERE, port, provider=provider) as stream:
        await stream.send(b"still here?")
        assert await stream.receive() == b"still here?"


async def call_messages(provider: str, port: int) -> None:
    async with await connect_messages(HERE, port, provider=provider) as stream:
        await stream.send(b"still here?")
        assert await stream.receive() == b"still here?"


CARRIERS = {
    "bytes": (serve_bytes, call_bytes),
    "messages": (serve_messages, call_messages),
    "asyncio": (serve_asyncio, call_bytes),
}
KINDS = [*kinds(b"", 0), "a whole request and no more", "a whole request and nonsense"]


@ONE_LOOP
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adapter", CARRIERS)
async def test_clients_stop_nobody(adapter: str, kind: str, provider: str, child: Callable[..., Child]) -> None:
    if provider == "tcp" and kind == "a whole request and nonsense":
        pytest.skip("tcp trusts the frames of every connected peer, in every version: see docs/topics/security.md")
    serve, call = CARRIERS[adapter]

    async def ask(port: int) -> None:
        await call(provider, port)

    async def honest() -> None:
        with anyio.fail_after(10):
            await call(provider, listening.port)

    whole = await first_words(ask)
    chance = random.Random(kind)
    words = {
        **kinds(whole, kind),
        "a whole request and no more": lambda: whole,
        "a whole request and nonsense": lambda: whole + chance.randbytes(chance.randrange(1, 400)),
    }[kind]
    listening = Listening(child(serve, provider))
    await honest()
    await honest()
    before, _ = await listening.tells()
    with connections(listening.port, words, SOME):
        await honest()
    await honest()
    await listening.until(lambda descriptors, _: descriptors <= before)
    await listening.end()
