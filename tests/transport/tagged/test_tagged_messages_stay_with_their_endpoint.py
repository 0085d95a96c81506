"""Hazard: two endpoints of one loop, and a tagged message that comes before its receive.

2.x's tcp keeps such messages for all endpoints of a domain together: the sender's own receive got what it had sent.
"""

from contextlib import nullcontext
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Caps, Domain, EndpointType, NotSupportedError, Quirk
from aiofabric.features import quirks
from tests.fixtures.peers import peers, where

pytestmark = pytest.mark.anyio

CAPS = Caps.MSG | Caps.TAGGED
ITERATIONS = 200  # iterations of the loop, for a message to arrive that no receive may take yet


@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm", "shm", "udp;ofi_rxd"])
async def test_an_early_message_waits_for_its_own_endpoint(provider: str) -> None:
    async with peers(provider, CAPS) as (one, other, to_other, to_one):
        async with anyio.create_task_group() as tasks:  # they are connected afterwards
            tasks.start_soon(lambda: one.send_tagged(b"hello", 1, to=to_other))
            assert await other.recv_tagged(1) == b"hello"
        await other.send_tagged(b"for one", 7, to=to_one)
        for _ in range(ITERATIONS):
            await anyio.lowlevel.checkpoint()
        strayed: list[bytes] = []

        async def receive_at_the_sender() -> None:
            strayed.append(await other.recv_tagged(7))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive_at_the_sender)
            while not (other.statistics().receives or strayed):
                await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(5):
                assert await one.recv_tagged(7) == b"for one"
            tasks.cancel_scope.cancel()
        assert strayed == []


async def test_a_second_endpoint_on_a_domain_is_refused_where_messages_stray() -> None:
    async with peers("tcp", CAPS) as (one, _, _, _):
        info = one.info
    refused: Any = pytest.raises(
        NotSupportedError, match=r"may deliver a tagged message to the wrong endpoint .* on another domain"
    )
    with Domain(info) as domain:
        options: dict[str, Any] = {"provider": "tcp", "domain": domain, "caps": CAPS}
        async with aiofabric.open_endpoint(EndpointType.RDM, where("tcp"), **options):
            with refused if Quirk.TAGGED_STRAYS in quirks(info) else nullcontext():
                async with aiofabric.open_endpoint(EndpointType.RDM, where("tcp"), **options):
                    pass
