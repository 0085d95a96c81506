"""Hazard: an operation is posted before FI_CONNECTED. The tcp provider would end the process; here every call is
refused.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Access, MessageEndpoint, RemoteRegion
from aiofabric._ffi import constants
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

Call = Callable[[MessageEndpoint, RemoteRegion], Any]
CALLS: dict[str, Call] = {
    "send": lambda ep, _: ep.send(b"too early"),
    "send of two": lambda ep, _: ep.send([b"too", b"early"]),
    "send of much": lambda ep, _: ep.send(bytes(100_000)),
    "send_nowait": lambda ep, _: ep.send_nowait(b"too early"),
    "try_send": lambda ep, _: ep.try_send(b"too early"),
    "batch": lambda ep, _: ep.batch(),
    "recv": lambda ep, _: ep.recv(),
    "recv_nowait": lambda ep, _: ep.recv_nowait(),
    "recv_into": lambda ep, _: ep.recv_into(bytearray(10)),
    "read": lambda ep, remote: ep.read(remote),
    "read_into": lambda ep, remote: ep.read_into(bytearray(10), remote),
    "write": lambda ep, remote: ep.write(b"too early", remote),
}


async def made(call: Call, endpoint: MessageEndpoint, remote: RemoteRegion) -> None:
    answer = call(endpoint, remote)
    if isinstance(answer, Awaitable):
        with anyio.fail_after(5):
            await answer


@pytest.mark.parametrize("call", CALLS)
async def test_post_before_the_connection(pair: Pair, call: str) -> None:
    async with pair() as (active, passive):
        region = passive.domain.register(bytearray(10), access=Access.REMOTE_READ | Access.REMOTE_WRITE)
        handle = handle_of(active)
        admitted, handle.thread_check.thread = handle.thread_check.thread, 0  # as it is until the event has come
        try:
            with pytest.raises(aiofabric.FabricError, match="not connected yet") as refused:
                await made(CALLS[call], active, region.remote)
        finally:
            handle.thread_check.thread = admitted
        assert refused.value.errno == constants.FI_EOPBADSTATE
        await active.send(b"in time")  # and nothing was posted meanwhile
        with anyio.fail_after(5):
            assert await passive.recv() == b"in time"
        region.close()
