"""What only virtual connections can get wrong: many on one trunk, two processes, a heartbeat on the line."""

import socket
from collections.abc import Callable
from functools import partial

import anyio
import pytest

import aiofabric
from aiofabric import MessageEndpoint, NotSupportedError, TruncatedMessageError
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import VIRTUAL, _pair, over

pytestmark = pytest.mark.anyio
provider = over(VIRTUAL)

MIB = 1 << 20
SIZES = (0, 1, 100, 4096, 4097, 65_536, 3 * MIB)


async def accept_all(listener: aiofabric.Listener, count: int, into: list[MessageEndpoint]) -> None:
    while len(into) < count:
        into.append(await (await listener.accept_request()).accept())


async def test_many_connections_say_much_while_nobody_looks(provider: str) -> None:
    """More messages than the trunk has receives posted; 1.17's shm would not find them again under a mask."""
    count, each = 30, 60
    passive: list[MessageEndpoint] = []
    async with (
        aiofabric.listen("127.0.0.1", 0, provider=provider, backlog=count) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(accept_all, listener, count, passive)
        active = [await aiofabric.connect(listener.address, provider=provider) for _ in range(count)]
    for n in range(each):
        for endpoint in active:
            endpoint.send_nowait(b"%d" % n)
            endpoint.send_nowait(b"%d" % n * 3000)
    for endpoint in passive:
        for n in range(each):
            assert await endpoint.recv() == b"%d" % n
            assert await endpoint.recv() == b"%d" % n * 3000
    for endpoint in active + passive:
        await endpoint.aclose()


async def echo(parent: Parent, provider: str, port: int) -> None:
    async with await aiofabric.connect(
        "127.0.0.1", port, provider=provider, param=b"question", recv_size=4 * MIB, recv_count=4
    ) as endpoint:
        parent.tell(endpoint.param)
        async for message in endpoint:
            await endpoint.send(message)


async def test_two_processes(child: Callable[..., Child], provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        peer = child(echo, provider, listener.address.port)
        request = await listener.accept_request()
        assert request.param == b"question"
        async with await request.accept(param=b"answer", recv_size=None) as endpoint:
            assert await peer.ahear() == b"answer"
            for size in SIZES:
                data = bytes(range(256)) * (size // 256) + bytes(size % 256)
                await endpoint.send(data)
                target = bytearray(size)
                assert await endpoint.recv_into(target) == size
                assert target == data
        await peer.aresult()


async def test_pooled_message_too_long_is_told_with_its_size(provider: str) -> None:
    async with _pair(provider, {"recv_size": 1000}) as (active, passive):
        await active.send(bytes(5000))
        await active.send(b"next")
        with pytest.raises(TruncatedMessageError) as caught:
            await passive.recv()
        assert (caught.value.size, caught.value.limit) == (5000, 1000)
        assert await passive.recv() == b"next"


async def test_heartbeat_is_the_kernels(provider: str) -> None:
    async with _pair(provider, heartbeat=9) as ends:
        for endpoint in ends:
            line = endpoint._handle.line  # type: ignore[attr-defined]
            option = partial(line._socket.getsockopt, socket.IPPROTO_TCP)
            assert line._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert option(socket.TCP_KEEPIDLE) + 2 * option(socket.TCP_KEEPINTVL) == 9
            assert option(socket.TCP_KEEPCNT) == 2
            assert option(socket.TCP_USER_TIMEOUT) == 9000


@pytest.mark.parametrize("heartbeat", [0, -1, 2.9])
async def test_heartbeat_takes_its_time(provider: str, heartbeat: float) -> None:
    with pytest.raises(ValueError, match="3 seconds"):
        await aiofabric.connect("127.0.0.1", 9, provider=provider, heartbeat=heartbeat)


async def test_heartbeat_is_none_of_a_provider_with_connections() -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        with pytest.raises(NotSupportedError, match="provider tcp itself"):
            await aiofabric.connect(listener.address, provider="tcp", heartbeat=5)
