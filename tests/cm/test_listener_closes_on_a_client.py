"""When a listener closes, each client that is connecting gets an error, and no descriptor stays open."""

from contextlib import suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint

import aiofabric

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("iterations", range(10))
async def test_a_client_is_told_however_far_it_has_come(provider: str, iterations: int) -> None:
    """In some attempts only the kernel has accepted it; in some its request is unread in the event queue."""
    endpoints: list[aiofabric.MessageEndpoint] = []

    async def connect() -> None:
        with suppress(aiofabric.FabricConnectionError):
            endpoints.append(await aiofabric.connect(listener.address, provider=provider))

    async def accept() -> None:
        while True:
            endpoints.append(await (await listener.accept_request()).accept())

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tg:
            listening = aiofabric.listen("127.0.0.1", 0, provider=provider)
            async with listening as listener, anyio.create_task_group() as accepting:
                accepting.start_soon(accept)
                tg.start_soon(connect)
                for _ in range(iterations):
                    await checkpoint()
                accepting.cancel_scope.cancel()
    for endpoint in endpoints:
        endpoint.close()
