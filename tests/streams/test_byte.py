"""FabricStream over real endpoints: ends, strictness, zero-copy, attributes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import anyio
import pytest
from anyio.abc import SocketAttribute

from aiofabric import FabricBrokenPipeError, FabricConnectionResetError
from aiofabric.channel.connect import HELLO
from aiofabric.streams import FabricAttribute, FabricStream
from tests.fixtures.internals import channel_of
from tests.fixtures.providers import HOST
from tests.streams.pairs import clog, over_fabric

pytestmark = pytest.mark.anyio

Streams: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[FabricStream, FabricStream]]]
BIG = os.urandom(1 << 20) * 8


@pytest.fixture
def streams(provider: str) -> Streams:
    """``async with streams() as (one, other)``: both ends of a connection."""

    @asynccontextmanager
    async def connected() -> AsyncIterator[tuple[FabricStream, FabricStream]]:
        one, other = map(FabricStream, await over_fabric(provider))
        async with one, other:
            yield one, other

    return connected


async def receive_exactly(stream: FabricStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += await stream.receive(size - len(data))
    return bytes(data)


async def drain(stream: FabricStream) -> None:
    """Receive until that raises."""
    while True:
        await stream.receive()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_any_buffer_of_any_size(streams: Streams, kind: type) -> None:
    async with streams() as (one, other):
        for size in (1, 100, 16384, 16385, 65536, 65537, 1 << 20):
            async with anyio.create_task_group() as tg:
                tg.start_soon(one.send, kind(BIG[:size]))
                assert await receive_exactly(other, size) == BIG[:size]


async def test_the_end_shows_without_receiving_once_everything_was_taken(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.send(b"last words")
        assert not one.ended
        await one.aclose()  # which waits until the other side has confirmed it
        assert one.ended
        assert other.readable
        assert not other.ended
        assert await other.receive(4) == b"last"
        assert not other.ended
        assert await other.receive() == b" words"
        assert other.ended
        with pytest.raises(anyio.EndOfStream):
            await other.receive()


async def test_abort_closes_without_waiting_and_wakes_who_does(streams: Streams) -> None:
    async with streams() as (one, other):
        ended = list[type[Exception]]()

        async def receive(stream: FabricStream) -> None:
            try:
                await stream.receive()
            except Exception as error:
                ended.append(type(error))

        async with anyio.create_task_group() as tg:
            tg.start_soon(receive, one)
            await anyio.wait_all_tasks_blocked()
            one.abort()
            one.abort()
        assert ended == [anyio.ClosedResourceError]
        with pytest.raises(anyio.ClosedResourceError):
            await one.send(b"more")
        with pytest.raises(anyio.BrokenResourceError):
            await other.receive()
        assert other.ended


async def test_both_directions_at_once(streams: Streams) -> None:
    async with streams() as (one, other), anyio.create_task_group() as tg:
        tg.start_soon(one.send, BIG)
        tg.start_soon(other.send, BIG)
        assert await receive_exactly(other, len(BIG)) == BIG
        assert await receive_exactly(one, len(BIG)) == BIG


async def test_receive_gives_at_most_what_was_asked_for(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.send(b"abcdef")
        assert [await other.receive(n) for n in (1, 2, 100)] == [b"a", b"bc", b"def"]


async def test_receive_into(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.send(b"abcdef")
        buffer = bytearray(b"........")
        assert await other.receive_into(memoryview(buffer)[1:5]) == 4
        assert buffer == b".abcd..."
        assert await other.receive_into(buffer) == 2
        with pytest.raises(ValueError, match="empty"):
            await other.receive_into(bytearray())
        for unfit in (b"read-only", memoryview(bytearray(8))[::2]):
            with pytest.raises(BufferError):
                await one.receive_into(unfit)


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
async def test_a_wrong_size_is_refused_at_once(streams: Streams, size: int, error: type[Exception]) -> None:
    async with streams() as (one, other):
        await one.send(b"x")
        with pytest.raises(error):
            await other.receive(size)
        assert await other.receive() == b"x"


async def test_after_send_eof_the_other_direction_goes_on(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.send(b"last")
        await one.send_eof()
        await one.send_eof()
        with pytest.raises(anyio.ClosedResourceError):
            await one.send(b"more")
        with pytest.raises(anyio.ClosedResourceError):
            await one.send(b"")
        assert await other.receive() == b"last"
        for _ in range(2):
            with pytest.raises(anyio.EndOfStream):
                await other.receive()
        await other.send(b"answer")
        assert await one.receive() == b"answer"


async def test_an_orderly_close_loses_nothing(streams: Streams) -> None:
    async with streams() as (one, other):
        async with anyio.create_task_group() as tg:
            tg.start_soon(one.send, BIG[:1_000_000])
        await one.aclose()
        assert await receive_exactly(other, 1_000_000) == BIG[:1_000_000]
        with pytest.raises(anyio.EndOfStream):
            await other.receive()
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await other.send(b"x")
        assert isinstance(caught.value.__cause__, FabricBrokenPipeError)


async def test_a_close_takes_nothing_from_a_peer_that_was_sending(streams: Streams) -> None:
    async with streams() as (one, other):
        await other.send(BIG[:300_000])
        await one.send(BIG[:300_000])
        await one.aclose()
        assert await receive_exactly(other, 300_000) == BIG[:300_000]
        with pytest.raises(anyio.EndOfStream):
            await other.receive()


async def test_iterating_ends_with_the_stream(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.send(b"abc")
        await one.aclose()
        assert [chunk async for chunk in other] == [b"abc"]


async def test_an_abrupt_end_is_a_broken_stream(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.send(b"before")
        channel_of(one).abort()
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await drain(other)
        assert isinstance(caught.value.__cause__, FabricConnectionResetError)
        with pytest.raises(anyio.BrokenResourceError):
            await other.send(b"x")
        with pytest.raises(anyio.BrokenResourceError):
            await other.wait_send_might_not_block()


async def test_receiving_into_memory_ends_as_receiving_does(streams: Streams) -> None:
    buffer = bytearray(10)
    async with streams() as (one, other):
        await one.send(b"last")
        await one.aclose()
        assert await other.receive_into(buffer) == 4
        for _ in range(2):
            with pytest.raises(anyio.EndOfStream):
                await other.receive_into(buffer)
    async with streams() as (one, other):
        await one.send(b"before")
        channel_of(one).abort()

        async def receive_all() -> None:
            while True:
                assert buffer[: await other.receive_into(buffer)] == b"before"

        with pytest.raises(anyio.BrokenResourceError) as caught:
            await receive_all()
        assert isinstance(caught.value.__cause__, FabricConnectionResetError)


async def test_a_closed_stream_announces_no_end(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await one.send_eof()
        other.abort()
        with pytest.raises(anyio.ClosedResourceError):
            await other.send_eof()


async def test_a_slow_reader_stops_the_writer(streams: Streams) -> None:
    async with streams() as (one, other), anyio.create_task_group() as tg:
        tg.start_soon(one.send, BIG)
        await anyio.wait_all_tasks_blocked()
        before = one.statistics()
        assert before.send_credits < 1 << 15
        assert before.send_queued + before.bytes_sent == len(BIG)
        held = other.statistics().receive_queued
        assert held <= HELLO.window
        assert await receive_exactly(other, len(BIG)) == BIG
    assert one.statistics().send_queued == 0


async def test_a_send_that_waits_and_is_cancelled_breaks_the_stream(streams: Streams) -> None:
    async with streams() as (one, other):
        with anyio.move_on_after(0.05) as scope:
            await one.send(BIG)
        assert scope.cancelled_caught
        with pytest.raises(anyio.BrokenResourceError, match="cancelled"):
            await one.send(b"x")
        with pytest.raises(anyio.BrokenResourceError, match="cancelled"):
            await one.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await drain(other)
        assert other.statistics().bytes_received < len(BIG)


async def test_a_send_that_is_cancelled_after_everything_went_out_has_sent_it(streams: Streams) -> None:
    async with streams() as (one, other):
        count = 0
        with anyio.CancelScope() as scope:
            scope.cancel()
            while True:  # on asyncio a send that need not wait is a checkpoint only once in a while
                count += 1
                await one.send(b"whole")
        assert scope.cancelled_caught
        await one.send(b"more")
        assert await receive_exactly(other, 5 * count + 4) == b"whole" * count + b"more"


async def test_a_waiting_receive_ends_when_its_stream_is_closed(streams: Streams) -> None:
    async with streams() as (one, _), anyio.create_task_group() as tg:

        async def receive() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await one.receive()

        tg.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        await one.aclose()


async def test_waiting_until_a_send_might_not_block(streams: Streams) -> None:
    async with streams() as (one, other):
        await one.wait_send_might_not_block()
        held_back = clog(channel_of(one))
        with anyio.move_on_after(0.01) as scope:
            await one.wait_send_might_not_block()
        assert scope.cancelled_caught
        async with anyio.create_task_group() as tg:
            tg.start_soon(one.wait_send_might_not_block)
            await anyio.wait_all_tasks_blocked()
            await receive_exactly(other, held_back)


async def test_typed_attributes(streams: Streams, provider: str) -> None:
    async with streams() as (one, other):
        assert one.extra(FabricAttribute.provider) == provider
        assert one.extra(FabricAttribute.remote_address) == other.extra(FabricAttribute.local_address)
        assert one.extra(FabricAttribute.info).fabric_attr.prov_name == provider
        with pytest.raises(anyio.TypedAttributeLookupError):
            one.extra(SocketAttribute.raw_socket)
        port = one.extra(SocketAttribute.remote_port)
        assert one.extra(SocketAttribute.remote_address) == (HOST, port)
        assert other.extra(SocketAttribute.local_address) == (HOST, port)
        assert other.extra(SocketAttribute.local_port) == port
        assert one.extra(SocketAttribute.family).name == "AF_INET"


@pytest.mark.parametrize("call", ["send_eof", "wait_send_might_not_block", "aclose"])
async def test_a_call_that_need_not_wait_is_cancelled_before_it_changes_anything(streams: Streams, call: str) -> None:
    async with streams() as (one, other):
        if call == "aclose":
            one.abort()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await getattr(one, call)()
        assert scope.cancelled_caught
        if call != "aclose":
            await one.send(b"still open")
            assert await other.receive() == b"still open"
