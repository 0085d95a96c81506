"""An idle pipeline of many processes wakes none of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import psutil
import pytest

from aiofabric.pipeline import Pull, Push
from tests.fixtures.providers import CARRIERS, HOST, over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fixtures.children import Child, Parent

on_asyncio = pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])
pytestmark = [pytest.mark.anyio, pytest.mark.alone, pytest.mark.long, pytest.mark.timeout(180), on_asyncio]

provider = over(CARRIERS)

EACH = 8  # producers, and as many consumers


async def produce(parent: Parent, places: Sequence[tuple[str, int]], provider: str) -> None:
    async with Push(list(places), provider=provider) as push:
        while len(push.statistics().consumers) < EACH:  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.01)
        for size in (10, 100_000):
            for _ in range(EACH):
                await push.push(bytes(size))
        await push.drain()
        parent.tell("idle")
        await parent.areceive()


async def consume(parent: Parent, provider: str) -> None:
    async with Pull(listen=(HOST, 0), producers=EACH, provider=provider) as pull:
        parent.tell(pull.address.port)
        async for _ in pull:
            pass


def wake_ups(processes: Sequence[Child]) -> list[int]:
    """Of each process: how often its threads have waited for something."""
    words = "voluntary_ctxt_switches:"
    return [
        sum(
            int(line.split()[1])
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for line in (task / "status").read_text().splitlines()
            if line.startswith(words)
        )
        for process in processes
    ]


def seconds_used(processes: Sequence[Child]) -> float:
    return sum(sum(psutil.Process(each.pid).cpu_times()[:2]) for each in processes)


async def test_sixteen_processes_sleep(provider: str, child: Callable[..., Child]) -> None:
    consumers = [child(consume, provider) for _ in range(EACH)]
    receive = [partial(each.receive, 60) for each in consumers]
    places = [(HOST, await anyio.to_thread.run_sync(each)) for each in receive]
    producers = [child(produce, places, provider) for _ in range(EACH)]
    for each in producers:
        assert await each.areceive(60) == "idle"
    every = [*producers, *consumers]
    before = wake_ups(every)
    with anyio.fail_after(60):
        while True:  # a listener looks once more at clients of the last seconds
            await anyio.sleep(6)
            before, earlier = wake_ups(every), before
            if before == earlier:
                break
    used = seconds_used(every)
    await anyio.sleep(10)  # the span that is measured
    assert wake_ups(every) == before
    assert seconds_used(every) - used < 0.05
    for each in producers:
        each.tell("end")
    for each in every:
        await each.aresult(60)
