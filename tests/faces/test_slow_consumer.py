"""A reader that does not read stops the writer on every face, and neither side's memory grows."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import psutil
import pytest

from aiofabric.channel.connect import HELLO
from aiofabric.streams import FabricStream, MessageStream, listen_messages, listen_stream
from tests.faces import peers
from tests.fixtures.children import Child
from tests.fixtures.providers import FACES, require

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 30.0  # seconds
FILLED = 2.0  # seconds after which everything that can hold bytes is full
GROWTH = 8 << 20  # bytes that a process may grow by, for each connection

Stream: TypeAlias = FabricStream | MessageStream

ASYNCIO = ("asyncio", {"use_uvloop": False})
UVLOOP = ("asyncio", {"use_uvloop": True})
TRIO: tuple[str, dict[str, Any]] = ("trio", {})

WRITERS: list[tuple[Any, Any]] = [
    (peers.byte_stream, ASYNCIO),
    (peers.byte_stream, TRIO),
    (peers.message_stream, UVLOOP),
    (peers.asyncio_streams, UVLOOP),
    (peers.asyncio_protocol, ASYNCIO),
]


@pytest.fixture
def anyio_backend() -> Any:
    return ASYNCIO


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for each in started:
        each.close()


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_slow_consumers(children: list[Child]) -> None:
    me, accepted = psutil.Process(), list[Stream]()
    everybody = anyio.Event()
    expected = len(WRITERS) * len(FACES)

    async def keep(stream: Stream) -> None:
        accepted.append(stream)
        if len(accepted) == expected:
            everybody.set()

    async def ask() -> list[Any]:
        for each in children:
            each.tell("how much?")
        return [await each.ahear() for each in children]

    async with AsyncExitStack() as stack, anyio.create_task_group() as tg:
        before = me.memory_info().rss
        for provider in map(require, FACES):
            of_bytes = await stack.enter_async_context(listen_stream("127.0.0.1", 0, provider=provider))
            of_messages = await stack.enter_async_context(listen_messages("127.0.0.1", 0, provider=provider))
            tg.start_soon(of_bytes.serve, keep)
            tg.start_soon(of_messages.serve, keep)
            for writer, backend in WRITERS:
                listener: Any = of_messages if writer is peers.message_stream else of_bytes
                children.append(Child(writer, listener.address.port, provider, backend=backend))
        await everybody.wait()
        await anyio.sleep(FILLED)
        full = await ask()
        await anyio.sleep(LONG)
        later = await ask()
        assert [sent for sent, _ in later] == [sent for sent, _ in full]
        assert max(growth for _, growth in later) < GROWTH
        assert me.memory_info().rss - before < GROWTH * expected
        assert all(stream.statistics().receive_queued <= HELLO.window for stream in accepted)
        for stream in accepted:
            for _ in range(50):
                await stream.receive()
        assert all(after[0] > then[0] for after, then in zip(await ask(), later, strict=True))
        for stream in accepted:
            await anyio.aclose_forcefully(stream)
        tg.cancel_scope.cancel()
