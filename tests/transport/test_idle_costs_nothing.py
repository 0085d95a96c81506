"""200 idle connections, receives posted: no CPU, no wake-up; and afterwards each is there at once."""

import time

import anyio
import pytest

import aiofabric
from aiofabric import Waiting
from tests.fixtures.children import Parent
from tests.fixtures.loops import LOOPS

pytestmark = [pytest.mark.anyio, pytest.mark.alone, pytest.mark.timeout(90)]

CONNECTIONS = 200


async def idle_server(parent: Parent, waiting: Waiting) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp", waiting=waiting, backlog=CONNECTIONS) as listener:
        parent.tell(listener.address.port)
        endpoints = [await (await listener.accept_request()).accept() for _ in range(CONNECTIONS)]
        parent.tell("all are there")
        assert await parent.ahear() == "be quiet"
        sources = {id(e._handle.source): e._handle.source for e in endpoints}.values()
        await anyio.sleep(0.5)  # the last look of each source ends
        turns = [s.statistics().turns for s in sources]
        before = time.process_time()
        await anyio.sleep(3)  # the span that is measured, not a wait for something
        spent = time.process_time() - before
        parent.tell((spent, [s.statistics().turns for s in sources] == turns))
        late = []
        for endpoint in endpoints:
            message = await endpoint.recv()
            late.append(time.monotonic() - float(message))
            await endpoint.send(b"got it")
        parent.tell(max(late))
        for endpoint in endpoints:
            await endpoint.aclose()


# On every loop, and with every waiting; the other combinations would only be slow, because nothing runs beside them.
COMBINATIONS = [
    pytest.param(*loop.values, waiting, id=f"{loop.id}-{waiting.value}", marks=loop.marks)
    for loop in LOOPS
    for waiting in Waiting
    if waiting is Waiting.ADAPTIVE or loop.id == "uvloop"
]


@pytest.mark.parametrize(("anyio_backend", "waiting"), COMBINATIONS)
async def test_idle_connections(child, waiting: Waiting) -> None:  # type: ignore[no-untyped-def]
    server = child(idle_server, waiting)
    port = await server.ahear()
    endpoints = [await aiofabric.connect("127.0.0.1", port, provider="tcp") for _ in range(CONNECTIONS)]
    assert await server.ahear() == "all are there"
    server.tell("be quiet")
    spent, without_turns = await server.ahear(30)
    assert spent < 0.010, f"{spent * 1000:.1f} ms of CPU in 3 s"
    assert without_turns
    for endpoint in endpoints:
        await endpoint.send(str(time.monotonic()).encode())
        assert await endpoint.recv() == b"got it"
    assert await server.ahear() < 0.050
    for endpoint in endpoints:
        await endpoint.aclose()
    await server.aresult()
