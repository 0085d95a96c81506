"""Hazard: nearly all buffers of a pool are lent, and fewer than a batch of posts are left. They are posted
nevertheless.
"""

from contextlib import AsyncExitStack

import anyio
import pytest

from aiofabric import MessageEndpoint
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

COUNT = 8


async def by_waiting(ep: MessageEndpoint) -> bytes:
    return await ep.recv()


async def by_asking(ep: MessageEndpoint) -> bytes:
    while (message := ep.recv_nowait()) is None:  # noqa: ASYNC110 (asking is what is tested)
        await anyio.sleep(0.001)
    return message


@pytest.mark.parametrize("receive", [by_waiting, by_asking])
@pytest.mark.parametrize("lent", [COUNT // 2, COUNT - 2, COUNT - 1])
async def test_lent_buffers_leave_the_pool_alive(pair: Pair, receive, lent: int) -> None:  # type: ignore[no-untyped-def]
    async with pair(recv_count=COUNT) as (active, passive), AsyncExitStack() as views:
        with anyio.fail_after(10):
            for _ in range(lent):
                await active.send(b"kept")
                await views.enter_async_context(passive.recv_view())
            for number in range(4 * COUNT):
                await active.send(b"%d" % number)
                assert await receive(passive) == b"%d" % number


async def test_half_of_a_pool_is_posted_again_in_one_batch(pair: Pair) -> None:
    async with pair(recv_count=COUNT) as (active, passive):
        for _ in range(COUNT // 2):
            await active.send(b"x")
        posted = []
        with anyio.fail_after(10):
            while (pool := passive.statistics().pool) is None or pool.filled < COUNT // 2:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            for _ in range(COUNT // 2):
                assert passive.recv_nowait() == b"x"
                pool = passive.statistics().pool
                assert pool is not None
                posted.append(pool.posted)
        assert posted == [COUNT // 2] * (COUNT // 2 - 1) + [COUNT]
