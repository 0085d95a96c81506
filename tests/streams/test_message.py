"""MessageStream: boundaries, packing, limits, ends."""

# Privates: `_strict` says whether each await is a checkpoint.

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest

from aiofabric import FabricConnectionRefusedError, MessageTooLongError
from aiofabric._core import STREAK
from aiofabric.streams import MessageStream, connect_messages, connect_stream, listen_messages, listen_stream
from tests.fixtures.internals import channel_of
from tests.fixtures.providers import HOST

pytestmark = pytest.mark.anyio

Streams: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[MessageStream, MessageStream]]]
BIG = os.urandom(1 << 20) * 4


@pytest.fixture
def streams(provider: str) -> Streams:
    """``async with streams(**listening) as (active, passive)``: both ends of a connection."""

    @asynccontextmanager
    async def connected(**options: Any) -> AsyncIterator[tuple[MessageStream, MessageStream]]:
        accepted: list[MessageStream] = []

        async def accept() -> None:
            accepted.append(await listener.accept())

        listening = listen_messages(HOST, 0, provider=provider, **options)
        async with listening as listener, anyio.create_task_group() as tg:
            tg.start_soon(accept)
            active = await connect_messages(listener.address, provider=provider)
        async with active, accepted[0] as passive:
            yield active, passive

    return connected


@pytest.mark.parametrize("packing", [True, False])
async def test_boundaries_are_kept(streams: Streams, packing: bool) -> None:
    sizes = [0, 1, 64, 8192, 8193, 0, 0, 65536, 14000, 3, 100_000, 1 << 20, 5]
    async with streams(packing=packing) as (active, passive), anyio.create_task_group() as tg:

        async def send() -> None:
            for size in sizes:
                await active.send(BIG[:size])
            await active.send_eof()

        tg.start_soon(send)
        assert [message async for message in passive] == [BIG[:size] for size in sizes]


async def test_any_contiguous_buffer(streams: Streams) -> None:
    async with streams() as (active, passive):
        for item in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
            await active.send(item)
            assert await passive.receive() == b"abc"


async def test_a_sent_buffer_may_be_changed_at_once(streams: Streams) -> None:
    async with streams() as (active, passive):
        data = bytearray(b"before")
        await active.send(data)
        data[:] = b"after!"
        assert await passive.receive() == b"before"


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("packing", [True, False])
async def test_small_messages_share_frames_where_both_sides_want_it(
    streams: Streams, packing: bool, kind: type[bytes | bytearray]
) -> None:
    async with streams(packing=packing) as (active, passive), anyio.create_task_group() as tg:

        async def send() -> None:
            for number in range(1000):
                await active.send(kind(b"%d" % number))

        tg.start_soon(send)
        assert [int(await passive.receive()) for _ in range(1000)] == list(range(1000))
        frames = active.statistics().frames_sent
        if packing and not channel_of(active)._strict:
            assert frames < 200
        elif not packing:
            assert frames >= 1000 / 16


async def test_requests_and_replies_in_flight(streams: Streams) -> None:
    async with streams() as (active, passive), anyio.create_task_group() as tg:

        async def echo() -> None:
            async for message in passive:
                await passive.send(message)

        tg.start_soon(echo)
        for number in range(64):
            await active.send(b"%d" % number)
        for number in range(64, 2000):
            assert int(await active.receive()) == number - 64
            await active.send(b"%d" % number)
        for number in range(2000 - 64, 2000):
            assert int(await active.receive()) == number
        await active.aclose()


async def test_a_message_longer_than_the_peer_takes_is_refused_before_it_is_sent(streams: Streams) -> None:
    async with streams(max_message_size=1000) as (active, passive):
        with pytest.raises(MessageTooLongError, match="at most 1000"):
            await active.send(bytes(1001))
        await active.send(bytes(1000))
        assert len(await passive.receive()) == 1000


async def test_a_peer_that_announces_too_long_a_message_breaks_the_stream(streams: Streams) -> None:
    async with streams(max_message_size=1000) as (active, passive):
        await channel_of(active).send((1 << 31).to_bytes(4, "little"))
        with pytest.raises(anyio.BrokenResourceError, match="2147483648 bytes"):
            await passive.receive()


@pytest.mark.parametrize("part", [(100).to_bytes(4, "little") + b"half", b"\x64\x00"], ids=["message", "length"])
async def test_an_end_within_a_message_is_a_broken_stream(streams: Streams, part: bytes) -> None:
    async with streams() as (active, passive):
        await active.send(b"whole")
        channel_of(active).flush()
        await channel_of(active).send(part)
        await active.aclose()
        assert await passive.receive() == b"whole"
        with pytest.raises(anyio.BrokenResourceError, match="within a message"):
            await passive.receive()


async def test_packed_messages_leave_before_a_close(streams: Streams) -> None:
    async with streams() as (active, passive):
        for number in range(10):
            await active.send(b"%d" % number)
        await active.aclose()
        assert [int(message) async for message in passive] == list(range(10))


