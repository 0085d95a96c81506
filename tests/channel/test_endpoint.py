"""EndpointChannel against a peer that the test controls: credits, invalid frames, ends."""

# Privates: `_taken` says which credits are owed and not granted yet; statistics count those that were granted.

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aiofabric.channel.connect import HELLO
from aiofabric.channel.frames import CLOSE, DATA, END, FRAME_COST, GRANT, PLAIN, Hello, header
from tests.fixtures.internals import source_of
from tests.streams.pairs import clog, over_fabric

if TYPE_CHECKING:
    from aiofabric.channel.base import ByteChannel
    from tests.channel.raw import Peers

pytestmark = pytest.mark.anyio

FRAMES = HELLO.window // (HELLO.payload + FRAME_COST)  # of the longest, in the window


async def send_for_ever(channel: ByteChannel) -> None:
    while True:
        await channel.send(b"x")


async def closed(channel: ByteChannel) -> None:
    event = anyio.Event()
    channel.close(event.set)
    await event.wait()


async def test_a_small_send_is_one_message_with_its_header(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await channel.send(b"hello")
        assert await raw.recv() == PLAIN + b"hello"
        await raw.send(PLAIN + b"world")
        assert await channel.recv(100) == b"world"


async def test_frames_are_no_larger_than_the_peers_buffers(peers: Peers) -> None:
    async with peers(Hello(recv_size=1004, window=1 << 20)) as (channel, raw):
        async with anyio.create_task_group() as tg:
            tg.start_soon(channel.send, bytes(5500))
            sizes = [len(await raw.recv()) for _ in range(6)]
        assert sizes == [1004] * 5 + [504]


async def test_nothing_is_sent_without_credit(peers: Peers) -> None:
    async with peers(Hello(recv_size=65540, window=1000)) as (channel, raw), anyio.create_task_group() as tg:
        tg.start_soon(channel.send, bytes(2000))
        first = len(await raw.recv()) - 4
        assert first == 1000 - FRAME_COST
        with anyio.move_on_after(0.05) as scope:
            await raw.recv()
        assert scope.cancelled_caught
        await raw.send(header(GRANT, 500))
        second = len(await raw.recv()) - 4
        assert second == 500 - FRAME_COST
        assert channel.unsent == 2000 - first - second
        await raw.send(header(GRANT, 1000))
        assert len(await raw.recv()) - 4 == 2000 - first - second


async def test_credits_come_back_when_bytes_are_taken_and_not_before(peers: Peers) -> None:
    async with peers() as (channel, raw):
        cost, sent = 60_000 + FRAME_COST, 0
        while (sent + 1) * cost <= HELLO.window:
            await raw.send(PLAIN + bytes(60_000))
            sent += 1
        with anyio.move_on_after(0.05) as scope:
            await raw.recv()
        assert scope.cancelled_caught
        assert channel.statistics().receive_queued == sent * 60_000
        granted = 0
        for _ in range(sent):
            await channel.recv(60_000)
        while granted * 2 < sent * cost:
            word = int.from_bytes(await raw.recv(), "little")
            assert word & 0xFF == GRANT
            granted += word >> 8
        assert granted <= sent * cost


async def test_closing_drops_data_that_was_not_received(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await raw.send(PLAIN + bytes(60_000))
        while not channel.statistics().receive_queued:
            await channel.checkpoint()
            channel.poll()
        channel.close(lambda: None)
        assert channel.statistics().receive_queued == 0
        assert channel.ended


async def test_a_part_of_a_frame_gives_a_part_of_its_credits(peers: Peers) -> None:
    async with peers() as (channel, raw):
        before = channel.statistics().receive_credits
        for _ in range(20):
            await raw.send(PLAIN + bytes(60_000))
        for _ in range(300):
            assert len(await channel.recv(4000)) == 4000
        assert int.from_bytes(await raw.recv(), "little") >> 8 >= HELLO.window // 2
        assert channel.statistics().receive_credits + channel._taken == before


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b""], "frame of 0 bytes"),
        ([b"\0\0\0"], "frame of 3 bytes"),
        ([b"\x09\0\0\0"], "unknown kind 9"),
        ([PLAIN], "without bytes"),
        ([header(DATA, 1) + b"x"], "more credits"),
        ([header(GRANT, (1 << 24) - 1)], "more credits"),
        ([header(END, 0), PLAIN + b"x"], "after the end"),
        ([PLAIN + bytes(HELLO.payload)] * (FRAMES + 1), "without credit"),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_dropped(peers: Peers, frames: list[bytes], reason: str) -> None:
    async with peers() as (channel, raw):
        with anyio.move_on_after(5) as scope:
            with pytest.raises(ConnectionError):  # noqa: PT012 (the end comes while we send or while we listen)
                for frame in frames:
                    await raw.send(frame)
                while True:
                    await raw.recv()
        assert not scope.cancelled_caught
        with pytest.raises(ConnectionAbortedError, match=reason):
            await channel.recv(100)
        with pytest.raises(ConnectionAbortedError, match=reason):
            await channel.send(b"x")


