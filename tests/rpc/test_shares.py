"""Clients that use all of a server's memory or calls: the server still serves the other clients."""

# Doubles: a failed connection stays open for longer, so that a slow machine reads the reason in time.

from __future__ import annotations

import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import monotonic
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import rpc
from aiofabric.rpc.protocol.frames import HEADER, NO_TIMEOUT, Flag, Kind, frame
from aiofabric.rpc.protocol.status import GoAwayReason
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import CONNECTED, HOST, OWN_HOST, over
from tests.fixtures.waiting import until
from tests.rpc.services import HANDLERS, served
from tests.rpc.test_channel import channel_to

pytestmark = pytest.mark.anyio

provider = over(CONNECTED)

Start = Callable[..., Child]

PREFACE = rpc.Limits().preface().pack()
ANNOUNCED = Flag.FIRST | Flag.MORE | Flag.RENDEZVOUS


def start(id: int, method: bytes) -> bytes:
    payload = struct.pack("<QH", NO_TIMEOUT, len(method)) + method
    return frame(Kind.START, id, payload, field=0xFFFF)


def announcement(id: int, size: int) -> bytes:
    """A call that streams requests, and the first two bytes of one."""
    return start(id, b"/test/total") + frame(Kind.MESSAGE, id, struct.pack("<Q", size) + b"ab", flags=ANNOUNCED)


async def test_announcements_of_an_idle_client_leave_memory_to_the_others(provider: str) -> None:
    async with served(provider) as (channel, server):
        (listener,) = server.core.listeners
        async with await aiofabric.connect(listener.address, provider=provider, recv_size=65600) as hostile:
            size = server.limits.max_message
            await hostile.send(PREFACE + b"".join(announcement(id, size) for id in range(1, 67)))
            await until(lambda: server.core.budget.used > server.core.budget.share)
            with anyio.fail_after(10):
                assert await channel.unary("/test/echo", b"x") == b"x"
                assert len(await channel.unary("/test/echo", bytes(3_000_000))) == 3_000_000
            assert server.core.budget.used <= 2 * server.core.budget.share
        await until(lambda: not server.core.budget.used)


async def test_an_announced_message_that_does_not_come_loses_its_memory_to_those_that_wait(provider: str) -> None:
    limits = rpc.Limits(memory=4 << 20)
    async with served(provider, server_options={"limits": limits}) as (channel, server):
        server.core.memory_reclaim.timeout = 0.1
        (listener,) = server.core.listeners
        async with await aiofabric.connect(listener.address, provider=provider, recv_size=65600) as hostile:
            await hostile.send(PREFACE + announcement(1, limits.memory))
            await until(lambda: server.core.budget.used == limits.memory)
            with anyio.fail_after(10):
                assert len(await channel.unary("/test/echo", bytes(3_000_000))) == 3_000_000
        await until(lambda: not server.core.budget.used)


async def test_a_client_that_fills_the_memory_loses_calls_when_another_one_begins(provider: str) -> None:
    limits = rpc.Limits(memory=1 << 20)
    hang = anyio.Event()

    async def waits(context: rpc.ServerContext) -> bytes:
        await hang.wait()
        return b""

    async with rpc.Server({**HANDLERS, "/test/waits": rpc.stream_unary(waits)}, limits=limits) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        async with channel_to(port, provider=provider) as heavy, channel_to(port, provider=provider) as light:
            await heavy.unary("/test/echo", b"")  # now each call has the whole window
            calls = [heavy.call("/test/waits") for _ in range(4)]
            for call in calls:
                for _ in range(30):
                    await call.send(bytes(10_000))
            await until(lambda: server.core.budget.exhausted)
            with anyio.fail_after(10):
                assert await light.unary("/test/echo", b"x") == b"x"
            await until(lambda: any(call.over for call in calls))
            (ended,) = [call for call in calls if call.over]
            with pytest.raises(rpc.RpcError, match="RESOURCE_EXHAUSTED: The server is out of memory, and this client"):
                await ended.recv()
            hang.set()


async def flood(parent: Parent, provider: str, port: int) -> None:
    """Begin 20,000 calls that do not end, without reading."""
    async with await aiofabric.connect(HOST, port, provider=provider, recv_size=65600) as endpoint:
        await endpoint.send(PREFACE)
        with suppress(ConnectionError):
            for first in range(1, 20_000, 1000):
                await endpoint.send(b"".join(start(id, b"/test/total") for id in range(first, first + 1000)))
        parent.tell("sent")
        await parent.areceive()


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def flooded(parent: Parent, provider: str) -> tuple[int, float]:
    """A server and an honest client: bytes by which a flood lets memory grow, and the client's slowest call."""
    async with served(provider) as (channel, server):
        (listener,) = server.core.listeners
        await channel.unary("/test/echo", b"x")
        before = resident()
        parent.tell(listener.address.port)
        slowest, ended = 0.0, False

        async def calls() -> None:
            nonlocal slowest
            while not ended:
                begun = monotonic()
                await channel.unary("/test/echo", b"x")
                slowest = max(slowest, monotonic() - begun)
                await anyio.sleep(0.001)

        async with anyio.create_task_group() as group:
            group.start_soon(calls)
            await parent.areceive()
            ended = True
        return resident() - before, slowest


