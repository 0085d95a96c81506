"""Promise: FI_DELIVERY_COMPLETE completes a message when the peer's provider has it, and not before.

Over rxm a message of up to 16 KiB completes when it has left: docs/topics/providers.md says so.
"""

import signal
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import OpFlags
from aiofabric.features import Quirk, quirks
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import over
from tests.fixtures.stopping import stop

pytestmark = pytest.mark.anyio
provider = over(["tcp", "tcp;ofi_rxm", "shm"])


async def takes_one(parent: Parent, provider: str, port: int) -> int:
    async with await aiofabric.connect("127.0.0.1", port, provider=provider) as endpoint:
        await endpoint.send(b"ready")
        return len(await endpoint.recv())


@pytest.mark.parametrize("size", [1, 300, 20000])
async def test_delivery_is_not_reported_while_the_peer_is_stopped(child: Any, provider: str, size: int) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer: Child = child(takes_one, provider, listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint, anyio.create_task_group() as tasks:
            assert await endpoint.recv() == b"ready"
            stop(peer.pid)
            done = anyio.Event()

            async def send() -> None:
                await endpoint.send(bytes(size), flags=OpFlags.DELIVERY_COMPLETE)
                done.set()

            tasks.start_soon(send)
            try:
                if Quirk.DELIVERY_MEANS_SENT in quirks(endpoint.info) and size < 16384:
                    with anyio.fail_after(10):
                        await done.wait()
                for _ in range(20):
                    await anyio.sleep(0.01)
                assert done.is_set() is (Quirk.DELIVERY_MEANS_SENT in quirks(endpoint.info) and size < 16384)
            finally:
                peer.send_signal(signal.SIGCONT)
            assert await peer.aresult() == size
            await done.wait()
