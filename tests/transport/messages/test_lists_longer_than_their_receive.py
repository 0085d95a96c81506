"""Hazard: a message of several buffers, or for a receive of a single one, that is longer than the receive.

With ``rx_attr.iov_limit=1`` shm and sm2 hung inside fi_cq_read. The receiver of one over rxm gets no report: rxm
waits for a read of each buffer, and does not read those behind the end of the receive (rxm_cq.c, rndv_rma_index).
"""

from collections.abc import Callable
from functools import partial

import anyio
import pytest

from aiofabric import Caps, EndpointType, Hints, RxAttr, TruncatedMessageError
from tests.fixtures.children import Child, Parent
from tests.fixtures.peers import RARE, RDM, peers, skip_without

pytestmark = pytest.mark.anyio

LIMITS = (0, 1, 4)
HALF = bytes(200_000)


async def receives(parent: Parent, provider: str, limit: int) -> None:
    hints = Hints(rx_attr=RxAttr(iov_limit=limit))
    async with peers(provider, Caps.MSG, hints=hints, recv_size=1000) as (one, other, there, _):
        for data in (HALF, [HALF, HALF], [HALF[:10], HALF, HALF[:700]]):
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(one.send, data, to=there))
                    try:
                        await other.recv()
                    except TruncatedMessageError:
                        parent.tell("cut off")
                await one.send([b"a", b"b", b"c"], to=there)
                assert await other.recv() == b"abc"
                rooms = [bytearray(2)] if limit == 1 else [bytearray(1), bytearray(1), bytearray(1)]
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(one.send, b"de", to=there))
                    assert await other.recv_into(rooms) == 2
                assert b"".join(rooms)[:2] == b"de"


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("provider", RDM + RARE)
async def test_the_receiver_gets_an_error(child: Callable[..., Child], provider: str, limit: int) -> None:
    skip_without(provider, Caps.MSG, EndpointType.RDM)
    if provider.endswith("ofi_rxm"):
        pytest.skip("rxm never reports such a list: see the page on providers")
    receiver = child(receives, provider, limit)
    assert [await receiver.areceive() for _ in range(3)] == ["cut off"] * 3
    await receiver.aresult()
