"""One message into several buffers (fi_recvv, fi_trecvv)."""

from functools import partial

import anyio
import pytest

from aiofabric import Caps, TruncatedMessageError
from aiofabric.transport.buffers import Pieces, contents, fill
from tests.fixtures.internals import handle_of
from tests.fixtures.peers import peers
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

DIRECT = {"recv_size": None}


@pytest.mark.parametrize("recv_size", [None, 4096], ids=["direct", "pooled"])
async def test_a_message_fills_the_buffers_in_turn(pair: Pair, recv_size: int | None) -> None:
    async with pair(recv_size=recv_size) as (active, passive):
        header, body = bytearray(4), bytearray(100)
        for message in (b"headbody", b"head", b"he", b"head" + bytes(100), b""):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(active.send, message)
                assert await passive.recv_into([header, body]) == len(message)
            assert (header + body)[: len(message)] == message


async def test_a_tagged_message_fills_the_buffers_in_turn() -> None:
    async with peers("tcp;ofi_rxm", Caps.TAGGED) as (one, other, peer, _):
        header, body = bytearray(4), bytearray(8)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(one.send_tagged, b"headbody", 7, to=peer))
            envelope = await other.recv_tagged_into((header, body), 7)
        assert (envelope.length, envelope.tag) == (8, 7)
        assert header + body[:4] == b"headbody"


async def test_cancelling_one_loses_no_message(pair: Pair) -> None:
    async with pair(**DIRECT) as (active, passive):
        lost = [bytearray(4), bytearray(4)]
        transfer = handle_of(passive).rx
        with anyio.CancelScope() as scope:
            scope.cancel()
            await passive.recv_into(lost)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.send, b"headbody")
            kept = [bytearray(3), bytearray(9)]
            assert await passive.recv_into(kept) == 8
        assert b"".join(kept)[:8] == b"headbody"
        assert not transfer.posted


@pytest.mark.once
async def test_what_a_cancelled_one_got_is_taken_out_of_the_pieces_and_put_into_others() -> None:
    one, other = (
        Pieces.room([bytearray(3), bytearray(5)], 4),
        Pieces.room([bytearray(6), bytearray(0), bytearray(6)], 4),
    )
    fill(one, b"message", 7)
    fill(other, contents(one, 7), 7)
    assert contents(other, 7) == b"message"


async def test_too_long_a_message_and_too_many_buffers_are_refused(pair: Pair) -> None:
    async with pair(**DIRECT) as (active, passive):
        limit = passive.info.rx_attr.iov_limit
        for wrong in ([], [bytearray(1)] * (limit + 1)):
            with pytest.raises(ValueError, match=f"receives into 1 to {limit} buffers at once, not {len(wrong)}"):
                await passive.recv_into(wrong)
        with pytest.raises(BufferError, match="read-only"):
            await passive.recv_into([bytearray(1), b"constant"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.send, b"too long for both")
            with pytest.raises(TruncatedMessageError):
                await passive.recv_into([bytearray(4), bytearray(4)])
