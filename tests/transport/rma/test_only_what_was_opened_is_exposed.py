"""Hazard: a peer reads or writes memory that was registered for local use: receive buffers, messages on their way.

The test makes the worst case: the provider requires registrations of local memory, and the peer knows the keys.
"""

from contextlib import suppress

import anyio
import pytest

import aiofabric
from aiofabric import Access, RemoteRegion
from tests.fixtures.internals import handle_of, regions_of
from tests.fixtures.providers import Pair
from tests.fixtures.registrations import Registrations

pytestmark = pytest.mark.anyio

REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE


async def test_nothing_is_registered_for_peers_unless_the_program_says_so(pair: Pair, demanding: Registrations) -> None:
    async with pair() as (active, passive):
        await active.send(bytes(50_000))
        await passive.recv()
        with passive.domain.register(bytearray(100)):
            own = regions_of(passive)
            assert len(own) >= 2  # the receives, and this one
            assert not [region for region in own if region.access & REMOTE]
            with passive.domain.register(bytearray(100), access=Access.REMOTE_READ):
                assert [region.access & REMOTE for region in own if region.access & REMOTE] == [Access.REMOTE_READ]


@pytest.mark.parametrize("what", ["read", "write"])
@pytest.mark.parametrize("whose", ["receives", "local region"])
async def test_a_peer_that_knows_the_key_gets_nothing(
    whose: str, what: str, pair: Pair, demanding: Registrations
) -> None:
    async with pair() as (active, passive), passive.domain.register(bytearray(b"private" * 20)) as mine:
        own = [region for region in regions_of(passive) if (region is handle_of(mine)) == (whose != "receives")]
        size = min(own[0].stop - own[0].start, 100)
        remote = RemoteRegion(0, own[0].key, size)
        with anyio.fail_after(5):
            if what == "read":
                with pytest.raises(aiofabric.FabricError):
                    await active.read(remote)
            else:
                with suppress(aiofabric.FabricError):
                    await active.write(b"x" * size, remote)  # complete for tcp when it is in the socket
                with pytest.raises(aiofabric.FabricError):
                    await active.recv()
        assert mine.buffer == b"private" * 20
