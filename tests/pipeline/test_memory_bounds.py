"""Ten gibibytes into consumers that are stopped again and again: the memory of all sides stays what was stated."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import anyio
import pytest

from aiofabric.pipeline import Pull, Push
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(280)]

SIZE = 1 << 20
ITEMS = 10 * 1024
STOPS = 10
MOST = 32 * SIZE
"""Bytes that each consumer may keep; the producer may keep twice as many."""
SLACK_MB = 96
"""Beside what is stated: the pool keeps 64 MiB for reuse, and malloc and the provider keep a little."""

Start = Callable[..., Child]


def resident_mb(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


async def consume(parent: Parent, port: int, provider: str) -> int:
    count = 0
    async with Pull((HOST, port), provider=provider, window_bytes=MOST) as pull:
        parent.tell("connecting")
        async for item in pull:
            number = bytes(item.data[:8])
            assert number == item.data[-8:]
            count += 1
    return count


def stop_again_and_again(parent: Parent, pids: list[int]) -> None:
    """Not the producer: over shm it may wait, in the provider, for a lock that a stopped process has."""
    for _ in range(STOPS):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                os.kill(pid, number)
            sleep(0.3)
    parent.tell("done")


@pytest.mark.parametrize("memory", ["fresh", "pool"])
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])
async def test_memory_stays_bounded_while_all_consumers_are_stopped(
    child: Start, provider: str, memory: str, anyio_backend: object
) -> None:
    async with Push(listen=(HOST, 0), provider=provider, max_unacknowledged_bytes=2 * MOST) as push:
        consumers = [child(consume, push.address.port, provider) for _ in range(2)]
        for each in consumers:
            assert await each.areceive() == "connecting"
        await until(lambda: len(push.statistics().consumers) == 2)
        pids = [os.getpid(), *(each.pid for each in consumers)]
        before = [resident_mb(pid) for pid in pids]
        grown = [0] * len(pids)

        async def measure() -> None:
            while True:
                grown[:] = [
                    max(resident_mb(pid) - first, most) for pid, first, most in zip(pids, before, grown, strict=True)
                ]
                assert push.statistics().bytes_kept <= 2 * MOST
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(measure)
            stopper = child(stop_again_and_again, pids[1:])
            for number in range(ITEMS):
                item: Any = push.pool.take(SIZE) if memory == "pool" else bytearray(SIZE)
                item[:8] = item[-8:] = number.to_bytes(8, "little")
                await push.push(item)
                del item
            await push.drain()
            tasks.cancel_scope.cancel()
        most = 4 * MOST // SIZE + SLACK_MB  # what was read last is kept until a later message has left
        assert max(grown) <= most, grown
    assert sum([await each.aresult() for each in consumers]) == ITEMS
    assert await stopper.areceive() == "done"
