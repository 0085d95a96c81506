"""Without a pool, aiofabric does not know how long a message may be: the caller gives the size or the memory."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiofabric import Caps
from tests.fixtures.peers import peers
from tests.fixtures.providers import CARRIERS, Pair, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)


async def views(endpoint: Any) -> None:
    async with endpoint.recv_view():
        pass


async def sinks(endpoint: Any) -> None:
    endpoint.set_sink(print)


async def takes(endpoint: Any) -> None:
    endpoint.recv_nowait()


@pytest.mark.parametrize("call", [views, sinks, takes])
async def test_what_needs_a_pool_names_the_option(pair: Pair, call: Callable[[Any], Awaitable[None]]) -> None:
    async with pair(recv_size=None) as (active, passive):
        with pytest.raises(TypeError, match=r"opened with recv_size=None and has no pool; use recv_into\(buffer\)"):
            await call(passive)
        await active.send(b"still here")
        assert await passive.recv(10) == b"still here"


async def test_a_receive_without_a_size_asks_for_one(pair: Pair) -> None:
    async with pair(recv_size=None) as (active, passive):
        with pytest.raises(TypeError, match=r"pass the size of the largest message, recv\(max_bytes\)"):
            await passive.recv()
        assert passive.statistics().receives == 0
        await active.send(b"still here")
        assert await passive.recv(10) == b"still here"


async def test_a_tagged_receive_without_a_size_asks_for_one() -> None:
    async with peers("shm", Caps.MSG | Caps.TAGGED, recv_size=None) as (one, other, peer, _):
        with pytest.raises(TypeError, match="recv_size=None: pass the size of the largest message, max_bytes="):
            await other.recv_tagged(1)
        assert other.statistics().receives == 0
        await one.send_tagged(b"still here", 1, to=peer)
        assert await other.recv_tagged(1, max_bytes=10) == b"still here"


async def test_a_small_send_without_waiting_reports_its_success_at_once(pair: Pair) -> None:
    answers: list[BaseException | None] = []
    async with pair() as (active, passive):
        await active.send(b"first")  # needs polls of both sides over shm
        assert await passive.recv() == b"first"
        active.send_nowait(b"small", answers.append)
        assert answers == [None]
        active.send_nowait(b"not reported")
        assert [await passive.recv() for _ in range(2)] == [b"small", b"not reported"]
    assert answers == [None]
