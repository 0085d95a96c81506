"""Small sends of one pass of the loop leave as one frame, in order with everything else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from time import sleep
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

import aiofabric
from aiofabric import MessageEndpoint
from aiofabric.channel.connect import HELLO
from aiofabric.channel.frames import CLOSE, END, FRAME_COST, GRANT, PLAIN, Hello, header
from tests.channel.raw import Peers, raw_peers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiofabric.channel.endpoint import EndpointChannel

pytestmark = pytest.mark.anyio


@pytest.fixture
def peers(provider: str) -> Peers:
    """Their passes may take any time: another process may have the core between two sends."""

    @asynccontextmanager
    async def patient(*hello: Hello) -> AsyncIterator[tuple[EndpointChannel, MessageEndpoint]]:
        async with raw_peers(provider)(*hello) as (channel, raw):
            channel.longest_gather = 1 << 60
            yield channel, raw

    return patient


async def a_new_pass(channel: EndpointChannel, raw: MessageEndpoint) -> None:
    """An arriving frame begins one."""
    await raw.send(PLAIN + b"!")
    assert await channel.recv(10) == b"!"


async def test_the_first_send_of_a_pass_leaves_at_once_and_the_others_together(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await a_new_pass(channel, raw)
        for part in (b"first", b"second", bytearray(b"third"), memoryview(b"fourth")):
            assert channel.try_send(part) == len(part)
        assert channel.statistics().frames_sent == 1
        assert channel.unsent == len(b"secondthirdfourth")
        assert [bytes(await raw.recv()) for _ in range(2)] == [PLAIN + b"first", PLAIN + b"secondthirdfourth"]
        assert channel.unsent == 0
        assert channel.statistics().bytes_sent == len(b"firstsecondthirdfourth")


async def test_a_channel_may_send_each_piece_in_its_own_frame(peers: Peers) -> None:
    async with peers() as (channel, raw):
        channel.longest_gather = 0
        await a_new_pass(channel, raw)
        for part in (b"first", b"second"):
            assert channel.try_send(part) == len(part)
        assert channel.statistics().frames_sent == 2
        assert [bytes(await raw.recv()) for _ in range(2)] == [PLAIN + b"first", PLAIN + b"second"]


async def test_a_task_that_waits_for_the_answer_sends_first(peers: Peers) -> None:
    async with peers() as (channel, raw), anyio.create_task_group() as tg:
        await a_new_pass(channel, raw)
        for part in (b"first", b"second"):
            assert channel.try_send(part) == len(part)
        tg.start_soon(channel.recv, 10)
        assert [bytes(await raw.recv()) for _ in range(2)] == [PLAIN + b"first", PLAIN + b"second"]
        await raw.send(PLAIN + b"answer")


@pytest.mark.parametrize("kind", [bytes, bytearray])
async def test_large_data_does_not_overtake_small_data(peers: Peers, kind: type[bytes | bytearray]) -> None:
    async with peers() as (channel, raw):
        await a_new_pass(channel, raw)
        for part in (b"first", b"second"):
            assert channel.try_send(part) == len(part)
        async with anyio.create_task_group() as tg:
            tg.start_soon(channel.send, kind(b"large" * 10_000))
            sent = b"".join([bytes(await raw.recv())[4:] for _ in range(3)])
        assert sent == b"firstsecond" + b"large" * 10_000


async def test_many_small_sends_leave_before_the_pass_ends(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await a_new_pass(channel, raw)
        sent = b"".join(b"%5d" % number for number in range(1000))
        for start in range(0, len(sent), 5):
            assert channel.try_send(sent[start : start + 5]) == 5
        assert 1 < channel.statistics().frames_sent < 100
        assert channel.unsent < 1000
        received = b""
        while len(received) < len(sent):
            received += bytes(await raw.recv())[4:]
        assert received == sent


async def test_small_sends_leave_while_a_long_pass_goes_on(provider: str) -> None:
    async with raw_peers(provider)() as (channel, raw):
        await a_new_pass(channel, raw)
        for part in (b"first", b"second", b"third"):
            channel.try_send(part)
            sleep(0.001)  # noqa: ASYNC251 - no other task runs: the pass goes on
        assert channel.unsent == 0
        assert b"".join([bytes(await raw.recv())[4:] for _ in range(2)]) == b"firstsecondthird"


@pytest.mark.parametrize("way", ["eof", "close"])
async def test_the_end_comes_after_what_was_gathered(peers: Peers, way: str) -> None:
    async with peers() as (channel, raw):
        await a_new_pass(channel, raw)
        for part in (b"first", b"second"):
            assert channel.try_send(part) == len(part)
        if way == "eof":
            channel.shutdown_write()
        else:
            channel.close(lambda: None)
        frames = [bytes(await raw.recv()) for _ in range(3)]
        assert [frame[4:] for frame in frames] == [b"first", b"second", b""]
        assert frames[2][0] == (END if way == "eof" else CLOSE)


async def test_an_abort_drops_what_was_gathered(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await a_new_pass(channel, raw)
        for part in (b"first", b"second"):
            assert channel.try_send(part) == len(part)
        channel.abort()
        assert channel.unsent == 0
        assert bytes(await raw.recv()) == PLAIN + b"first"
        with pytest.raises(aiofabric.FabricConnectionError):
            await raw.recv()


async def test_what_is_gathered_costs_credits_as_one_frame(peers: Peers) -> None:
    async with peers(Hello(recv_size=1004, window=1000)) as (channel, raw):
        assert channel.try_send(bytes(100)) == 100
        left = 1000 - 100 - FRAME_COST
        for size in (50, 30):
            assert channel.try_send(bytes(size)) == size
        assert channel.statistics().send_credits == left - 80 - FRAME_COST
        assert channel.try_send(bytes(left - 80 - FRAME_COST)) == 0
        channel.flush()
        assert channel.statistics().send_credits == left - 80 - FRAME_COST
        assert [len(await raw.recv()) - 4 for _ in range(2)] == [100, 80]
        await raw.send(header(GRANT, 100))


async def test_a_grant_leaves_with_what_was_gathered(peers: Peers) -> None:
    async with peers() as (channel, raw):
        await a_new_pass(channel, raw)
        for part in (b"first", b"second"):
            assert channel.try_send(part) == len(part)
        for _ in range(20):
            await raw.send(PLAIN + bytes(60_000))
        while channel.statistics().bytes_received < 1_200_001:
            await checkpoint()
            channel.poll()
        taken = 0
        while taken < 1_200_000:
            taken += len(channel.try_recv(1 << 20) or b"")
        granted, data = 0, b""
        while not granted or len(data) < len(b"firstsecond"):
            frame = bytes(await raw.recv())
            granted += int.from_bytes(frame[1:4], "little")
            data += frame[4:]
        assert data == b"firstsecond"
        assert granted >= HELLO.window // 2
