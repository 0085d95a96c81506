"""Hazard: shm of 1.17 has 1024 entries for receives of all sizes, and pools of two sizes needed more."""

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint
from tests.fixtures.providers import HOST, require

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_receives_of_two_sizes_share_what_the_provider_has(provider: str) -> None:
    """1.17's shm has 1024 places for receives of all sizes; what the first ones took was never given back."""
    require(provider)

    async def rounds(size: int, each: int) -> None:
        options: dict[str, Any] = {"recv_size": size, "recv_count": 64}
        accepted: list[MessageEndpoint] = []

        async def accept() -> None:
            while len(accepted) < each:
                accepted.append(await (await listener.accept_request()).accept(**options))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            active = [await aiofabric.connect(listener.address, provider=provider, **options) for _ in range(each)]
        held.extend(zip(active, accepted, strict=True))
        for one, other in held:
            await one.send(b"there")
            assert await other.recv() == b"there"
            await other.send(b"back")
            assert await one.recv() == b"back"

    held: list[tuple[MessageEndpoint, MessageEndpoint]] = []
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        with anyio.fail_after(20):
            await rounds(4096, 40)
            for pair in held[5:]:
                for endpoint in pair:
                    await endpoint.aclose()
            del held[5:]
            await rounds(8192, 40)
            await rounds(16384, 20)
    for pair in held:
        for endpoint in pair:
            await endpoint.aclose()
