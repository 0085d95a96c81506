"""Hazard: endpoints and streams that the program has dropped keep their descriptors as long as the loop lives."""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionEndedError, MessageEndpoint, OpFlags
from aiofabric.streams import connect_messages, connect_stream, listen_messages, listen_stream
from aiofabric.testing import live_resources
from tests.fixtures.leaks import descriptors
from tests.fixtures.providers import HOST, connected_pair, require

pytestmark = pytest.mark.anyio

PAIRS = 30

Open = Callable[[str], Any]


async def endpoints(provider: str) -> list[Any]:
    accepted: list[Any] = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        for _ in range(PAIRS):
            tasks.start_soon(accept, listener)
            accepted.append(await aiofabric.connect(listener.address, provider=provider))
    return accepted


def streams(listen: Any, connect: Any) -> Open:
    async def opened(provider: str) -> list[Any]:
        accepted: list[Any] = []

        async def accept(listener: Any) -> None:
            accepted.append(await listener.accept())

        async with listen(HOST, provider=provider) as listener, anyio.create_task_group() as tasks:
            for _ in range(PAIRS):
                tasks.start_soon(accept, listener)
                accepted.append(await connect(HOST, listener.address.port, provider=provider))
                await anyio.wait_all_tasks_blocked()
        return accepted

    return opened


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


@asynccontextmanager
async def loop_in_use(provider: str) -> AsyncIterator[None]:
    """Keep the loop's domain open, so that only the endpoints themselves can be closed."""
    async with connected_pair(provider) as (one, two):
        yield
        await one.send(b"still works")
        assert await two.recv() == b"still works"


@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm"])
@pytest.mark.parametrize(
    "opened",
    [endpoints, streams(listen_stream, connect_stream), streams(listen_messages, connect_messages)],
    ids=["endpoints", "streams", "message streams"],
)
async def test_what_was_dropped_is_closed_soon(provider: str, opened: Open) -> None:
    require(provider)
    async with loop_in_use(provider):
        await opened_and_closed(opened, provider)
        before, objects = len(descriptors()), live_resources()
        kept = await opened(provider)
        with pytest.warns(ResourceWarning, match="unclosed .* opened at .*test_forgotten"):  # noqa: PT031
            kept.clear()
            gc.collect()
        await until(lambda: live_resources() == objects and len(descriptors()) == before)


async def opened_and_closed(opened: Open, provider: str) -> None:
    """Open what the first pairs leave open for all that follow."""
    for each in await opened(provider):
        if hasattr(each, "abort"):
            each.abort()
    await until(lambda: len(live_resources()) < PAIRS)


@asynccontextmanager
async def droppable(provider: str) -> AsyncIterator[tuple[list[MessageEndpoint], MessageEndpoint]]:
    """An endpoint that only the list refers to, and its peer."""
    accepted: list[MessageEndpoint] = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept, listener)
        active = await aiofabric.connect(listener.address, provider=provider)
    async with active:
        yield accepted, active


@pytest.mark.parametrize("provider", ["tcp", "shm"])
async def test_the_peer_of_a_dropped_endpoint_gets_its_messages_and_the_end(provider: str) -> None:
    require(provider)
    async with droppable(provider) as (dropped, peer):
        await dropped[0].send(b"before")
        with pytest.warns(ResourceWarning, match="unclosed MessageEndpoint"):  # noqa: PT031
            dropped.clear()
            gc.collect()
        with anyio.fail_after(5):
            assert await peer.recv() == b"before"
            with pytest.raises(FabricConnectionEndedError):
                await peer.recv()


@pytest.mark.parametrize("provider", ["tcp", "shm"])
async def test_a_task_that_waits_for_an_endpoint_keeps_it(provider: str) -> None:
    require(provider)
    async with droppable(provider) as (dropped, peer):

        async def wait(receive: Any) -> None:
            assert await receive == b"later"

        with pytest.warns(ResourceWarning, match="unclosed MessageEndpoint"):  # noqa: PT031
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, dropped[0].recv())
                await anyio.wait_all_tasks_blocked()
                dropped.clear()
                gc.collect()
                await anyio.wait_all_tasks_blocked()
                await peer.send(b"later")
            gc.collect()


async def test_an_alias_keeps_its_endpoint_open_until_it_closes() -> None:
    require("sockets")
    async with droppable("sockets") as (dropped, peer):
        with dropped[0].alias(OpFlags.DELIVERY_COMPLETE) as alias:
            with pytest.warns(ResourceWarning, match="unclosed MessageEndpoint"):  # noqa: PT031
                dropped.clear()
                gc.collect()
            await anyio.wait_all_tasks_blocked()
            await alias.send(b"works")
            assert await peer.recv() == b"works"
        with anyio.fail_after(5), pytest.raises(ConnectionError):  # sockets may report an end in order as a reset
            await peer.recv()
