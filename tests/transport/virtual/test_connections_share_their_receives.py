"""Hazard: a connection ends, or never begins, and keeps its part of the multiplexer: an id, receives, or a promise."""

# Privates: receives are shared inside the multiplexer, and no connection can see them.
# Doubles: the order in which receives complete, and a constructor that fails, are chosen by the test.

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric.transport.opening.options import EndpointOptions
from aiofabric.transport.virtual.connection import ConnectionHandle
from tests.fixtures.internals import handle_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import require
from tests.fixtures.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS[:1])]


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[aiofabric.MessageEndpoint, aiofabric.MessageEndpoint, Any]]:
    """Both ends of a connection over shm, and the multiplexer, which the listener keeps."""
    require("shm")
    async with aiofabric.listen("127.0.0.1", 0, provider="shm", recv_size=100) as listener:
        ends: list[aiofabric.MessageEndpoint] = []

        async def accept() -> None:
            ends.append(await (await listener.accept_request()).accept())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            active = await aiofabric.connect(listener.address, provider="shm", recv_size=100)
        async with active, ends[0]:
            yield active, ends[0], handle_of(listener).multiplexer


def receives(multiplexer: Any) -> tuple[int, int]:
    """Receives of all pools, and those that are posted or free."""
    pools = multiplexer._pools.values()
    return (
        sum(len(pool._buffers) for pool in pools),
        sum(pool.posted + len(pool._free) + len(pool._idle) for pool in pools),
    )


def collect(monkeypatch: pytest.MonkeyPatch, connection: Any) -> list[Any]:
    """Keep the completed receives of one connection; the test hands them on."""
    real, kept = ConnectionHandle.arrived, []

    def arrived(handle: ConnectionHandle, buffer: Any, tag: int) -> None:
        if handle is connection:
            kept.append(lambda: real(handle, buffer, tag))
        else:
            real(handle, buffer, tag)

    monkeypatch.setattr(ConnectionHandle, "arrived", arrived)
    return kept


async def three_arrive(active: aiofabric.MessageEndpoint, kept: list[Any]) -> None:
    for number in range(3):
        await active.send(b"%d" % number)
    await until(lambda: len(kept) == 3)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]])
async def test_messages_that_complete_in_another_order_arrive_in_the_order_of_sending(
    order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected() as (active, passive, _):
        kept = collect(monkeypatch, handle_of(passive))
        with anyio.fail_after(20):
            await three_arrive(active, kept)
            for number in order:
                kept[number]()
            assert [await passive.recv() for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_message_that_came_before_its_predecessor_leaves_no_receive_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with connected() as (active, passive, multiplexer):
        kept = collect(monkeypatch, handle_of(passive))
        with anyio.fail_after(20):
            await three_arrive(active, kept)
            kept[1]()
            kept[2]()
            first = kept[0]
            passive.abort()
            first()  # after the end
        everything, ready = receives(multiplexer)
        assert everything == ready > 0


async def test_a_connection_that_cannot_be_made_leaves_nothing_in_the_multiplexer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("report_writes")

    async with connected() as (_, _, multiplexer):
        before = set(multiplexer.connections), {pool: pool.promised for pool in multiplexer._pools.values()}
        with monkeypatch.context() as patch:
            patch.setattr(EndpointOptions, "report_writes", fail)
            async with aiofabric.listen("127.0.0.1", 0, provider="shm") as other:
                for _ in range(3):
                    with pytest.raises(LookupError, match="report_writes"):
                        await aiofabric.connect(other.address, provider="shm", recv_size=100)
        assert (set(multiplexer.connections), {pool: pool.promised for pool in multiplexer._pools.values()}) == before


async def test_receives_that_a_pool_gives_back_are_counted() -> None:
    async with connected() as (active, passive, multiplexer):
        await active.send(b"before")
        assert await passive.recv() == b"before"
        (pool,) = multiplexer._pools.values()
        count = pool.count
        assert pool.withdraw(3) == 3
        assert (pool.count, len(pool._idle)) == (count - 3, 3)
        assert pool.withdraw(0) == 0
        assert (pool.count, len(pool._idle)) == (count - 3, 3)
        pool.grow(3)
        assert (pool.count, len(pool._idle)) == (count, 0)
        with anyio.fail_after(5):
            for number in range(3 * count):
                await active.send(b"%d" % number)
                assert await passive.recv() == b"%d" % number
