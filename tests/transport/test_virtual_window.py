"""Messages that the receiver has no room for use up the window of a virtual connection as others do."""

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint, TruncatedMessageError
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

COUNT = 16
LONG = bytes(4096)


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_messages_too_long_do_not_pile_up(provider: str) -> None:
    """Each is told of by an error that waits to be raised; nobody receives, so the sender has to stop."""
    require(provider)
    small: dict[str, Any] = {"recv_size": 64, "recv_count": COUNT}
    accepted: list[MessageEndpoint] = []
    sent = 0

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept(**small))

    async def send(active: MessageEndpoint) -> None:
        nonlocal sent
        while sent < 4 * COUNT:
            await active.send(LONG)
            sent += 1

    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept, listener)
        active = await aiofabric.connect(listener.address, provider=provider, **small)
    async with active, accepted[0] as passive, anyio.create_task_group() as tasks:
        tasks.start_soon(send, active)
        while sent < COUNT or (sent == COUNT and not active.statistics().parked):
            await anyio.lowlevel.checkpoint()
        assert sent == COUNT
        for _ in range(4 * COUNT):
            with pytest.raises(TruncatedMessageError):
                await passive.recv()
    assert sent == 4 * COUNT