async def test_an_end_without_a_word_is_an_error_after_everything_that_arrived(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await raw.send(PLAIN + b"abc")
        await raw.aclose()
        assert await channel.recv(2) == b"ab"
        assert await channel.recv(2) == b"c"
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                await channel.recv(2)


async def test_an_end_with_a_word_is_an_end_even_if_the_peer_is_lost_afterwards(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await raw.send(PLAIN + b"abc")
        await raw.send(header(END, 0))
        await raw.aclose()
        assert [await channel.recv(10) for _ in range(3)] == [b"abc", b"", b""]
        with pytest.raises(ConnectionResetError):
            await send_for_ever(channel)


async def test_a_close_is_answered_with_a_close_at_once(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await raw.send(PLAIN + b"abc")
        await raw.send(header(CLOSE, 0))
        assert await raw.recv() == header(CLOSE, 0)
        with pytest.raises(BrokenPipeError):
            await channel.send(b"x")
        assert [await channel.recv(10) for _ in range(2)] == [b"abc", b""]
        await closed(channel)


async def test_closing_waits_for_the_answer(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await channel.send(b"last")
        done = anyio.Event()
        channel.close(done.set)
        assert [await raw.recv() for _ in range(2)] == [PLAIN + b"last", header(CLOSE, 0)]
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        await raw.send(PLAIN + b"too late")
        await raw.send(header(CLOSE, 0))
        await done.wait()


@pytest.mark.parametrize("count", [3, 10_000])
async def test_the_length_of_what_is_sent_is_counted_in_bytes(peers: Peers, count: int) -> None:
    async with peers() as (channel, raw):
        numbers = array("i", range(count))
        await channel.send(numbers)
        assert bytes(await raw.recv())[4:] == numbers.tobytes()
        assert channel.statistics().bytes_sent == 4 * count


async def test_each_end_is_announced_once(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await channel.send(b"spends credits")
        assert await raw.recv() == PLAIN + b"spends credits"
        channel.shutdown_write()
        for _ in range(3):
            await raw.send(header(GRANT, 1))  # each one lets the channel send what it has
        assert await raw.recv() == header(END, 0)
        async with anyio.create_task_group() as tg:
            tg.start_soon(closed, channel)
            assert await raw.recv() == header(CLOSE, 0)
            await raw.send(header(GRANT, 1))
            await raw.send(header(CLOSE, 0))
        with pytest.raises(ConnectionResetError):  # the channel has both, and ends the connection
            pytest.fail(f"one more frame: {await raw.recv()!r}")


async def test_closing_sends_what_was_posted_first(peers: Peers) -> None:
    async with peers(Hello(recv_size=65540, window=1000)) as (channel, raw):
        told: list[Any] = []
        channel.post(memoryview(bytes(1500)), told.append)
        done = anyio.Event()
        channel.close(done.set)
        assert len(await raw.recv()) == 1000 - FRAME_COST + 4
        assert told == []
        await raw.send(header(GRANT, 1000))
        assert len(await raw.recv()) == 1500 - (1000 - FRAME_COST) + 4
        assert await raw.recv() == header(CLOSE, 0)
        await raw.send(header(CLOSE, 0))
        await done.wait()
        assert told == [None]


async def test_closing_ends_when_the_peer_is_lost(peers: Peers) -> None:
    async with peers() as (channel, raw):
        done = anyio.Event()
        channel.close(done.set)
        await raw.recv()
        await raw.aclose()
        await done.wait()


async def test_both_ends_close_at_once(provider: str) -> None:
    one, other = await over_fabric(provider)
    async with anyio.create_task_group() as tg:
        tg.start_soon(closed, one)
        tg.start_soon(closed, other)


async def test_what_was_posted_is_told_of_an_abort(peers: Peers) -> None:
    async with peers(Hello(recv_size=65540, window=1000)) as (channel, _):
        told: list[Any] = []
        clog(channel)
        channel.post(memoryview(bytes(1500)), told.append)
        writable = anyio.Event()
        channel.when_writable(writable.set)
        error = ConnectionAbortedError("enough")
        channel.abort(error)
        await writable.wait()
        assert told == [error]
        with pytest.raises(ConnectionAbortedError, match="enough"):
            channel.try_send(memoryview(b"x"))


async def test_small_posts_share_a_frame_when_credit_comes(peers: Peers) -> None:
    async with peers(Hello(recv_size=65540, window=1000)) as (channel, raw):
        assert channel.try_send(memoryview(bytes(900))) == 900
        told: list[Any] = []
        for letter in b"abc":
            channel.post(memoryview(bytes([letter]) * 10), told.append)
        assert len(await raw.recv()) == 904
        assert told == []
        await raw.send(header(GRANT, 500))
        assert await raw.recv() == PLAIN + b"a" * 10 + b"b" * 10 + b"c" * 10
        assert told == [None] * 3


@pytest.mark.parametrize("first", [[b"abc"], [b"ab", b"c"]], ids=["one", "joined"])
async def test_who_is_told_and_sends_at_once_comes_after_what_it_was_told_of(peers: Peers, first: list[bytes]) -> None:
    async with peers(Hello(recv_size=65540, window=1000)) as (channel, raw):
        assert channel.try_send(memoryview(bytes(900))) == 900

        def done(_: BaseException | None) -> None:
            if not channel.unsent:
                assert channel.try_send(b"d") == 1

        for item in first:
            channel.post(memoryview(item), done if item is first[-1] else lambda _: None)
        assert len(await raw.recv()) == 904
        await raw.send(header(GRANT, 500))
        assert [await raw.recv() for _ in range(2)] == [PLAIN + b"abc", PLAIN + b"d"]


async def test_try_send_uses_exactly_the_credits_that_are_left(peers: Peers) -> None:
    async with peers(Hello(recv_size=1004, window=1000 + 10 + 2 * FRAME_COST)) as (channel, raw):
        assert channel.try_send(bytes(1000)) == 1000
        assert channel.try_send(bytes(11)) == 0
        assert channel.try_send(bytes(10)) == 10
        assert channel.try_send(b"x") == 0
        assert [len(await raw.recv()) for _ in range(2)] == [1004, 14]


async def test_a_closed_channel_has_no_interest_in_its_queue(peers: Peers) -> None:
    """A queue without a descriptor is polled while there is an interest in it."""
    async with peers() as (first, _):
        source = source_of(first)
        before = source.interest
        async with peers() as (second, raw):
            assert source_of(second) is source
            assert source.interest == before + 1
            await raw.aclose()
            await closed(second)
            assert source.interest == before


async def test_a_peer_may_fill_the_window(peers: Peers) -> None:
    async with peers() as (channel, raw):
        for _ in range(FRAMES):
            await raw.send(PLAIN + bytes(HELLO.payload))
        received = 0
        while received < FRAMES * HELLO.payload:
            received += len(await channel.recv(HELLO.payload))
        assert received == FRAMES * HELLO.payload
