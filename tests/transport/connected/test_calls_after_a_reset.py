"""Promise: once an operation has ended with FabricConnectionResetError, later calls end with it, too.

The event of the connection's end comes after the failed operation. Sends between the two were accepted, and lost.
"""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiofabric import Access, FabricConnectionResetError, MessageEndpoint, RemoteRegion
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.anyio
provider = over(["tcp"])


async def send_nowait(endpoint: MessageEndpoint) -> None:
    endpoint.send_nowait(b"lost")


async def try_send(endpoint: MessageEndpoint) -> None:
    endpoint.try_send(b"lost")


async def batch(endpoint: MessageEndpoint) -> None:
    async with endpoint.batch() as sends:
        await sends.send(b"lost")


CALLS: dict[str, Callable[[MessageEndpoint], Awaitable[object]]] = {
    "send": lambda endpoint: endpoint.send(b"lost"),
    "send of a list": lambda endpoint: endpoint.send([b"lo", b"st"]),
    "large send": lambda endpoint: endpoint.send(bytes(60_000)),
    "remote data": lambda endpoint: endpoint.send(b"lost", remote_data=3),
    "send_nowait": send_nowait,
    "try_send": try_send,
    "batch": batch,
    "recv": lambda endpoint: endpoint.recv(),
}


async def break_by_a_read(active: MessageEndpoint, passive: MessageEndpoint) -> RemoteRegion:
    with passive.domain.register(bytearray(100), access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
        remote = region.remote
    with anyio.fail_after(5), pytest.raises(FabricConnectionResetError):
        await active.read(remote)
    return remote


@pytest.mark.parametrize("call", CALLS)
async def test_nothing_is_accepted(pair: Pair, call: str) -> None:
    async with pair() as (active, passive):
        await break_by_a_read(active, passive)
        with anyio.fail_after(5), pytest.raises(FabricConnectionResetError):
            await CALLS[call](active)


async def test_no_read_or_write_is_accepted(pair: Pair) -> None:
    async with pair() as (active, passive):
        remote = await break_by_a_read(active, passive)
        with anyio.fail_after(5), pytest.raises(FabricConnectionResetError):
            await active.write(b"lost", remote)
        with anyio.fail_after(5), pytest.raises(FabricConnectionResetError):
            await active.read(remote)


async def test_what_arrived_before_is_received(pair: Pair) -> None:
    async with pair() as (active, passive):
        await passive.send(b"before")
        await break_by_a_read(active, passive)
        with anyio.fail_after(5):
            assert await active.recv() == b"before"
            with pytest.raises(FabricConnectionResetError):
                await active.recv()


async def test_it_closes_at_once(pair: Pair) -> None:
    async with pair(close_timeout=60) as (active, passive):
        await break_by_a_read(active, passive)
        with anyio.fail_after(5):
            await active.aclose()
