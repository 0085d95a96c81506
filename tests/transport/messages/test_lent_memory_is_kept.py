"""Hazard: a caller keeps memory of `recv_view`. A slice must not show later messages, and a wait for free buffers is
logged.
"""

import gc
import warnings
from contextlib import AsyncExitStack

import anyio
import numpy as np
import pytest

from aiofabric import MessageEndpoint
from aiofabric.transport.messages.inbox import PoolStatistics
from tests.fixtures.providers import CARRIERS, Pair, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

COUNT = 4


def lent(endpoint: MessageEndpoint) -> int:
    pool = endpoint.statistics().pool
    assert pool is not None
    return pool.lent


async def none_lent(endpoint: MessageEndpoint) -> None:
    with anyio.fail_after(5):
        while lent(endpoint):
            await anyio.lowlevel.checkpoint()


async def test_a_slice_that_is_kept_keeps_its_buffer(pair: Pair) -> None:
    async with pair(recv_count=COUNT) as (active, passive):
        await active.send(b"the first message")
        with pytest.warns(ResourceWarning, match="slice of a recv_view"):
            async with passive.recv_view() as view:
                kept = view[4:9]
        with pytest.raises(ValueError, match="released"):
            view[0]
        assert lent(passive) == 1
        for number in range(4 * COUNT):
            await active.send(b"%d and something behind it" % number)
            assert (await passive.recv()).startswith(b"%d" % number)
        assert bytes(kept) == b"first"
        del kept
        await none_lent(passive)


async def test_a_slice_outlives_the_endpoint(pair: Pair) -> None:
    async with pair(recv_count=COUNT) as (active, passive):
        await active.send(b"the first message")
        with pytest.warns(ResourceWarning, match="slice of a recv_view"):
            async with passive.recv_view() as view:
                kept = [view[4:9]]
        kept.append(kept)  # type: ignore[arg-type]
    gc.collect()
    assert bytes(kept[0]) == b"first"
    del kept
    gc.collect()
    await anyio.lowlevel.checkpoint()


async def test_an_array_that_is_kept_is_told_of_and_keeps_its_buffer(pair: Pair) -> None:
    async with pair(recv_count=COUNT) as (active, passive):
        await active.send(b"the first message")
        with pytest.warns(ResourceWarning, match="slice of a recv_view"):
            async with passive.recv_view() as view:
                kept = np.frombuffer(view, np.uint8)
        del view
        for _ in range(4 * COUNT):
            await active.send(b"another message")
            await passive.recv()
        assert bytes(kept) == b"the first message"
        del kept
        await none_lent(passive)


async def test_messages_arrive_while_all_buffers_but_one_are_lent(pair: Pair) -> None:
    """Hazard: the sender is told of its credits when half of them are used, which the lent ones never are."""
    async with pair(recv_count=COUNT) as (active, passive), AsyncExitStack() as views:
        with anyio.fail_after(10):
            for count in range(COUNT):
                for number in range(4 * COUNT):
                    await active.send(b"%d" % number)
                    assert await passive.recv() == b"%d" % number
                if count < COUNT - 1:
                    await active.send(b"kept")
                    await views.enter_async_context(passive.recv_view())
            assert lent(passive) == COUNT - 1


async def test_who_waits_while_all_is_lent_is_warned(pair: Pair) -> None:
    async with pair(recv_count=COUNT) as (active, passive), AsyncExitStack() as views:
        for _ in range(COUNT):
            await active.send(b"kept")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                await views.enter_async_context(passive.recv_view())
        with pytest.warns(
            RuntimeWarning, match=rf"all {COUNT} receive buffers .*{__name__.rpartition('.')[2]}\.py:\d+"
        ):
            with anyio.move_on_after(0.05):
                await passive.recv()
        with anyio.move_on_after(0.05):  # told once
            await passive.recv()
        pool = passive.statistics().pool
        assert isinstance(pool, PoolStatistics)
        assert pool.exhausted == 2
        await views.aclose()
        await active.send(b"goes on")
        assert await passive.recv() == b"goes on"
