"""Hazard: queues with one or two entries, which hints may ask for.

Plain and tagged receives share one entry over rxd and shm. shm sends to no peer with one entry. rxd of 1.17 stops when
its queue of sends is full. Such endpoints are opened with more entries than the hints ask for.
"""

from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Access, Caps, Hints, OpFlags, RemoteRegion, RxAttr, TxAttr
from tests.fixtures.peers import RARE, RDM, peers
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

ONE = Hints(rx_attr=RxAttr(size=1))
BOTH = Caps.MSG | Caps.TAGGED
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE


@pytest.mark.parametrize("provider", RDM + RARE)
async def test_a_tagged_message_comes_beside_the_pool(provider: str) -> None:
    async with peers(provider, BOTH, hints=ONE) as (one, other, there, _):
        with anyio.fail_after(10):
            for tag in range(3):
                await one.send_tagged(b"tagged", tag, to=there)
                assert await other.recv_tagged(tag) == b"tagged"
                await one.send(b"plain", to=there)
                assert await other.recv() == b"plain"


@pytest.mark.parametrize("provider", ["udp;ofi_rxd", "shm"])
async def test_memory_is_written_and_read(provider: str) -> None:
    async with peers(provider, Caps.MSG | Caps.RMA, hints=ONE) as (one, other, there, _):
        target = bytearray(8)
        with anyio.fail_after(10), other.domain.register(target, access=REMOTE) as region:
            remote = RemoteRegion.unpack(region.remote.pack())
            await one.write(b"12345678", remote, to=there, flags=OpFlags.DELIVERY_COMPLETE)
            assert await one.read(remote, to=there) == target == b"12345678"


@pytest.mark.parametrize("provider", RDM + RARE)
async def test_many_messages_through_two_sends(provider: str) -> None:
    async with peers(provider, Caps.MSG, hints=Hints(tx_attr=TxAttr(size=2))) as (one, other, there, _):
        with anyio.fail_after(10):
            for size in (1, 60_000):
                async with anyio.create_task_group() as tasks:
                    for _ in range(5):
                        tasks.start_soon(partial(one.send, bytes(size), to=there))
                    assert [len(await other.recv()) for _ in range(5)] == [size] * 5


async def test_connections_that_share_an_endpoint() -> None:
    """Each has receives of another size, and the endpoint had one for both."""
    require("tcp;ofi_rxm")
    options: dict[str, Any] = {"provider": "tcp;ofi_rxm", "hints": ONE}
    with anyio.fail_after(20):
        async with aiofabric.listen("127.0.0.1", **options) as listener, anyio.create_task_group() as tasks:

            async def serve() -> None:
                async with await (await listener.accept_request()).accept() as other:
                    for size in (1, 200, 30_000, 1, 4000):
                        assert len(await other.recv()) == size
                        await other.send(bytes(min(size, 4000)))

            tasks.start_soon(serve)
            async with await aiofabric.connect(listener.address, **options, recv_size=4096) as one:
                for size in (1, 200, 30_000, 1, 4000):
                    await one.send(bytes(size))
                    assert len(await one.recv()) == min(size, 4000)
