"""Virtual connections over shm sleep although the provider cannot wake them: a peer that sends rings the doorbell."""

from functools import partial

import anyio
import pytest

import aiofabric
from aiofabric import Access
from aiofabric.cq.source.source import Source
from tests.fixtures.children import Parent
from tests.fixtures.idle import idle_for
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import require

pytestmark = [pytest.mark.anyio, pytest.mark.alone]

CONNECTIONS = 20


@pytest.fixture(autouse=True)
def _shm() -> None:
    require("shm")


async def asleep(endpoint: aiofabric.MessageEndpoint) -> None:
    """Wait until the endpoint's side has stopped polling."""
    await stopped(source_of(endpoint))


async def stopped(source: Source) -> None:
    while True:
        passes = source.statistics().passes
        await anyio.sleep(0.05)
        if source.statistics().passes == passes:
            return


async def echo_server(parent: Parent) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener, anyio.create_task_group() as tg:
        parent.tell(listener.address.port)
        endpoints = []

        async def echo(endpoint: aiofabric.MessageEndpoint) -> None:
            async with endpoint:
                async for message in endpoint:
                    await endpoint.send(message)

        for _ in range(CONNECTIONS):
            endpoints.append(await (await listener.accept_request()).accept())
            tg.start_soon(echo, endpoints[-1])
        await asleep(endpoints[0])
        source = source_of(endpoints[0])
        passes = source.statistics().passes
        parent.tell((await idle_for(1), source.statistics().passes - passes))


async def test_idle_sides_sleep_and_wake_for_a_message(child) -> None:  # type: ignore[no-untyped-def]
    server = child(echo_server)
    port = await server.areceive()
    endpoints = [await aiofabric.connect("127.0.0.1", port, provider="shm") for _ in range(CONNECTIONS)]
    idle, passes = await server.areceive()
    assert idle.slept, idle
    assert passes == 0
    for size in (0, 100, 60_000):
        for endpoint in endpoints:
            await endpoint.send(bytes(size))
            assert await endpoint.recv() == bytes(size)
    for _ in range(5):
        await asleep(endpoints[0])
        await endpoints[0].send(b"one more")
        assert await endpoints[0].recv() == b"one more"
    for endpoint in endpoints:
        await endpoint.aclose()


async def read_nothing(parent: Parent) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            assert await endpoint.recv() == b"first"
            await parent.areceive()
            source = source_of(endpoint)
            passes = source.statistics().passes
            await anyio.sleep(1)  # the span that is measured
            parent.tell(source.statistics().passes - passes)
            await parent.areceive()  # stay while the peer sends


async def test_a_receiver_that_reads_nothing_polls_seldom_while_its_peer_waits(child) -> None:  # type: ignore[no-untyped-def]
    """Each time it stops polling, the peer rings, because its messages have not been received."""
    receiver = child(read_nothing)
    async with await aiofabric.connect("127.0.0.1", await receiver.areceive(), provider="shm") as endpoint:
        await endpoint.send(b"first")

        async def flood() -> None:
            while True:
                await endpoint.send(bytes(1000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            sent = -1
            while sent != endpoint.statistics().sends:
                sent = endpoint.statistics().sends
                await anyio.sleep(0.1)
            receiver.tell("measure")
            passes = await receiver.areceive()
            tasks.cancel_scope.cancel()
        endpoint.abort()
        receiver.tell("leave")
    assert passes < 2000  # 540 here; 27,000 if it stopped again at once


async def remember(parent: Parent) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as endpoint:
            memory = bytearray(1 << 20)
            with endpoint.domain.register(memory, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
                await endpoint.send(region.remote.pack())
                await asleep(endpoint)
                parent.tell("asleep")
                await endpoint.recv()
                parent.tell(bytes(memory[:5]))


async def test_remote_memory_access_wakes_its_target(child) -> None:  # type: ignore[no-untyped-def]
    server = child(remember)
    async with await aiofabric.connect("127.0.0.1", await server.areceive(), provider="shm") as endpoint:
        remote = aiofabric.RemoteRegion.unpack(await endpoint.recv())
        assert await server.areceive() == "asleep"
        with anyio.fail_after(5):
            await endpoint.write(b"hello" + bytes(100_000), remote[:100_005])
            assert (await endpoint.read(remote[:5])) == b"hello"
        await endpoint.send(b"done")
        assert await server.areceive() == b"hello"


async def answer_queries(parent: Parent) -> None:
    async def welcome() -> None:
        async with await (await listener.accept_request()).accept() as endpoint:
            await endpoint.send(b"welcome")

    listen = partial(aiofabric.listen, "127.0.0.1", 0, provider="shm")
    async with listen() as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(welcome)
        async with listen() as first:  # posts the receives for queries
            address = first.fabric_address
        await stopped(handle_of(listener).multiplexer.source)
        assert listener.fabric_address == address
        parent.tell(address)


async def test_a_listener_that_takes_over_the_fabric_address_wakes_up_to_answer_queries(child) -> None:  # type: ignore[no-untyped-def]
    server = child(answer_queries)
    address = await server.areceive()
    with anyio.fail_after(5):
        async with await aiofabric.connect(address) as endpoint:
            assert await endpoint.recv() == b"welcome"
