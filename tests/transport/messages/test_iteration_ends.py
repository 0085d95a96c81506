"""`async for` ends normally if the program itself closes the endpoint."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import EndpointType, MessageEndpoint
from tests.fixtures.peers import where
from tests.fixtures.providers import CARRIERS, Pair, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)


async def read(endpoint: Any, got: list[bytes]) -> None:
    got += [bytes(message) async for message in endpoint]


async def test_leaving_the_block_ends_the_reader(pair: Pair) -> None:
    got: list[bytes] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, pair() as (active, passive):
            tasks.start_soon(read, passive, got)
            await active.send(b"one")
            pool = passive.statistics().pool
            while pool is None or pool.messages == 0 or pool.filled:
                await anyio.lowlevel.checkpoint()
                pool = passive.statistics().pool
    assert got == [b"one"]


@pytest.mark.parametrize("close", [MessageEndpoint.close, MessageEndpoint.abort])
async def test_any_close_does(pair: Pair, close: Callable[[MessageEndpoint], None]) -> None:
    with anyio.fail_after(10):
        async with pair() as (_, passive), anyio.create_task_group() as tasks:
            tasks.start_soon(read, passive, [])
            await anyio.wait_all_tasks_blocked()
            close(passive)
            with pytest.raises(ClosedResourceError):  # who calls recv is told
                await passive.recv()
        await read(passive, [])


async def test_connectionless_endpoints_end_as_well(provider: str) -> None:
    name = "tcp;ofi_rxm" if provider == "tcp" else provider
    with anyio.fail_after(10):
        async with (
            anyio.create_task_group() as tasks,
            aiofabric.open_endpoint(EndpointType.RDM, where(name), provider=name) as endpoint,
        ):
            tasks.start_soon(read, endpoint, [])
            await anyio.wait_all_tasks_blocked()