async def test_a_flood_of_calls_costs_little_memory_and_delays_the_others_little(provider: str, child: Start) -> None:
    server = child(flooded, provider)
    port = await server.areceive()
    client = child(flood, provider, port)
    await client.areceive()
    server.tell("end")
    grown, slowest = await server.aresult()
    client.tell("end")
    assert grown < 40 << 20  # 5 to 7 MB; 80 MB with 65,536 calls
    assert slowest < 5.0  # 0.07 s; 0.3 s with 65,536 calls: a bound for any machine, not the promise


async def test_calls_above_the_limit_of_a_connection_wait_in_the_channel(provider: str) -> None:
    limits = rpc.Limits(max_calls=10)
    async with served(provider, server_options={"limits": limits}) as (channel, _):
        await channel.unary("/test/echo", b"")
        replies: list[bytes] = []

        async def one() -> None:
            replies.append(await channel.unary("/test/slow", b"1"))

        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(one)
        assert replies == [b"1"] * 100


async def hurry(parent: Parent, provider: str, port: int) -> None:
    """Ask for answers of 16 KiB, a few at a time, and read none."""
    request = struct.pack("<QH", NO_TIMEOUT, 12) + b"/test/answer"
    async with await aiofabric.connect(OWN_HOST, port, provider=provider, recv_size=65600) as endpoint:
        await endpoint.send(PREFACE)
        with suppress(ConnectionError):
            for first in range(1, 20_000, 200):
                ids = range(first, first + 200)
                flags = Flag.MESSAGE | Flag.END
                await endpoint.send(b"".join(frame(Kind.START, id, request, field=0xFFFF, flags=flags) for id in ids))
                parent.tell("sent")
                await parent.areceive()
        parent.tell("end")
        await parent.areceive()


async def answering(parent: Parent, provider: str) -> tuple[int, int]:
    """A server; bytes by which its memory has grown, and bytes that count against its limit at the end."""

    async def answer(request: bytes, context: rpc.ServerContext) -> bytes:
        return bytes(16_000)

    async with rpc.Server({"/test/answer": rpc.unary_unary(answer)}, limits=rpc.Limits(memory=32 << 20)) as server:
        before = resident()
        parent.tell((await server.listen(OWN_HOST, 0, provider=provider)).address.port)
        grown = 0
        while await parent.areceive() == "sent":
            await until(lambda: not server.core.tasks)
            grown = max(grown, resident() - before)
            parent.tell("go on")
        await until(lambda: not server.core.transports)
        return grown, server.core.budget.used


async def test_small_answers_that_a_client_does_not_read_count_against_the_memory(provider: str, child: Start) -> None:
    server = child(answering, provider)
    client = child(hurry, provider, await server.areceive())
    while (word := await client.areceive()) == "sent":
        server.tell(word)
        await server.areceive()
        client.tell("go on")
    client.tell("end")
    await client.aresult()
    server.tell("end")
    grown, held = await server.aresult()
    assert grown < 48 << 20  # 14 MiB; 320 MiB when such answers did not count
    assert held == 0


async def test_a_client_whose_calls_end_for_their_memory_keeps_its_connection(provider: str) -> None:
    """Two clients hold more than twice the memory. When a third one begins a call, most of their calls end."""
    limits = rpc.Limits(memory=1 << 20)
    own = rpc.Limits(window=65536)

    async def answers(request: bytes, context: rpc.ServerContext) -> AsyncIterator[bytes]:
        for _ in range(4):
            yield bytes(30_000)

    handlers = {**HANDLERS, "/test/answers": rpc.unary_stream(answers)}
    texts: list[str] = []

    async def read(call: rpc.Call) -> None:
        try:
            async for _ in call:
                pass
        except rpc.RpcError as error:
            texts.append(str(error))

    async with rpc.Server(handlers, limits=limits) as server, AsyncExitStack() as stack:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        light, *heavy = [
            await stack.enter_async_context(channel_to(port, limits=own, provider=provider)) for _ in range(3)
        ]
        for channel in (light, *heavy):
            await channel.unary("/test/echo", b"")
        calls = [channel.call("/test/answers") for channel in heavy for _ in range(40)]
        for call in calls:
            await call.send(b"")
            call.half_close()
        await until(lambda: server.core.budget.used > 2 * limits.memory)
        connections = set(server.core.transports)
        with anyio.fail_after(10):
            assert await light.unary("/test/echo", b"x") == b"x"
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(read, call)
            for channel in heavy:
                assert await channel.unary("/test/echo", b"x") == b"x"
        assert texts
        assert [text for text in texts if "RESOURCE_EXHAUSTED: The server is out of memory" not in text] == []
        assert set(server.core.transports) == connections


