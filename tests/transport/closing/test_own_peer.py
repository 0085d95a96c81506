"""Hazard: a client over rxd connects to a listener of its own loop, and neither receives all that the other sends.

If both shared one native endpoint, it would be its own peer: rxd then crashes, or stays in one of its calls.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint
from tests.fixtures.providers import HOST, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.children import Child, Parent

pytestmark = pytest.mark.timeout(90)

PROVIDER = "udp;ofi_rxd"
CLIENTS, CONNECTIONS = 4, 15  # 15 of each client, one after the other
SIZES = (16, 5_000, 20_000, 60_000)
ENDS = (aiofabric.FabricError, anyio.ClosedResourceError)


async def send_and_close(endpoint: MessageEndpoint, chance: random.Random) -> None:
    async def send() -> None:
        with suppress(*ENDS):
            await endpoint.send(bytes(chance.choice(SIZES)))

    await endpoint.send(b"hello")
    with anyio.move_on_after(2):
        await (endpoint.recv() if endpoint.recv_size else endpoint.recv(64))
    async with anyio.create_task_group() as tasks:
        for _ in range(chance.choice((1, 4, 8, 16))):
            tasks.start_soon(send)
        await anyio.sleep(chance.choice((0, 0.003, 0.03)))
        endpoint.close()


async def clients_and_their_listener(parent: Parent) -> str:
    chance = random.Random(1)
    async with aiofabric.listen(HOST, 0, provider=PROVIDER) as listener, anyio.create_task_group() as tasks:

        async def serve(request: aiofabric.ConnectionRequest) -> None:
            with suppress(*ENDS):
                await send_and_close(await request.accept(), chance)

        async def accept() -> None:
            async for request in listener:
                tasks.start_soon(serve, request)

        async def be_a_client() -> None:
            for _ in range(CONNECTIONS):
                with suppress(*ENDS):
                    endpoint = await aiofabric.connect(HOST, listener.address.port, provider=PROVIDER, recv_size=None)
                    await send_and_close(endpoint, chance)

        tasks.start_soon(accept)
        async with anyio.create_task_group() as clients:
            for _ in range(CLIENTS):
                clients.start_soon(be_a_client)
        tasks.cancel_scope.cancel()
    return "goes on"


def test_a_client_of_a_listener_of_its_own_loop_survives_messages_that_nobody_receives(
    child: Callable[..., Child],
) -> None:
    require(PROVIDER)
    assert child(clients_and_their_listener).result(60) == "goes on"
