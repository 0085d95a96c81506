"""Large frames that no task has taken stay in the memory of the pool, and the frames without data still arrive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiofabric.channel.connect import HELLO
from aiofabric.channel.frames import END, FRAME_COST, PLAIN, header
from aiofabric.streams import FabricStream
from tests.channel.scripted import Channel
from tests.streams.pairs import over_fabric

if TYPE_CHECKING:
    from tests.channel.raw import Peers

pytestmark = pytest.mark.anyio

LARGE = HELLO.payload
FRAMES = HELLO.window // (LARGE + FRAME_COST)
SIZES = [LARGE, 1, 40_000, 8_192, 8_191, 65_536, 17, 65_536, 65_536]


def pattern(size: int, seed: int) -> bytes:
    return bytes((seed + number * 7) % 251 for number in range(256)) * (size // 256 + 1)


@pytest.mark.parametrize("most", [1000, 65_536, 1 << 20])
@pytest.mark.parametrize("into", [False, True])
async def test_frames_of_all_sizes_arrive_as_they_were_sent(peers: Peers, most: int, into: bool) -> None:
    frames = [pattern(size, number)[:size] for number, size in enumerate(SIZES)]
    async with peers() as (channel, raw):
        for frame in frames:
            await raw.send(PLAIN + frame)
        while channel.statistics().frames_received < len(frames):
            await checkpoint()
            channel.poll()
        assert channel.statistics().receive_queued == sum(SIZES)
        received, room = bytearray(), bytearray(most)
        while len(received) < sum(SIZES):
            if into:
                received += room[: await channel.recv_into(room)]
            else:
                received += await channel.recv(most)
        assert received == b"".join(frames)


async def test_the_end_arrives_while_the_window_is_full_of_large_frames(peers: Peers) -> None:
    async with peers() as (channel, raw):
        for last in (False, False, True):  # the memory that is kept is given back
            before = channel.statistics()
            count = before.receive_credits // (LARGE + FRAME_COST)
            for _ in range(count):
                await raw.send(PLAIN + bytes(LARGE))
            if last:
                await raw.send(header(END, 0))
            while channel.statistics().frames_received < before.frames_received + count:
                await checkpoint()
                channel.poll()
            received = 0
            while received < count * LARGE:
                received += len(await channel.recv(1 << 20))
            assert received == count * LARGE
        assert await channel.recv(1) == b""


async def test_data_of_a_peer_that_is_gone_can_still_be_taken(peers: Peers) -> None:
    frame = pattern(65_536, 3)[:65_536]
    async with peers() as (channel, raw):
        for _ in range(5):
            await raw.send(PLAIN + frame)
        await raw.aclose()
        for _ in range(5):
            assert await channel.recv(65_536) == frame
        with pytest.raises(ConnectionResetError):
            await channel.recv(1)


@pytest.mark.parametrize("way", ["close", "abort"])
async def test_a_channel_ends_with_large_frames_that_nobody_took(peers: Peers, way: str) -> None:
    async with peers() as (channel, raw):
        for _ in range(FRAMES):
            await raw.send(PLAIN + bytes(LARGE))
        while channel.statistics().frames_received < FRAMES:
            await checkpoint()
            channel.poll()
        if way == "abort":
            channel.abort()
        else:
            channel.close(lambda: None)
        assert channel.statistics().receive_queued == 0


async def test_both_ends_write_a_lot_before_they_read(provider: str) -> None:
    one, other = map(FabricStream, await over_fabric(provider))
    total = 3 * HELLO.window
    async with one, other, anyio.create_task_group() as tg:
        for stream in (one, other):
            tg.start_soon(stream.send, bytes(total))
        await anyio.wait_all_tasks_blocked()

        async def read(stream: FabricStream) -> None:
            received = 0
            while received < total:
                received += len(await stream.receive(100_000))

        for stream in (one, other):
            tg.start_soon(partial(read, stream))


def test_a_watcher_that_takes_a_part_leaves_the_rest_although_the_memory_is_used_again() -> None:
    peer, took = Channel(), list[bytes | None]()
    frame = bytearray(PLAIN + b"world")
    peer.channel.watch(lambda: took.append(peer.channel.try_recv(2)))
    peer.endpoint.on_message(memoryview(frame))
    frame[:] = bytes(len(frame))
    peer.comes(PLAIN + b"!")
    assert took == [b"wo"]
    assert peer.channel.try_recv(9) == b"rld!"