async def test_idle_calls_with_metadata_that_fill_the_memory_end_when_another_client_begins_one(provider: str) -> None:
    limits = rpc.Limits(memory=2 << 20)
    running, refused = list[rpc.Call](), list[str]()
    async with rpc.Server(HANDLERS, limits=limits) as server:
        port = (await server.listen(OWN_HOST, 0, provider=provider)).address.port or 0
        async with channel_to(port, provider=provider) as heavy, channel_to(port, provider=provider) as light:
            await light.unary("/test/echo", b"")
            for call in [heavy.call("/test/mirror", metadata=[("key", "x" * 15_000)]) for _ in range(300)]:
                try:
                    await call.send(b"x")
                    await call.recv()
                    running.append(call)
                except rpc.RpcError as error:
                    refused.append(str(error))
            assert refused
            assert [text for text in refused if "RESOURCE_EXHAUSTED: The server is out of memory" not in text] == []
            assert limits.memory < server.core.budget.running < limits.memory + 20_000
            with anyio.fail_after(10):
                assert await light.unary("/test/echo", b"x") == b"x"
                await until(lambda: any(call.over for call in running))
            assert len(server.core.transports) == 2
            for call in running:
                call.cancel()
            await until(lambda: not server.core.budget.running)


@asynccontextmanager
async def unread_answers(provider: str) -> AsyncIterator[tuple[rpc.Server, rpc.Channel, Any]]:
    """A server whose memory is used up by the answers that a client leaves unread, another client, and that client."""

    async def answers(request: bytes, context: rpc.ServerContext) -> AsyncIterator[bytes]:
        for _ in range(10):
            yield bytes(16_000)

    request = struct.pack("<QH", NO_TIMEOUT, 13) + b"/test/answers"
    handlers = {**HANDLERS, "/test/answers": rpc.unary_stream(answers)}
    async with rpc.Server(handlers, limits=rpc.Limits(memory=1 << 20)) as server:
        address = (await server.listen(OWN_HOST, 0, provider=provider)).address
        async with (
            channel_to(address.port or 0, provider=provider) as channel,
            await aiofabric.connect(address, provider=provider, recv_size=65600) as hostile,
        ):
            await channel.unary("/test/echo", b"")
            await hostile.send(PREFACE)
            flags = Flag.MESSAGE | Flag.END
            # In one message, before the first answer: the kernel takes a part of the 16 MB.
            starts = [frame(Kind.START, id, request, field=0xFFFF, flags=flags) for id in range(1, 101)]
            await hostile.send(b"".join(starts))
            await until(lambda: server.core.budget.exhausted and not server.core.tasks)
            with pytest.raises(rpc.RpcError, match="RESOURCE_EXHAUSTED: The server is out of memory for calls"):
                await channel.unary("/test/echo", b"x")
            yield server, channel, hostile


def frames(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Kind, field and payload of each frame of a fabric message."""
    while message:
        kind, _, field, length, _ = HEADER.unpack_from(message)
        yield kind, field, message[HEADER.size : HEADER.size + length]
        message = message[HEADER.size + length :]


async def test_answers_that_a_client_begins_to_read_leave_and_its_connection_goes_on(provider: str) -> None:
    async with unread_answers(provider) as (server, channel, client):
        statuses = 0
        with anyio.fail_after(30):
            while statuses < 100:
                statuses += sum(kind == Kind.STATUS for kind, _, _ in frames(await client.recv()))
            await until(lambda: not server.core.memory_reclaim.leaving)
            assert await channel.unary("/test/echo", b"x") == b"x"
            await client.send(start(101, b"/test/none"))
            ((kind, field, _),) = frames(await client.recv())
            assert (kind, field) == (Kind.STATUS, rpc.StatusCode.UNIMPLEMENTED)


async def test_a_client_that_reads_no_answers_is_told_why_its_connection_ends(
    provider: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aiofabric.rpc.runtime.transport.LINGER", 30.0)
    async with unread_answers(provider) as (server, channel, client):
        with anyio.fail_after(30):
            await until(lambda: any(transport.connection.failed for transport in server.core.transports))
            ends: list[tuple[int, bytes]] = []
            while not ends:
                ends += [(field, text) for kind, field, text in frames(await client.recv()) if kind == Kind.GOAWAY]
        ((reason, text),) = ends
        assert reason == GoAwayReason.LIMIT
        assert b"The client does not read" in text
        await until(lambda: not server.core.budget.exhausted)
        assert await channel.unary("/test/echo", b"x") == b"x"
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "The server has ended the connection with the client" in warning
    assert text.decode() in warning


async def test_a_client_that_goes_on_to_read_nothing_loses_its_connection(provider: str) -> None:
    async with unread_answers(provider) as (server, channel, _):
        with anyio.fail_after(30):
            await until(lambda: len(server.core.transports) == 1)
            assert await channel.unary("/test/echo", b"x") == b"x"
