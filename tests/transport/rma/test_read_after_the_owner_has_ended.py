"""Hazard: a read over shm begins after the owner has ended the connection. It would return what is there now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aiofabric
from aiofabric import Access, RemoteRegion
from tests.fixtures.providers import CARRIERS, HOST, over

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child, Parent

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

SIZE = 1 << 20
OFFERED, LATER = b"\1", b"\2"
ENDS = ["close", "abort"]


async def owner(parent: Parent, provider: str, how: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        parent.tell(listener.address.port)
        endpoint = await (await listener.accept_request()).accept()
        memory = bytearray(OFFERED * SIZE)
        region = endpoint.domain.register(memory, access=Access.REMOTE_READ)
        await endpoint.send(region.remote.pack())
        await parent.areceive()
        getattr(endpoint, how)()
        region.close()
        memory[:] = LATER * SIZE  # as if it were freed, and used for something else
        parent.tell("ended")
        await parent.areceive()


@pytest.mark.parametrize("how", ENDS)
async def test_a_read_after_the_end_of_the_connection_raises(
    child: Callable[..., Child], provider: str, how: str
) -> None:
    owning = child(owner, provider, how)
    async with await aiofabric.connect(HOST, await owning.areceive(), provider=provider) as endpoint:
        remote = RemoteRegion.unpack(await endpoint.recv())
        assert bytes(await endpoint.read(remote)) == OFFERED * SIZE
        owning.tell("end")
        assert owning.receive() == "ended"  # without the loop: this side does not know it yet
        with anyio.fail_after(20), pytest.raises(aiofabric.FabricError):
            await endpoint.read(remote)
    owning.tell("leave")
    await owning.aresult()
