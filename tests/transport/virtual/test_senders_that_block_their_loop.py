"""Hazard: a program sends a message, and then computes for long without a return to its event loop.

The message has left; only the loop of the receiver has anything to do. Over shm, the receiver stops polling once it has
told its peer so. But the peer reads that only in its loop.
"""

import time

import anyio
import pytest

import aiofabric
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import HOST, VIRTUAL, require

pytestmark = pytest.mark.anyio

MESSAGES = 3


async def computes_between_messages(parent: Parent, provider: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            await endpoint.recv()
            for number in range(MESSAGES):
                parent.tell("computes")
                parent.receive()  # blocks the loop
                endpoint.send_nowait(bytes([number]))
            parent.tell("sent")
            time.sleep(60)  # noqa: ASYNC251 (until it is killed)


async def send_when_the_receiver_sleeps(sender: Child) -> None:
    await anyio.sleep(0.3)  # longer than an idle side polls
    sender.tell("send")


@pytest.mark.parametrize("provider", VIRTUAL)
async def test_its_messages_arrive_at_a_sleeping_receiver(child, provider: str) -> None:  # type: ignore[no-untyped-def]
    require(provider)
    sender = child(computes_between_messages, provider)
    endpoint = await aiofabric.connect(HOST, await sender.areceive(), provider=provider)
    await endpoint.send(b"begin")
    for number in range(MESSAGES):
        assert await sender.areceive() == "computes"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_when_the_receiver_sleeps, sender)
            with anyio.fail_after(10):
                assert await endpoint.recv() == bytes([number])
    assert await sender.areceive() == "sent"
    sender.kill()
    await endpoint.aclose()