async def test_a_slow_reader_stops_the_writer(streams: Streams) -> None:
    async with streams() as (active, passive), anyio.create_task_group() as tg:
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(10_000):
                await active.send(BIG[:1000])
                sent += 1

        tg.start_soon(send)
        with anyio.move_on_after(0.2):
            await anyio.sleep_forever()
        assert sent < 5000
        for _ in range(10_000):
            assert len(await passive.receive()) == 1000


async def test_closed_and_busy_are_anyios(streams: Streams) -> None:
    async with streams() as (active, passive):
        with pytest.RaisesGroup(anyio.BusyResourceError):
            async with anyio.create_task_group() as tg:
                tg.start_soon(active.receive)
                tg.start_soon(active.receive)
        await active.send_eof()
        with pytest.raises(anyio.ClosedResourceError):
            await active.send(b"")
        with pytest.raises(anyio.EndOfStream):
            await passive.receive()
        await passive.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await passive.send(b"")
        with pytest.raises(anyio.ClosedResourceError):
            await passive.receive()


async def test_bytes_and_messages_do_not_mix(provider: str) -> None:
    async with listen_messages(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.accept)
        with pytest.raises(FabricConnectionRefusedError) as caught:
            await connect_stream(listener.address, provider=provider)
        if provider != "verbs":  # whose private data has no room for the reason
            assert b"stream of messages" in caught.value.param
        tg.cancel_scope.cancel()


async def test_messages_end_at_a_listener_of_bytes(provider: str) -> None:
    async with listen_stream(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.accept)
        with pytest.raises(FabricConnectionRefusedError):
            await connect_messages(listener.address, provider=provider)
        tg.cancel_scope.cancel()


@pytest.mark.parametrize("size", [0, 1 << 32])
async def test_limits_that_the_length_cannot_say(provider: str, size: int) -> None:
    with pytest.raises(ValueError, match="max_message_size"):
        await connect_messages(HOST, 1, provider=provider, max_message_size=size)
    wrong: Any = "64M"
    with pytest.raises(TypeError, match="max_message_size must be a number of bytes, not '64M'"):
        await connect_messages(HOST, 1, provider=provider, max_message_size=wrong)


@pytest.mark.parametrize("size", [1000, 300_000])
async def test_a_message_of_exactly_the_limit_arrives_also_in_pieces(streams: Streams, size: int) -> None:
    """Also where its length and its contents come apart."""
    async with streams(max_message_size=size) as (active, passive):
        data = bytes(size)
        await channel_of(active).send(size.to_bytes(4, "little") + data[: size // 2])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel_of(active).send, data[size // 2 :])
            assert await passive.receive() == data


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_a_message_whose_length_arrives_in_pieces_is_whole(streams: Streams, cut: int) -> None:
    async with streams() as (active, passive):
        length = (300).to_bytes(4, "little")
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                got: list[bytes] = []

                async def receive(into: list[bytes] = got) -> None:
                    into.append(await passive.receive())

                tasks.start_soon(receive)
                await channel_of(active).send(length[:cut])
                await anyio.wait_all_tasks_blocked()
                await channel_of(active).send(length[cut:])
                await anyio.wait_all_tasks_blocked()
                assert got == []
                await channel_of(active).send(BIG[:300])
            assert got == [BIG[:300]]


async def test_nothing_is_packed_after_an_abort(streams: Streams) -> None:
    async with streams() as (active, _):
        await active.send(b"before")
        active.abort()
        for _ in range(2):
            with pytest.raises(anyio.ClosedResourceError):
                await active.send(b"after")
        with pytest.raises(anyio.ClosedResourceError):
            await active.receive()


async def test_both_sides_want_packing_unless_they_say_otherwise(streams: Streams) -> None:
    async with streams() as (active, passive):
        for stream in (active, passive):
            assert channel_of(stream).ours.packing
            assert channel_of(stream).theirs.packing


async def test_a_reader_of_packed_messages_lets_the_loop_iterate_when_its_answers_came_at_once(
    streams: Streams,
) -> None:
    async with streams() as (active, passive), anyio.create_task_group() as tg:
        if channel_of(passive)._strict:
            pytest.skip("on trio, each await is a checkpoint")
        for number in range(20):
            await active.send(b"%d" % number)
        assert await passive.receive() == b"0"
        turns: list[int] = []
        tg.start_soon(checkpointed, turns)
        channel_of(passive)._source.streak = STREAK
        assert await passive.receive() == b"1"
        assert turns == [1]


async def checkpointed(turns: list[int]) -> None:
    turns.append(1)


@pytest.mark.parametrize("way", ["aclose", "abort"])
async def test_a_closed_stream_gives_out_no_message_that_it_had_received(streams: Streams, way: str) -> None:
    async with streams() as (active, passive):
        for _ in range(3):
            await active.send(b"in one frame")
        assert await passive.receive() == b"in one frame"
        if way == "aclose":
            await passive.aclose()
        else:
            passive.abort()
        with pytest.raises(anyio.ClosedResourceError):
            await passive.receive()
