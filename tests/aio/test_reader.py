"""Readers of `open_connection` and `start_server`: asyncio's promises hold, however data arrives."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from aiofabric import aio
from aiofabric.errors import WrongThreadError
from tests.aio.protocols import where

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio

BIG = os.urandom(3 << 20)
LIMIT = 1 << 16


@asynccontextmanager
async def connected(provider: str) -> AsyncIterator[tuple[Any, Any, Any, Any]]:
    """Reader and writer of a client, and those of the server."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accepted.put((reader, writer))

    async with asyncio.timeout(60), await aio.start_server(serve, "127.0.0.1", 0, provider=provider) as server:
        reader, writer = await aio.open_connection(*where(server), provider=provider)
        theirs, answers = await accepted.get()
        try:
            yield reader, writer, theirs, answers
        finally:
            for each in (writer, answers):
                each.close()
            for each in (writer, answers):
                with suppress(ConnectionError):
                    await each.wait_closed()


@pytest.mark.parametrize("size", [64, LIMIT, LIMIT + 1, 1 << 20, len(BIG)])
async def test_a_read_of_many_bytes_is_whole_and_leaves_what_follows(size: int, provider: str) -> None:
    async with connected(provider) as (reader, _, _, answers):
        sending = asyncio.create_task(_send(answers, BIG, b"a line\n", BIG))
        got = bytearray()
        while len(got) < len(BIG):
            got += await reader.readexactly(min(size, len(BIG) - len(got)))
        assert got == BIG
        assert await reader.readline() == b"a line\n"
        assert await reader.readexactly(len(BIG)) == BIG
        await sending


async def _send(writer: asyncio.StreamWriter, *pieces: bytes) -> None:
    for piece in pieces:
        writer.write(piece)
        await writer.drain()


async def test_an_end_within_a_long_read_gives_what_has_arrived(provider: str) -> None:
    async with connected(provider) as (reader, _, _, answers):
        answers.write(BIG[:300_000])
        answers.write_eof()
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await reader.readexactly(1 << 20)
        assert (caught.value.partial, caught.value.expected) == (BIG[:300_000], 1 << 20)
        assert reader.at_eof()


async def test_a_broken_connection_ends_a_long_read(provider: str) -> None:
    async with connected(provider) as (reader, _, _, answers):
        answers.write(BIG[:300_000])
        reading = asyncio.create_task(reader.readexactly(1 << 20))
        await answers.drain()
        answers.transport.abort()
        with pytest.raises(ConnectionError):
            await reading


async def test_a_cancelled_long_read_loses_nothing_and_a_slow_reader_holds_its_peer(provider: str) -> None:
    async with connected(provider) as (reader, _, _, answers):
        sending = asyncio.create_task(_send(answers, BIG[:200_000]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1 << 20), 0.1)
        await sending
        sending = asyncio.create_task(_send(answers, BIG[200_000:], *[BIG] * 12))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done, "40 MB went to a reader that does not read"
        for _ in range(13):
            assert await reader.readexactly(len(BIG)) == BIG
        await sending


async def test_a_task_that_always_gets_its_answer_at_once_lets_others_run(provider: str) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with connected(provider) as (reader, writer, theirs, answers):

        async def answer() -> None:
            while True:
                answers.write(await theirs.readexactly(8))

        others = [asyncio.create_task(tick()), asyncio.create_task(answer())]
        while ticks < 200:
            writer.write(b"question")
            assert await reader.readexactly(8) == b"question"
        for each in others:
            each.cancel()
        await asyncio.wait(others)


async def test_only_one_task_may_wait(provider: str) -> None:
    async with connected(provider) as (reader, _, _, answers):
        waiting = asyncio.create_task(reader.readexactly(8))
        await asyncio.sleep(0)
        answers.write(b"8 bytes.")
        with pytest.raises(RuntimeError, match="another coroutine is already waiting"):
            await reader.read(1)
        assert await waiting == b"8 bytes."


async def test_a_read_in_another_thread_is_refused(provider: str) -> None:
    async with connected(provider) as (reader, _, _, answers):
        with pytest.raises(WrongThreadError):
            await asyncio.to_thread(asyncio.run, reader.read(1))
        answers.write(b"x")
        assert await reader.readexactly(1) == b"x"
