"""A server over shm that sends first outlives more clients than its table has entries, whatever they leave behind."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import anyio
import pytest

import aiofabric
from aiofabric.info import library_version
from tests.fixtures.providers import require

if TYPE_CHECKING:
    from tests.fixtures.children import Parent

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

PROVIDER = "shm"
CLIENTS = 400  # the table has 256 entries, and 64 released peers are kept


async def greet(parent: Parent) -> int:
    """Send each client a message before it sends one; return the number of clients."""
    greeted = 0

    async def serve(request: aiofabric.ConnectionRequest) -> None:
        nonlocal greeted
        with suppress(aiofabric.FabricError, anyio.ClosedResourceError):
            async with await request.accept() as endpoint:
                greeted += 1
                await endpoint.send(b"hello")
                async for message in endpoint:
                    await endpoint.send(message)

    async with aiofabric.listen("127.0.0.1", 0, provider=PROVIDER) as listener, anyio.create_task_group() as tasks:
        parent.tell(listener.address.port)

        async def accept() -> None:
            async for request in listener:
                tasks.start_soon(serve, request)

        tasks.start_soon(accept)
        await parent.areceive()
        tasks.cancel_scope.cancel()
    return greeted


def hurry(parent: Parent, port: int, seed: int) -> None:
    """Clients one after the other, each with an endpoint of its own, that leave in the middle of their work."""
    random = Random(seed)
    for _ in range(CLIENTS // 4):
        anyio.run(leave_early, port, random)


async def leave_early(port: int, random: Random) -> None:
    endpoint = await aiofabric.connect("127.0.0.1", port, provider=PROVIDER)

    async def work() -> None:
        with suppress(aiofabric.FabricError, anyio.ClosedResourceError):
            while True:
                await endpoint.send(bytes(100))

    async with endpoint, anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.sleep(random.choice((0, 0, 0.001, 0.005)))  # the place in the work, not a state to wait for
        if random.random() < 0.5:
            endpoint.abort()
        else:
            endpoint.close()
        tasks.cancel_scope.cancel()


async def ask(parent: Parent, port: int) -> bytes:
    """One client that stays."""
    async with await aiofabric.connect("127.0.0.1", port, provider=PROVIDER) as endpoint:
        return await endpoint.recv()


def test_a_server_outlives_clients_that_leave_before_their_names_are_read(child) -> None:  # type: ignore[no-untyped-def]
    require(PROVIDER)
    if library_version() < (1, 18):
        pytest.skip("1.17 has another table, and crashes if a client leaves before its first message is read")
    server = child(greet)
    port = server.receive()
    for seed in range(4):
        child(hurry, port, seed).result(60.0)
    assert child(ask, port).result() == b"hello"
    server.tell("end")
    assert server.result() > 256  # a client may leave before it is accepted
