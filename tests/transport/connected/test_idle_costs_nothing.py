"""200 idle connections with posted receives use no CPU, no wake-up and no thread. Afterwards each works at once."""

import os
import time
from collections.abc import Callable

import anyio
import pytest

import aiofabric
from aiofabric import Waiting
from tests.fixtures.children import Child, Parent
from tests.fixtures.idle import Idle, idle_for
from tests.fixtures.internals import source_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import connected_pair

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

CONNECTIONS = 200


async def idle_server(parent: Parent, waiting: Waiting, span: float) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp", waiting=waiting, backlog=CONNECTIONS) as listener:
        parent.tell(listener.address.port)
        endpoints = [await (await listener.accept_request()).accept() for _ in range(CONNECTIONS)]
        parent.tell("all are there")
        assert await parent.areceive() == "be quiet"
        sources = {id(source_of(e)): source_of(e) for e in endpoints}.values()

        def passes() -> list[int]:
            return [source.statistics().passes for source in sources]

        while True:  # the last look of each source ends
            asleep = passes()
            await anyio.sleep(0.1)
            if passes() == asleep:
                break
        parent.tell((await idle_for(span), passes() == asleep))
        late = []
        for endpoint in endpoints:
            message = await endpoint.recv()
            late.append(time.monotonic() - float(message))
            await endpoint.send(b"got it")
        parent.tell(max(late))
        for endpoint in endpoints:
            await endpoint.aclose()


# On every loop, and with every waiting; the other combinations would only be slow.
_COMBINATIONS = [
    pytest.param(*loop.values, waiting, id=f"{loop.id}-{waiting.value}", marks=loop.marks)
    for loop in LOOPS
    for waiting in Waiting
    if waiting is Waiting.ADAPTIVE or loop.id == "uvloop"
]
combinations = pytest.mark.parametrize(("anyio_backend", "waiting"), _COMBINATIONS)


async def idle(child: Callable[..., Child], waiting: Waiting, span: float) -> tuple[Idle, bool, float]:
    """The activity of the listening process while nothing happens, whether no source passed, and the latest wake-up."""
    server = child(idle_server, waiting, span)
    port = await server.areceive()
    endpoints = [await aiofabric.connect("127.0.0.1", port, provider="tcp") for _ in range(CONNECTIONS)]
    assert await server.areceive() == "all are there"
    server.tell("be quiet")
    slept, without_turns = await server.areceive(30)
    for endpoint in endpoints:
        await endpoint.send(str(time.monotonic()).encode())
        assert await endpoint.recv() == b"got it"
    latest = await server.areceive()
    for endpoint in endpoints:
        await endpoint.aclose()
    await server.aresult()
    return slept, without_turns, latest


@combinations
async def test_idle_connections_cost_nothing(child: Callable[..., Child], waiting: Waiting) -> None:
    """Others may work meanwhile: that is not this process's CPU."""
    idling, without_turns, _ = await idle(child, waiting, span=3)
    assert idling.slept, idling
    assert without_turns


@pytest.mark.alone
@combinations
async def test_idle_connections_wake_at_once(child: Callable[..., Child], waiting: Waiting) -> None:
    *_, latest = await idle(child, waiting, span=0)
    assert latest < 0.050


async def connected(parent: Parent) -> tuple[list[str], list[str]]:
    """The threads before the provider was loaded, and those that stay when a message has gone each way."""
    before = os.listdir("/proc/self/task")
    async with connected_pair("tcp") as (active, passive):
        await active.send(b"there")
        await passive.send(await passive.recv())
        await active.recv()
        # Python's Thread.join() returns a moment before the kernel removes the thread.
        with anyio.move_on_after(5):
            while os.listdir("/proc/self/task") != before:  # noqa: ASYNC110 - the state is the kernel's
                await anyio.sleep(0.01)
        return before, os.listdir("/proc/self/task")


def test_no_thread_stays(anyio_backend: object, child: Callable[..., Child]) -> None:
    """The thread that loads the provider has ended by then."""
    before, then = child(connected).result()
    assert then == before
