"""Masks of tagged receives find earlier messages, or are refused. No message is lost or given to another receive."""

import pytest

from aiofabric import NotSupportedError, Quirk, RdmEndpoint
from aiofabric.features import quirks
from tests.fixtures.peers import peers

pytestmark = pytest.mark.anyio


def forgets(ep: RdmEndpoint) -> bool:
    return Quirk.IGNORE_FORGOTTEN in quirks(ep.info)


async def test_what_came_first_is_found_by_mask(rdm: str) -> None:
    async with peers(rdm) as (one, other, there, _):
        for tag in (8, 9, 10, 11):
            await one.send_tagged(b"%d" % tag, tag, to=there)
        await one.send(b"behind them", to=there)
        assert await other.recv() == b"behind them"
        if forgets(other):
            with pytest.raises(NotSupportedError, match="loses or misdelivers messages that arrived before it"):
                await other.recv_tagged(0, ignore=15)
            with pytest.raises(NotSupportedError, match="receive with the exact tag"):
                await other.recv_tagged_into(bytearray(10), 0, ignore=15)
            left = [8, 9, 10, 11]
        else:
            assert await other.recv_tagged(2, ignore=9) == b"10"
            assert await other.recv_tagged(0, ignore=15) == b"8"
            left = [11, 9]
        for tag in left:
            assert await other.recv_tagged(tag) == b"%d" % tag


async def test_an_exact_receive_takes_no_other_tag(rdm: str) -> None:
    """Not even after receives with masks, whose masks 1.17's shm leaves behind."""
    async with peers(rdm) as (one, other, there, _):
        if not forgets(other):
            for tag in (1, 2):
                await one.send_tagged(b"masked", tag, to=there)
                assert await other.recv_tagged(0, ignore=15) == b"masked"
        for tag in (1, 2, 3):
            await one.send_tagged(b"%d" % tag, tag, to=there)
        await one.send(b"behind them", to=there)
        assert await other.recv() == b"behind them"
        for tag in (2, 3, 1):
            got = await other.recv_tagged(tag)
            assert (got, got.tag) == (b"%d" % tag, tag)
