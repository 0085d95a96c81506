"""A message longer than its receive is a TruncatedMessageError, whatever sign the provider gives the code.

2.x's shm tells the sender too. rxd is not here: it cuts the message off and tells nobody.
"""

from contextlib import suppress

import anyio
import pytest

from aiofabric import Caps, TruncatedMessageError
from tests.fixtures.peers import peers

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_a_message_too_long_for_a_connectionless_receive(provider: str) -> None:
    async with peers(provider, Caps.MSG | Caps.TAGGED, recv_size=None) as (one, other, peer, _):

        async def send() -> None:
            with suppress(TruncatedMessageError):
                await one.send_tagged(bytes(1000), 1, to=peer)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            with anyio.fail_after(5), pytest.raises(TruncatedMessageError):
                await other.recv_tagged(1, max_bytes=64)
