"""Hazard: a peer over rxm ends while its large messages wait, and this side's next call connects to another peer.

That call handles the end of the first connection. rxm then handles the messages that came over it, and would begin to
read them over the connection that it has freed. So aiofabric lets it handle them before.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import EndpointType, RdmEndpoint
from tests.fixtures.children import Child, ChildFailed, Parent
from tests.fixtures.providers import HOST, RXM, require

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.timeout(120)]

SIZE = 200_000  # rxm reads it out of its sender's memory
MESSAGES = 3
ENDS = (aiofabric.FabricError, anyio.ClosedResourceError)
WAYS = ["killed", "closed"]


async def sender(parent: Parent, address: bytes, how: str) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=RXM, recv_size=None) as endpoint:
        peer = await endpoint.add_peer(address)
        await endpoint.send(b"connected", to=peer)
        await parent.areceive()

        async def send() -> None:
            with suppress(*ENDS):
                await endpoint.send(bytearray(SIZE), to=peer)

        async with anyio.create_task_group() as tasks:
            for _ in range(MESSAGES):
                tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            endpoint.close()


async def receive(endpoint: RdmEndpoint) -> None:
    with suppress(*ENDS):
        await endpoint.recv_into(bytearray(SIZE))


async def receiver(parent: Parent, rounds: int) -> str:
    async with aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=RXM, recv_size=None) as endpoint:
        for _ in range(rounds):
            async with aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=RXM) as other:
                peer = await endpoint.add_peer(other.local_address)
                parent.tell(endpoint.local_address.raw)
                assert await endpoint.recv(100) == b"connected"
                async with anyio.create_task_group() as tasks:
                    for _ in range(MESSAGES):
                        tasks.start_soon(receive, endpoint)
                    await anyio.wait_all_tasks_blocked()
                    parent.tell("ready")
                    parent.receive()  # the loop is busy until the sender has ended
                    await endpoint.send(b"the first message", to=peer)
                    assert await other.recv() == b"the first message"
                    tasks.cancel_scope.cancel()
        return "goes on"


@pytest.mark.parametrize("how", WAYS)
def test_a_first_message_to_a_peer_does_not_crash_while_messages_of_an_ended_one_wait(
    child: Callable[..., Child], how: str
) -> None:
    require(RXM)
    receiving = child(receiver, 3)
    for _ in range(3):
        sending = child(sender, receiving.receive(), how)
        sending.tell(receiving.receive())
        if how == "killed":
            with pytest.raises(ChildFailed, match="SIGKILL"):
                sending.result()
        else:
            sending.result()
        receiving.tell("it has ended")
    assert receiving.result() == "goes on"
