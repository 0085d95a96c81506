"""On every adapter, a killed peer breaks the stream within a second, and a peer that closed has delivered all data."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest

from aiofabric import aio
from aiofabric.streams import listen_messages, listen_stream
from tests.adapters import peers
from tests.aio.protocols import Recorder, where
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import OWN_HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.fixtures.children import Child

    StartChild: TypeAlias = Callable[..., Child]

SOON = 1.0  # second
COUNT = 30  # items of a peer that sends and closes
TOTAL = COUNT * len(peers.ITEM)

LISTEN: dict[str, Any] = {"bytes": listen_stream, "messages": listen_messages}
SENDER: dict[str, Any] = {"bytes": peers.byte_stream, "messages": peers.message_stream}
kinds = pytest.mark.parametrize("kind", LISTEN)
# Nothing runs beside these tests, so each takes the whole run's time; asyncio and uvloop have one driver.
two_loops = pytest.mark.parametrize("anyio_backend", [loop for loop in LOOPS if loop.id != "uvloop"])


async def for_ever(receive: Callable[[], Awaitable[object]]) -> None:
    while True:
        await receive()


@asynccontextmanager
async def asyncio_streams(
    child: StartChild, peer: Any, provider: str, *args: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Child]]:
    """Reader, writer, and the process at their other end."""
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
        asyncio.get_running_loop().create_future()
    )

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result((reader, writer))

    async with await aio.start_server(keep, OWN_HOST, 0, provider=provider) as server:
        process = child(peer, where(server)[1], provider, *args)
        reader, writer = await accepted
        try:
            yield reader, writer, process
        finally:
            writer.close()


@pytest.mark.anyio
@two_loops
@pytest.mark.alone
@kinds
async def test_a_sender_that_is_killed(child: StartChild, provider: str, kind: str) -> None:
    async with LISTEN[kind](OWN_HOST, 0, provider=provider) as listener:
        sender = child(SENDER[kind], listener.address.port, provider)
        async with await listener.accept() as stream:
            for _ in range(20):
                await stream.receive()
            await anyio.to_thread.run_sync(sender.kill)
            with anyio.fail_after(SOON), pytest.raises(anyio.BrokenResourceError):
                await for_ever(stream.receive)


@pytest.mark.anyio
@two_loops
@pytest.mark.alone
@kinds
async def test_a_reader_that_is_killed_while_we_send(child: StartChild, provider: str, kind: str) -> None:
    async with LISTEN[kind](OWN_HOST, 0, provider=provider) as listener:
        reader = child(peers.reads_nothing, listener.address.port, provider, kind)
        async with await listener.accept() as stream:
            assert await stream.receive() == b"hello"
            async with anyio.create_task_group() as tg:
                tg.start_soon(_expect_broken, stream.send, bytes(64 << 20))
                await anyio.wait_all_tasks_blocked()
                await anyio.to_thread.run_sync(reader.kill)
                tg.cancel_scope.deadline = anyio.current_time() + SOON
            assert not tg.cancel_scope.cancelled_caught


async def _expect_broken(send: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
    with pytest.raises(anyio.BrokenResourceError):
        await send(data)


@pytest.mark.asyncio
@pytest.mark.alone
async def test_a_protocol_whose_peer_is_killed(child: StartChild, provider: str) -> None:
    made: asyncio.Future[Recorder] = asyncio.get_running_loop().create_future()

    def factory() -> Recorder:
        protocol = Recorder()
        made.set_result(protocol)
        return protocol

    async with await aio.create_server(factory, OWN_HOST, 0, provider=provider) as server:
        sender = child(peers.asyncio_protocol, where(server)[1], provider)
        protocol = await made
        await protocol.until(1_000_000)
        await asyncio.to_thread(sender.kill)
        error = await asyncio.wait_for(protocol.lost, SOON)
        assert isinstance(error, ConnectionResetError)


@pytest.mark.asyncio
@pytest.mark.alone
async def test_a_stream_reader_whose_peer_is_killed(child: StartChild, provider: str) -> None:
    async with asyncio_streams(child, peers.asyncio_streams, provider) as (reader, _, sender):
        await reader.readexactly(1_000_000)
        await asyncio.to_thread(sender.kill)
        async with asyncio.timeout(SOON):
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1 << 30)


@pytest.mark.asyncio
@pytest.mark.alone
async def test_a_drain_whose_peer_is_killed(child: StartChild, provider: str) -> None:
    async with asyncio_streams(child, peers.reads_nothing, provider, "bytes") as (reader, writer, peer):
        assert await reader.readexactly(5) == b"hello"
        writer.write(bytes(64 << 20))
        draining = asyncio.create_task(writer.drain())
        await asyncio.to_thread(peer.kill)
        async with asyncio.timeout(SOON):
            with pytest.raises(ConnectionResetError):
                await draining


@pytest.mark.anyio
@two_loops
@kinds
async def test_what_was_sent_before_a_close_arrives_though_the_process_is_gone(
    child: StartChild, provider: str, kind: str
) -> None:
    async with LISTEN[kind](OWN_HOST, 0, provider=provider) as listener:
        sender = child(peers.sends_and_leaves, listener.address.port, provider, kind, COUNT)
        async with await listener.accept() as stream:
            received = [len(item) async for item in stream]
        assert sum(received) == TOTAL
        await sender.aresult()


@pytest.mark.asyncio
async def test_what_was_written_before_a_close_arrives_though_the_process_is_gone(
    child: StartChild, provider: str
) -> None:
    async with asyncio_streams(child, peers.writes_and_leaves, provider, COUNT) as (reader, _, sender):
        assert len(await reader.read()) == TOTAL
        await sender.aresult()
