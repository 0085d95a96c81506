"""Hazard: the loop keeps the exception of a cancel until the task's next step, but the caller's buffer must be free at
once.
"""

import anyio
import pytest

from aiofabric import MessageEndpoint
from tests.fixtures.providers import CARRIERS, Pair, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)


async def test_the_buffer_can_be_resized_at_once(pair: Pair) -> None:
    async with pair(recv_size=None) as (active, _):
        await active_is_idle(active)
        for seconds in (0.02, 0):
            buffer = bytearray(100)
            with anyio.move_on_after(seconds):
                await active.recv_into(buffer)
            assert active.statistics().receives == 0
            buffer.extend(b"resized without a BufferError")


async def active_is_idle(endpoint: MessageEndpoint) -> None:
    while endpoint.statistics().sends:
        await anyio.lowlevel.checkpoint()
