"""Over shm a receiver copies a large message out of the sender's memory, also after the sender has closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aiofabric
from aiofabric import EndpointType
from tests.fixtures.providers import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiofabric import Address
    from tests.fixtures.children import Child, Parent

pytestmark = pytest.mark.anyio

SIZE = 60_000
COUNT = 8


async def send_and_close(receiver: Address) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as endpoint:
        peer = await endpoint.add_peer(receiver)
        await endpoint.send(endpoint.local_address.raw, to=peer)
        await endpoint.recv()  # a process that has never read a message of a closed endpoint crashes with 1.17
        for number in range(COUNT):
            endpoint.send_nowait(bytes([number]) * SIZE, to=peer)


def use_the_memory_again() -> None:
    for _ in range(20):
        assert len([bytes([255]) * (SIZE + size) for size in range(-64, 64)]) == 128


async def sends_and_closes(parent: Parent, receiver: Address) -> None:
    await send_and_close(receiver)
    use_the_memory_again()
    parent.tell("closed")
    parent.receive()


def sends_and_its_loop_ends(parent: Parent, receiver: Address) -> None:
    anyio.run(send_and_close, receiver)
    use_the_memory_again()
    parent.tell("closed")
    parent.receive()


@pytest.mark.parametrize("sender", [sends_and_closes, sends_and_its_loop_ends])
async def test_messages_that_are_read_after_the_sender_has_closed_are_whole(
    sender: Callable[..., Any], child: Callable[..., Child]
) -> None:
    require("shm")
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm", recv_size=SIZE) as endpoint:
        process = child(sender, endpoint.local_address)
        peer = await endpoint.add_peer(aiofabric.Address(endpoint.local_address.format, await endpoint.recv()))
        await endpoint.send(b"known", to=peer)
        assert process.receive() == "closed"  # this loop stands still, so nothing was read
        arrived = [await endpoint.recv() for _ in range(COUNT)]
        process.tell("read")
        process.result()
    assert [message[:1] for message in arrived] == [bytes([number]) for number in range(COUNT)]
    assert all(message == message[:1] * SIZE for message in arrived)
