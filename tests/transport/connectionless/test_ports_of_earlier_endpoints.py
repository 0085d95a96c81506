"""Hazard: over rxd, a peer drops what a new endpoint sends from the address of an earlier one."""

import anyio
import pytest

import aiofabric
from aiofabric import Caps, EndpointType
from aiofabric.features import Quirk, quirks
from tests.fixtures.peers import skip_without, where

pytestmark = pytest.mark.anyio

RXD = "udp;ofi_rxd"
RDM = EndpointType.RDM
MANY = 400  # the system gives two of them the same port in 94 of 100 runs


@pytest.fixture(autouse=True)
def rxd() -> None:
    skip_without(RXD, Caps.MSG)


async def test_no_endpoint_of_a_process_gets_the_port_of_an_earlier_one() -> None:
    ports: set[int | None] = set()
    for _ in range(MANY):
        async with aiofabric.open_endpoint(RDM, where(RXD), provider=RXD) as endpoint:
            ports.add(endpoint.local_address.port)
    assert len(ports) == MANY


async def test_a_peer_ignores_a_new_endpoint_at_the_address_of_an_earlier_one() -> None:
    """As long as libfabric does this, ports must not be used again."""
    async with aiofabric.open_endpoint(RDM, where(RXD), provider=RXD) as peer:
        assert Quirk.NEW_OWNERS_ARE_IGNORED in quirks(peer.info)
        async with aiofabric.open_endpoint(RDM, where(RXD), provider=RXD) as first:
            port = first.local_address.port
            await first.send(b"first", to=await first.add_peer(peer.local_address))
            assert await peer.recv() == b"first"
        async with aiofabric.open_endpoint(RDM, where(RXD), port, provider=RXD) as second:
            with anyio.move_on_after(1) as waiting:
                await second.send(b"second", to=await second.add_peer(peer.local_address))
                await peer.recv()
        assert waiting.cancelled_caught


async def test_a_port_that_the_program_names_is_taken() -> None:
    async with aiofabric.open_endpoint(RDM, where(RXD), provider=RXD) as endpoint:
        port = endpoint.local_address.port
    async with aiofabric.open_endpoint(RDM, where(RXD), port, provider=RXD) as endpoint:
        assert endpoint.local_address.port == port
