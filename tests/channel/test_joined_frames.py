"""A protocol gets the small frames of one read of the queue together, in order with everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from anyio.lowlevel import checkpoint

from aiofabric.channel.frames import END, PLAIN, header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiofabric import MessageEndpoint
    from aiofabric.channel.endpoint import EndpointChannel
    from tests.channel.raw import Peers

pytestmark = pytest.mark.anyio

SMALL = [b"%03d" % number for number in range(20)]
LARGE = b"L" * 20_000


async def arrive(channel: EndpointChannel, raw: MessageEndpoint, parts: Sequence[bytes], *, end: bool = False) -> None:
    """All of them before this side reads its queue again."""
    before = channel.statistics().bytes_received
    for part in parts:
        raw.send_nowait(PLAIN + part)
    if end:
        raw.send_nowait(header(END, 0))
    while channel.statistics().bytes_received < before + sum(map(len, parts)) or (end and not channel.readable):
        await checkpoint()
        channel.poll()


async def test_small_frames_arrive_together(peers: Peers) -> None:
    async with peers() as (channel, raw):
        calls: list[bytes] = []
        channel.feed_to(calls.append, None, None, None)
        await arrive(channel, raw, SMALL)
        assert b"".join(calls) == b"".join(SMALL)
        assert len(calls) < len(SMALL) // 2


async def test_small_frames_arrive_together_in_a_buffer(peers: Peers) -> None:
    memory = bytearray(1000)
    counts: list[int] = []
    async with peers() as (channel, raw):
        channel.feed_to(None, lambda _: memoryview(memory)[sum(counts) :], counts.append, None)
        await arrive(channel, raw, SMALL)
        assert memory[: sum(counts)] == b"".join(SMALL)
        assert len(counts) < len(SMALL) // 2


async def test_a_large_frame_arrives_behind_the_small_ones_before_it(peers: Peers) -> None:
    async with peers() as (channel, raw):
        calls: list[bytes] = []
        channel.feed_to(calls.append, None, None, None)
        await arrive(channel, raw, [*SMALL, LARGE, *SMALL])
        assert b"".join(calls) == b"".join([*SMALL, LARGE, *SMALL])


async def test_a_protocol_that_stops_to_read_leaves_the_rest(peers: Peers) -> None:
    async with peers() as (channel, raw):
        calls: list[bytes] = []

        def take(data: bytes) -> None:
            calls.append(data)
            channel.feed_to(None, None, None, None)

        channel.feed_to(take, None, None, None)
        await arrive(channel, raw, [*SMALL, LARGE, *SMALL])
        assert len(calls) == 1
        rest = channel.try_recv(1 << 20) or b""
        assert calls[0] + rest == b"".join([*SMALL, LARGE, *SMALL])


async def test_the_end_comes_behind_the_frames_of_the_same_read(peers: Peers) -> None:
    async with peers() as (channel, raw):
        calls: list[bytes] = []

        def take() -> None:
            while channel.readable:
                calls.append(channel.try_recv(1000) or b"")
                if not calls[-1]:
                    channel.watch(None)
                    return

        channel.feed_to(calls.append, None, None, None)
        channel.watch(take)
        await arrive(channel, raw, SMALL, end=True)
        assert calls[-1] == b""
        assert b"".join(calls) == b"".join(SMALL)


async def test_a_protocol_that_fails_ends_nothing_else(peers: Peers) -> None:
    async with peers() as (channel, raw):
        failures: list[BaseException] = []

        def fail(data: bytes) -> None:
            raise RuntimeError(f"it got {len(data)} bytes")

        channel.feed_to(fail, None, None, failures.append)
        await arrive(channel, raw, SMALL)
        assert failures
        calls: list[bytes] = []
        channel.feed_to(calls.append, None, None, None)
        await arrive(channel, raw, SMALL)
        assert b"".join(calls) == b"".join(SMALL)


async def test_a_channel_that_closes_in_the_same_read_gets_nothing_more(peers: Peers) -> None:
    async with peers() as (channel, raw):
        calls: list[bytes] = []
        other: list[bytes] = []
        before: list[int] = []
        async with peers() as (second, its_raw):

            def take(data: bytes) -> None:
                other.append(data)
                channel.abort()
                before.append(len(calls))

            channel.feed_to(calls.append, None, None, None)
            second.feed_to(take, None, None, None)
            for _ in range(5):
                its_raw.send_nowait(PLAIN + LARGE)
                raw.send_nowait(PLAIN + b"small")
            while len(b"".join(other)) < 5 * len(LARGE):
                await checkpoint()
                second.poll()
            await checkpoint()
            assert len(calls) == before[0]
