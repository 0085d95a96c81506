"""Hazard: a program computes between its sends, and lets its event loop run seldom.

Small messages leave together when an iteration of the loop ends. In such a program, they would wait for the next
result. The first ones do; then the loop is known to be late, and messages leave at once.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import aio
from aiofabric.pipeline import Pull, Push
from aiofabric.streams import connect_stream, listen_stream
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import HOST, VIRTUAL, require
from tests.fixtures.waiting import until

Send = Callable[[bytes], Awaitable[object]]
SIZE = 64
IN_A_ROW = 2  # messages between two computations
ROUNDS = 4  # eight messages: a stream has receives for as many, and learns in its loop that the peer has posted more

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def awaited(port: int, provider: str) -> AsyncIterator[Send]:
    async with await aiofabric.connect(HOST, port, provider=provider) as endpoint:
        yield endpoint.send


@asynccontextmanager
async def not_awaited(port: int, provider: str) -> AsyncIterator[Send]:
    async with await aiofabric.connect(HOST, port, provider=provider) as endpoint:

        async def send(data: bytes) -> None:
            endpoint.send_nowait(data)

        yield send


@asynccontextmanager
async def streamed(port: int, provider: str) -> AsyncIterator[Send]:
    async with await connect_stream(HOST, port, provider=provider) as stream:
        yield stream.send


@asynccontextmanager
async def written(port: int, provider: str) -> AsyncIterator[Send]:
    _, writer = await aio.open_connection(HOST, port, provider=provider)

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    yield write
    writer.transport.abort()


@asynccontextmanager
async def pushed(port: int, provider: str) -> AsyncIterator[Send]:
    async with Push((HOST, port), provider=provider) as push:
        yield push.push


SENDERS = {each.__name__: each for each in (awaited, not_awaited, streamed, written, pushed)}


async def computes(parent: Parent, how: str, port: int, provider: str) -> None:
    async with SENDERS[how](port, provider) as send:
        parent.receive()
        for number in range(ROUNDS):
            for each in range(IN_A_ROW):
                await send(bytes([number * IN_A_ROW + each]) * SIZE)
            parent.tell("computes")
            parent.receive()  # blocks the loop, as a computation does


@asynccontextmanager
async def arrivals(how: str, provider: str) -> AsyncIterator[tuple[int, Callable[[], Awaitable[bytes]]]]:
    """The port of a receiver, and a function that waits for its next message."""
    if how == "pushed":
        async with Pull(listen=(HOST, 0), provider=provider) as pull:

            async def next_item() -> bytes:
                with await pull.pull() as item:
                    return bytes(item.data)

            assert pull.address.port is not None
            yield pull.address.port, next_item
        return
    accepted: list[Any] = []
    if how in ("awaited", "not_awaited"):
        async with aiofabric.listen(HOST, 0, provider=provider) as listener:

            async def next_message() -> bytes:
                if not accepted:
                    accepted.append(await (await listener.accept_request()).accept())
                return bytes(await accepted[0].recv())

            assert listener.address.port is not None
            yield listener.address.port, next_message
    else:
        async with listen_stream(HOST, 0, provider=provider) as streams:

            async def next_bytes() -> bytes:
                if not accepted:
                    accepted.append(await streams.accept())
                found = b""
                while len(found) < SIZE:
                    found += await accepted[0].receive(SIZE - len(found))
                return found

            assert streams.address.port is not None
            yield streams.address.port, next_bytes
    for each in accepted:
        await each.aclose()


@pytest.mark.parametrize("how", SENDERS)
@pytest.mark.parametrize("provider", ["tcp", *VIRTUAL])
async def test_its_messages_arrive_while_it_computes(
    child: Callable[..., Child], provider: str, how: str, anyio_backend_name: str
) -> None:
    require(provider)
    if how == "written" and anyio_backend_name == "trio":
        pytest.skip("aiofabric.aio is for asyncio")
    came: list[int] = []
    late = 0  # rounds

    def have_come(count: int) -> bool:
        return len(came) >= count

    async with arrivals(how, provider) as (port, arrived), anyio.create_task_group() as tasks:

        async def collect() -> None:
            while len(came) < ROUNDS * IN_A_ROW:
                came.append((await arrived())[0])

        tasks.start_soon(collect)
        sender = child(computes, how, port, provider)
        sender.tell("begin")
        for number in range(ROUNDS):
            assert await sender.areceive() == "computes"
            with anyio.move_on_after(3) as waited:
                await until(partial(have_come, (number + 1) * IN_A_ROW))
            late += waited.cancelled_caught
            sender.tell("go on")
    assert late <= 2
    assert came == list(range(ROUNDS * IN_A_ROW))
    sender.kill()
