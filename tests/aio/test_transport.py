"""The asyncio transport over real fabric endpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import pytest

from aiofabric import WrongThreadError, aio
from tests.aio.protocols import Buffered, Echo, HalfOpen, Recorder, where

pytestmark = pytest.mark.asyncio

Active = TypeVar("Active", bound=Recorder)
Passive = TypeVar("Passive", bound=Recorder)
Connected: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[Any, Any]]]

BIG = os.urandom(1 << 20) * 8


@pytest.fixture
def connected(provider: str) -> Connected:
    """``async with connected(ActiveProtocol, PassiveProtocol) as (active, passive)``: protocols of both ends."""

    @asynccontextmanager
    async def connect(
        active: Callable[[], Active] = Recorder,  # type: ignore[assignment]
        passive: Callable[[], Passive] = Recorder,  # type: ignore[assignment]
    ) -> AsyncIterator[tuple[Active, Passive]]:
        made: asyncio.Future[Passive] = asyncio.get_running_loop().create_future()

        def factory() -> Passive:
            protocol = passive()
            made.set_result(protocol)
            return protocol

        async with await aio.create_server(factory, "127.0.0.1", 0, provider=provider) as server:
            host, port = where(server)
            _, ours = await aio.create_connection(active, host, port, provider=provider)
            theirs = await made
            await theirs.made
            try:
                yield ours, theirs
            except BaseException:  # the server waits for its connections, so a test that fails would wait for ever
                for protocol in (ours, theirs):
                    protocol.transport.abort()
                raise
            for protocol in (ours, theirs):
                protocol.transport.close()
            await asyncio.gather(ours.lost, theirs.lost)
        await server.wait_closed()

    return connect


async def test_a_block_that_fails_leaves_at_once(connected: Connected) -> None:
    async def fail() -> None:
        async with connected() as (active, _):
            active.transport.write(BIG)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_echo_of_any_size(connected: Connected) -> None:
    async with connected(passive=Echo) as (active, _):
        for size in (1, 64, 5000, 16384, 16385, 65536, 65537, 1 << 20):
            active.transport.write(BIG[:size])
            assert await active.until(size) == BIG[:size]


async def test_a_buffered_protocol_receives_into_its_own_buffer(connected: Connected) -> None:
    async with connected(passive=Buffered) as (active, passive):
        active.transport.write(BIG[:250])
        assert await passive.until(250) == BIG[:250]
        assert passive.filled == [100, 100, 50]
        assert len(passive.buffer) == 100


async def test_writes_keep_their_order_whatever_their_size(connected: Connected) -> None:
    async with connected() as (active, passive):
        sizes = [1, 70000, 3, 20000, 20000, 16384, 1, 1, 1 << 20, 5]
        for size in sizes:
            active.transport.write(BIG[:size])
        sent = b"".join(BIG[:size] for size in sizes)
        assert await passive.until(len(sent)) == sent


async def test_a_written_bytearray_may_be_changed_at_once(connected: Connected) -> None:
    async with connected() as (active, passive):
        for size in (100, 20000, 1 << 20):
            data = bytearray(BIG[:size])
            active.transport.write(data)
            data[:] = bytes(size)
            data.clear()
            assert await passive.until(size) == BIG[:size]


async def test_a_call_from_another_thread_is_refused_and_changes_nothing(connected: Connected) -> None:
    async with connected(passive=Echo) as (active, _):
        transport = active.transport
        for call in (
            lambda: transport.write(b"stray"),
            lambda: transport.write(BIG),
            transport.write_eof,
            transport.pause_reading,
            transport.resume_reading,
            transport.close,
            transport.abort,
        ):
            with pytest.raises(WrongThreadError):
                await asyncio.to_thread(call)
        assert (transport.is_closing(), transport.is_reading(), transport.get_write_buffer_size()) == (False, True, 0)
        transport.write(BIG)
        assert await active.until(len(BIG)) == BIG


@pytest.mark.parametrize("data", ["text", [b"list"], 5])
async def test_only_bytes_like_objects_are_written(connected: Connected, data: Any) -> None:
    async with connected() as (active, _):
        with pytest.raises(TypeError, match="bytes-like"):
            active.transport.write(data)


async def test_a_paused_reader_stops_the_writer(connected: Connected) -> None:
    async with connected() as (active, passive):
        passive.transport.pause_reading()
        assert not passive.transport.is_reading()
        for _ in range(3):
            active.transport.write(BIG)
        assert active.writing_paused == 1
        await asyncio.sleep(0)
        waits = active.transport.get_write_buffer_size()
        assert waits > len(BIG)
        assert not passive.received
        passive.transport.resume_reading()
        await active.writing_resumed.wait()
        assert await passive.until(3 * len(BIG)) == 3 * BIG
        assert active.transport.get_write_buffer_size() == 0


async def test_watermarks_are_the_callers(connected: Connected) -> None:
    async with connected() as (active, passive):
        passive.transport.pause_reading()
        active.transport.set_write_buffer_limits(high=64 << 20, low=0)
        active.transport.write(BIG)
        assert active.writing_paused == 0
        active.transport.set_write_buffer_limits(high=1000, low=100)
        assert active.writing_paused == 1
        assert active.transport.get_write_buffer_limits() == (100, 1000)
        passive.transport.resume_reading()
        await active.writing_resumed.wait()
        await passive.until(len(BIG))


async def test_half_close(connected: Connected) -> None:
    async with connected(HalfOpen, HalfOpen) as (active, passive):
        assert active.transport.can_write_eof()
        active.transport.write(BIG)
        active.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            active.transport.write(b"more")
        await passive.ended
        assert passive.received == BIG
        assert not passive.transport.is_closing()
        passive.transport.write(BIG)
        assert await active.until(len(BIG)) == BIG


async def test_the_end_closes_a_protocol_that_does_not_want_to_go_on(connected: Connected) -> None:
    async with connected() as (active, passive):
        active.transport.write(b"last words")
        active.transport.write_eof()
        assert await passive.lost is None
        assert passive.received == b"last words"
        assert await active.lost is None


async def test_close_sends_everything_first(connected: Connected) -> None:
    async with connected() as (active, passive):
        active.transport.write(BIG)
        active.transport.close()
        assert active.transport.is_closing()
        assert await passive.lost is None
        assert passive.ended.done()
        assert passive.received == BIG
        assert await active.lost is None


async def test_close_with_unread_bytes_takes_nothing_from_the_peer(connected: Connected) -> None:
    """A kernel socket that is closed like this answers with a reset, which destroys data that the peer has not read."""
    async with connected() as (active, passive):
        active.transport.pause_reading()
        passive.transport.pause_reading()
        passive.transport.write(BIG[:300_000])
        active.transport.write(BIG[:300_000])
        active.transport.close()
        assert await active.lost is None
        passive.transport.resume_reading()
        assert await passive.until(300_000) == BIG[:300_000]
        assert await passive.lost is None


async def test_abort_drops_what_waits_and_the_peer_sees_a_reset(connected: Connected) -> None:
    async with connected() as (active, passive):
        passive.transport.pause_reading()
        active.transport.write(BIG)
        active.transport.abort()
        assert await active.lost is None
        passive.transport.resume_reading()
        assert isinstance(await passive.lost, ConnectionResetError)
        assert len(passive.received) < len(BIG)


async def test_a_lost_peer_is_reported_to_a_writer_that_waits(connected: Connected) -> None:
    async with connected() as (active, passive):
        passive.transport.pause_reading()
        active.transport.write(BIG)
        passive.transport.abort()
        assert isinstance(await active.lost, ConnectionError)
        active.transport.write(b"into the void")


async def test_an_error_of_the_protocol_ends_its_connection_alone(connected: Connected) -> None:
    class Faulty(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    async with connected(passive=Faulty) as (active, passive):
        active.transport.write(b"x")
        assert isinstance(await passive.lost, ZeroDivisionError)
        assert isinstance(await active.lost, ConnectionError)
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def test_pausing_in_connection_made_holds(connected: Connected) -> None:
    class Reluctant(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    async with connected(passive=Reluctant) as (active, passive):
        active.transport.write(b"early")
        active.transport.write_eof()
        await passive.made
        assert not passive.transport.is_reading()
        assert not passive.received
        passive.transport.resume_reading()
        assert await passive.until(5) == b"early"


async def test_changing_the_protocol_redirects_what_comes(connected: Connected) -> None:
    async with connected() as (active, passive):
        active.transport.write(b"first")
        assert await passive.until(5) == b"first"
        second = Buffered()
        passive.transport.set_protocol(second)
        assert passive.transport.get_protocol() is second
        active.transport.write(b"second")
        assert await second.until(6) == b"second"
        passive.transport.set_protocol(passive)


async def test_what_programs_ask_of_a_transport(connected: Connected, provider: str) -> None:
    async with connected() as (active, passive):
        ours, theirs = active.transport.get_extra_info, passive.transport.get_extra_info
        assert ours("peername") == theirs("sockname")
        assert ours("sockname") == theirs("peername")
        assert ours("fabric").fabric_attr.prov_name == provider
        sock = ours("socket")
        assert (sock.getsockname(), sock.getpeername()) == (ours("sockname"), ours("peername"))
        assert (ours("sockname")[0], sock.family.name) == ("127.0.0.1", "AF_INET")
        sock.setsockopt(6, 1, 1)
        assert ours("sslcontext") is None
        assert ours("nothing", "default") == "default"
        assert "open" in repr(active.transport)
