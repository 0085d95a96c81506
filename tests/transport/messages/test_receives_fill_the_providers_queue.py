"""Hazard: shm of 1.17 has one queue for pooled and tagged receives, and returns -FI_ENOMEM when it is full."""

import anyio
import pytest

from aiofabric._ffi import constants, lib
from tests.fixtures.peers import peers
from tests.fixtures.through_python import post_receives_through

pytestmark = pytest.mark.anyio

MANY = 1000


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_a_large_pool_and_a_thousand_tagged_receives(provider: str) -> None:
    got: list[bytes] = []
    order: list[int] = []

    async with peers(provider, recv_size=64, recv_count=1024) as (one, other, to_other, _):

        async def take(tag: int) -> None:
            order.append(tag)  # trio starts tasks in any order, and what is queued is posted in this one
            got.append(await other.recv_tagged(tag, max_bytes=64))

        with anyio.fail_after(20):
            for _ in range(3):  # the pool grows to all that it may have
                for _ in range(MANY // 4):
                    one.send_nowait(b"plain", to=to_other)
                for _ in range(MANY // 4):
                    assert await other.recv() == b"plain"
            async with anyio.create_task_group() as tasks:
                for tag in range(MANY):
                    tasks.start_soon(take, tag)
                await anyio.wait_all_tasks_blocked()
                for tag in order:
                    await one.send_tagged(b"%d" % tag, tag, to=to_other)
            await one.send(b"plain", to=to_other)
            assert await other.recv() == b"plain"
    assert sorted(int(each) for each in got) == list(range(MANY))


async def test_a_receive_that_the_provider_has_no_room_for_is_posted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.17's shm returns -FI_ENOMEM if its queue of receives is full."""
    receive, refused = lib.fi_recv, [-constants.FI_ENOMEM] * 3
    post_receives_through(monkeypatch, lambda *call: refused.pop() if refused else receive(*call))
    async with peers("tcp;ofi_rxm", recv_count=4) as (one, other, peer, _):
        with anyio.fail_after(10):
            for number in range(20):
                await one.send(b"%d" % number, to=peer)
                assert await other.recv() == b"%d" % number
    assert refused == []
