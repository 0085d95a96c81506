"""Hazard: the process that asked for a connection is killed before its request is answered."""

from collections.abc import Callable

import anyio
import pytest

import aiofabric
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import CARRIERS, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)


async def knock(parent: Parent, provider: str, port: int) -> None:
    parent.tell("knocking")
    await aiofabric.connect("127.0.0.1", port, provider=provider)


@pytest.mark.parametrize("answer", ["accept", "reject", "close the listener"])
async def test_peer_is_killed_before_its_request_is_answered(
    child: Callable[..., Child], provider: str, answer: str
) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer = child(knock, provider, listener.address.port)
        assert await peer.areceive() == "knocking"
        request = await listener.accept_request()
        peer.kill()
        with anyio.fail_after(5):
            if answer == "accept":
                with pytest.raises(aiofabric.FabricConnectionAbortedError):
                    await request.accept()
            elif answer == "reject":
                request.reject(param=b"too late")
        assert not listener.closed
