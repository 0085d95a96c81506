"""Promise: a side exposes memory to its peer, which reads it to where it wants it."""

# Privates: a frame that no correct peer sends is sent over the channel's endpoint.

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

from aiofabric import FabricError
from aiofabric.channel.endpoint import EndpointChannel
from aiofabric.channel.frames import READ, header
from aiofabric.testing import live_resources
from tests.streams.pairs import over_fabric

pytestmark = pytest.mark.anyio

SIZE = 3 << 20


@asynccontextmanager
async def pair(provider: str) -> AsyncIterator[tuple[EndpointChannel, EndpointChannel]]:
    one, other = await over_fabric(provider)
    assert isinstance(one, EndpointChannel)
    assert isinstance(other, EndpointChannel)
    try:
        assert one.has_rma
        assert other.has_rma
        yield one, other
    finally:
        one.abort()
        other.abort()
    assert not [each for each in live_resources() if each.startswith("MemoryRegion")]


async def test_what_is_exposed_is_read(provider: str) -> None:
    async with pair(provider) as (one, other):
        data = bytes(range(256)) * (SIZE // 256)
        for size in (1, 5000, SIZE):
            buffer = bytearray(size)
            with one.expose(data[:size]) as exposed:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(exposed.was_read)
                    await other.read_exposed(memoryview(buffer), exposed.remote)
            assert buffer == data[:size]


async def test_memory_is_read_in_the_order_in_which_it_was_exposed(provider: str) -> None:
    async with pair(provider) as (one, other):
        buffer = bytearray(8)
        with one.expose(b"a" * 8) as first, one.expose(b"b" * 8) as second:
            await other.read_exposed(memoryview(buffer), first.remote)
            await first.was_read()
            assert buffer == b"a" * 8
            with anyio.move_on_after(0.05) as limit:
                await second.was_read()
            assert limit.cancelled_caught
            await other.read_exposed(memoryview(buffer), second.remote)
            await second.was_read()
            assert buffer == b"b" * 8


@pytest.mark.parametrize("end", ["abort here", "abort there", "close there"])
async def test_the_wait_ends_with_the_channel(provider: str, end: str) -> None:
    async with pair(provider) as (one, other):
        errors: list[BaseException] = []

        async def wait(exposed: Any) -> None:
            try:
                await exposed.was_read()
            except (OSError, ClosedResourceError) as error:
                errors.append(error)

        with one.expose(bytes(SIZE)) as exposed:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, exposed)
                await anyio.wait_all_tasks_blocked()
                if end == "close there":
                    other.close(lambda: None)
                else:
                    (one if end == "abort here" else other).abort()
        assert len(errors) == 1
        with pytest.raises((OSError, ClosedResourceError)):
            one.expose(bytes(SIZE))


async def test_a_read_of_nothing_ends_the_channel(provider: str) -> None:
    async with pair(provider) as (one, other):
        await other._endpoint.send(header(READ, 0))
        with pytest.raises(ConnectionError, match="it said that it had read memory"):
            await one.recv(10)


async def test_memory_that_is_no_longer_exposed_cannot_be_read(provider: str) -> None:
    if provider == "shm":
        pytest.skip("shm checks no keys, in any version: docs/topics/security.md")
    async with pair(provider) as (one, other):
        with one.expose(bytes(SIZE)) as exposed:
            remote = exposed.remote
        with pytest.raises(FabricError), anyio.fail_after(10):
            await other.read_exposed(memoryview(bytearray(SIZE)), remote)
