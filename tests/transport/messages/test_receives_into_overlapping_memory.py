"""Hazard: two receives into the same memory are posted at the same time, and one message overwrites the other."""

from typing import Any

import anyio
import pytest

from tests.fixtures.providers import CARRIERS, Pair, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)


@pytest.mark.parametrize("recv_size", [None, 1000], ids=["direct", "pooled"])
async def test_receives_in_pieces_are_kept_apart(pair: Pair, recv_size: int | None) -> None:
    memory = bytearray(100)
    first: list[Any] = [memoryview(memory)[:10], memoryview(memory)[20:30]]
    async with pair(recv_size=recv_size) as (active, passive):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(passive.recv_into, first)
            await anyio.wait_all_tasks_blocked()
            for part in (memoryview(memory)[25:26], [memoryview(memory)[50:60], memoryview(memory)[:1]]):
                with pytest.raises(ValueError, match="overlapping memory"):
                    await passive.recv_into(part)
            await active.send(b"0123456789abc")
        assert memory[:10] + memory[20:23] == b"0123456789abc"
        with pytest.raises(ValueError, match="overlapping memory"):
            await passive.recv_into([memoryview(memory)[:10], memoryview(memory)[9:20]])
        await active.send(b"again")
        assert await passive.recv_into(memory) == 5


@pytest.mark.parametrize("recv_size", [None, 1000], ids=["direct", "pooled"])
@pytest.mark.parametrize(("start", "stop"), [(0, 10), (5, 6), (9, 20), (0, 100)])
async def test_the_second_is_refused(pair: Pair, recv_size: int | None, start: int, stop: int) -> None:
    memory = bytearray(100)
    async with pair(recv_size=recv_size) as (active, passive):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(passive.recv_into, memoryview(memory)[:10])
            await anyio.wait_all_tasks_blocked()
            parts: list[Any] = [memoryview(memory)[start:stop], [bytearray(1), memoryview(memory)[start:stop]]]
            for part in parts:
                with pytest.raises(ValueError, match="overlapping memory"):
                    await passive.recv_into(part)
            tasks.start_soon(passive.recv_into, memoryview(memory)[50:60])  # beside it, and after it
            await anyio.wait_all_tasks_blocked()
            await active.send(b"first")
            await active.send(b"second")
        assert memory[:5] == b"first"
        assert memory[50:56] == b"second"
        await active.send(b"again")
        assert await passive.recv_into(memory) == 5  # nothing is under way any more


@pytest.mark.parametrize("recv_size", [None, 1000], ids=["direct", "pooled"])
@pytest.mark.parametrize("turned", [False, True])
async def test_receives_that_touch_each_other_do_not_overlap(pair: Pair, recv_size: int | None, turned: bool) -> None:
    memory = bytearray(20)
    halves = [memoryview(memory)[:10], memoryview(memory)[10:]]
    async with pair(recv_size=recv_size) as (active, passive), anyio.create_task_group() as tasks:
        for half in reversed(halves) if turned else halves:
            tasks.start_soon(passive.recv_into, half)
            await anyio.wait_all_tasks_blocked()
        await active.send(b"0123456789")
        await active.send(b"abcdefghij")
    assert bytes(memory) == (b"abcdefghij0123456789" if turned else b"0123456789abcdefghij")
