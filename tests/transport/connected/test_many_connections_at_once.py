"""Many connections of one process receive at the same time: no queue overruns, and nothing is lost."""

import time
from typing import Any

import anyio
import pytest

import aiofabric
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import CONNECTED, HOST, RDMA_HOST, over

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(250)]
provider = over(CONNECTED)

CONNECTIONS = 200
MESSAGES = 4 if RDMA_HOST else 64  # of each connection, all posted before the first one completes; 5 ms each there
BUSY = 40  # connections: Soft RoCE makes 2,047 entries of the 1,024 that verbs asks for, and these receive 2,560
RECEIVES = 64
DATA = bytes(300)  # longer than what is injected, so each send completes


async def test_every_message_of_a_flood_over_many_connections_arrives(provider: str) -> None:
    counted: dict[int, int] = {}

    async def count(endpoint: aiofabric.MessageEndpoint) -> None:
        async with endpoint:
            async for message in endpoint:
                number = int.from_bytes(message[:4], "big")
                counted[number] = counted.get(number, 0) + 1

    async def accept(listener: aiofabric.Listener, tasks: Any) -> None:
        for _ in range(CONNECTIONS):
            tasks.start_soon(count, await (await listener.accept_request()).accept())

    async def flood(number: int, endpoint: aiofabric.MessageEndpoint) -> None:
        async with endpoint, anyio.create_task_group() as sends:
            for _ in range(MESSAGES):
                sends.start_soon(endpoint.send, number.to_bytes(4, "big") + DATA)

    async with (
        aiofabric.listen(HOST, 0, provider=provider, backlog=CONNECTIONS) as listener,
        anyio.create_task_group() as receivers,
    ):
        receivers.start_soon(accept, listener, receivers)
        port = listener.address.port
        endpoints = [await aiofabric.connect(HOST, port, provider=provider) for _ in range(CONNECTIONS)]
        async with anyio.create_task_group() as tasks:
            for number, endpoint in enumerate(endpoints):
                tasks.start_soon(flood, number, endpoint)
    assert counted == dict.fromkeys(range(CONNECTIONS), MESSAGES)


async def flood_twice(parent: Parent, port: int, provider: str) -> None:
    """Fill the receives of all connections of the other process, and do it again while it does not read."""
    endpoints = [await aiofabric.connect(HOST, port, provider=provider) for _ in range(BUSY)]
    for _ in range(2):
        parent.receive()
        async with anyio.create_task_group() as tasks:
            for endpoint in endpoints:
                for _ in range(RECEIVES):
                    tasks.start_soon(endpoint.send, DATA)
        parent.tell("sent")
    async with anyio.create_task_group() as tasks:
        for endpoint in endpoints:
            tasks.start_soon(endpoint.aclose)


async def test_a_loop_that_is_busy_during_a_flood_loses_nothing(child: Any, provider: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider, backlog=BUSY, recv_count=RECEIVES) as listener:
        flooding: Child = child(flood_twice, listener.address.port, provider)
        ends = [await (await listener.accept_request()).accept() for _ in range(BUSY)]
        flooding.tell("go")  # the pools grow to their full size
        for end in ends:
            for _ in range(RECEIVES):
                await end.recv()
        await flooding.areceive(100.0)
        flooding.tell("go")
        time.sleep(8.0 if RDMA_HOST else 0.5)  # noqa: ASYNC251  the loop is busy, and the messages arrive
        for end in ends:
            assert sum([1 async for _ in end]) == RECEIVES
            end.close()
        assert await flooding.areceive(100.0) == "sent"
        await flooding.aresult(100.0)
