"""Sends and receives that need not wait let the loop run other tasks regularly, and let a cancel take effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiofabric._core import STREAK
from aiofabric.streams import FabricStream
from tests.fixtures.internals import channel_of
from tests.streams.pairs import over_fabric, over_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio

COUNT = 10 * STREAK


async def connected(provider: str) -> tuple[FabricStream, FabricStream]:
    one, other = await over_fabric(provider)
    return FabricStream(one), FabricStream(other)


async def arrived(one: FabricStream, other: FabricStream) -> Callable[[], Awaitable[object]]:
    """Enough bytes have arrived for each of ``COUNT`` receives."""
    await one.send(bytes(2 * COUNT))
    await other.receive(1)

    async def receive() -> None:
        assert await other.receive(1) == b"\0"

    return receive


async def sent(one: FabricStream, other: FabricStream) -> Callable[[], Awaitable[object]]:
    return lambda: one.send(b"x")


@pytest.mark.parametrize("prepare", [arrived, sent])
async def test_others_have_their_turn(
    provider: str, prepare: Callable[[FabricStream, FabricStream], Awaitable[Callable[[], Awaitable[object]]]]
) -> None:
    one, other = await connected(provider)
    async with one, other, anyio.create_task_group() as tg:
        act, passes = await prepare(one, other), 0

        async def others() -> None:
            nonlocal passes
            while True:
                await checkpoint()
                passes += 1

        tg.start_soon(others)
        await checkpoint()
        for _ in range(COUNT):
            await act()
        assert passes >= COUNT // (STREAK + 1)
        tg.cancel_scope.cancel()


@pytest.mark.parametrize("prepare", [arrived, sent])
async def test_a_cancel_comes_in_soon(
    provider: str, prepare: Callable[[FabricStream, FabricStream], Awaitable[Callable[[], Awaitable[object]]]]
) -> None:
    one, other = await connected(provider)
    async with one, other:
        act, count = await prepare(one, other), 0
        with anyio.CancelScope() as scope:
            scope.cancel()
            while count < COUNT:
                await act()
                count += 1
        assert scope.cancelled_caught
        assert count <= STREAK


@pytest.mark.parametrize("way", ["sent", "received"])
async def test_messages_that_need_not_wait_let_others_have_their_turn(provider: str, way: str) -> None:
    one, other = await over_messages(provider)
    async with one, other, anyio.create_task_group() as tg:
        passes = 0

        async def others() -> None:
            nonlocal passes
            while True:
                await checkpoint()
                passes += 1

        if way == "received":
            await channel_of(one).send(b"\1\0\0\0x" * COUNT)  # all in one frame
            assert await other.receive() == b"x"
        tg.start_soon(others)
        await checkpoint()
        for _ in range(COUNT - 1):
            await (one.send(b"x") if way == "sent" else other.receive())
        assert passes >= (COUNT - 1) // (STREAK + 1)
        tg.cancel_scope.cancel()
