"""A peer that is killed is a broken stream within a second, on every face; a closed one has delivered everything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

from aiofabric import aio
from aiofabric.streams import FabricStream, MessageStream, connect_stream, listen_messages, listen_stream
from tests.aio.protocols import Recorder
from tests.faces import peers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child, Parent

SOON = 1.0  # second


async def connect_and_stay(parent: Parent, port: int, provider: str) -> None:
    async with await connect_stream("127.0.0.1", port, provider=provider) as stream:
        await stream.send(b"hello")
        await anyio.sleep_forever()


async def send_and_leave(parent: Parent, port: int, provider: str, size: int) -> None:
    async with await connect_stream("127.0.0.1", port, provider=provider) as stream:
        await stream.send(bytes(size))


async def receive_on(stream: FabricStream | MessageStream) -> None:
    while True:
        await stream.receive()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["bytes", "messages"])
async def test_a_sender_that_is_killed(child: Callable[..., Child], provider: str, kind: str) -> None:
    listen = listen_stream if kind == "bytes" else listen_messages
    writer = peers.byte_stream if kind == "bytes" else peers.message_stream
    async with listen("127.0.0.1", 0, provider=provider) as listener:
        sender = child(writer, listener.address.port, provider)
        async with await listener.accept() as stream:
            for _ in range(20):
                await stream.receive()
            await anyio.to_thread.run_sync(sender.kill)
            with anyio.fail_after(SOON), pytest.raises(anyio.BrokenResourceError):
                await receive_on(stream)


@pytest.mark.anyio
async def test_a_reader_that_is_killed_while_we_send(child: Callable[..., Child], provider: str) -> None:
    async with listen_stream("127.0.0.1", 0, provider=provider) as listener:
        reader = child(connect_and_stay, listener.address.port, provider)
        async with await listener.accept() as stream:
            assert await stream.receive() == b"hello"
            async with anyio.create_task_group() as tg:
                tg.start_soon(_expect_broken, stream.send, bytes(64 << 20))
                await anyio.wait_all_tasks_blocked()
                await anyio.to_thread.run_sync(reader.kill)
                tg.cancel_scope.deadline = anyio.current_time() + SOON
            assert not tg.cancel_scope.cancelled_caught


async def _expect_broken(send: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(anyio.BrokenResourceError):
        await send(data)  # type: ignore[misc]


@pytest.mark.asyncio
async def test_a_protocol_whose_peer_is_killed(child: Callable[..., Child], provider: str) -> None:
    made: asyncio.Future[Recorder] = asyncio.get_running_loop().create_future()

    def factory() -> Recorder:
        protocol = Recorder()
        made.set_result(protocol)
        return protocol

    async with await aio.create_server(factory, "127.0.0.1", 0, provider=provider) as server:
        sender = child(peers.asyncio_protocol, server.sockets[0].getsockname()[1], provider)  # type: ignore[index]
        protocol = await made
        await protocol.until(1_000_000)
        await asyncio.to_thread(sender.kill)
        error = await asyncio.wait_for(protocol.lost, SOON)
        assert isinstance(error, ConnectionResetError)


@pytest.mark.anyio
async def test_what_was_sent_before_a_close_arrives_though_the_process_is_gone(
    child: Callable[..., Child], provider: str
) -> None:
    size = 3_000_000
    async with listen_stream("127.0.0.1", 0, provider=provider) as listener:
        sender = child(send_and_leave, listener.address.port, provider, size)
        async with await listener.accept() as stream:
            received = len(await stream.receive())
            async for chunk in stream:
                received += len(chunk)
            assert received == size
        await sender.aresult()
