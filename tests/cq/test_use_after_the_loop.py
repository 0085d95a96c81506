"""An object belongs to the loop in which it was opened. A wait in a later loop of the same thread ends with an error.

asyncio's own futures raise that error. trio's tasks belong to no loop, and such a wait once had no end.
"""

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint


def test_waiting_in_a_later_trio_run_is_refused(provider: str) -> None:
    endpoints: list[MessageEndpoint] = []

    async def first() -> None:
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

            async def accept() -> None:
                endpoints.append(await (await listener.accept_request()).accept())

            tasks.start_soon(accept)
            endpoints.append(await aiofabric.connect(listener.address, provider=provider))

    async def second() -> None:
        with anyio.fail_after(5), pytest.raises(RuntimeError, match="has ended"):
            await endpoints[0].recv()

    anyio.run(first, backend="trio")
    try:
        anyio.run(second, backend="trio")
    finally:
        for endpoint in endpoints:
            endpoint.close()
