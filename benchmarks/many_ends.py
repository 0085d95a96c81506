"""A row of ``python -m benchmarks.pipelines``: 8 producers and 8 consumers in processes of their own. One of the
consumers is slow: it should cost the others nothing of their rate.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import mean, median
from typing import Any

import anyio
import anyio.to_thread

ENDS = 8
SECONDS = 2.0  # that are counted
SLOW = 0.01  # seconds that the slow consumer takes for each item
SIZE = 1024


async def until_told(side: Any, *arguments: str) -> None:
    """One end, until the standard input ends. A process that is killed leaves its shared memory."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side, *arguments)
        await anyio.to_thread.run_sync(sys.stdin.read)
        tasks.cancel_scope.cancel()


async def produce(provider: str, *ports: str) -> None:
    """Push for ever."""
    from aiofabric.pipeline import Push

    item = b"\1" * SIZE
    async with Push([("127.0.0.1", int(port)) for port in ports], provider=provider) as push:
        while True:
            await push.push(item)


async def consume(provider: str, slow: str) -> None:
    """Print the port, then how many items a second this consumer has taken."""
    from aiofabric.pipeline import Pull

    async with Pull(listen=("127.0.0.1", 0), window=64, provider=provider) as pull:
        print(pull.address.port, flush=True)
        count = 0

        async def take() -> None:
            nonlocal count
            async for _ in pull:
                count += 1
                if slow == "slow":
                    await anyio.sleep(SLOW)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            while len(pull.statistics().producers) < ENDS:  # noqa: ASYNC110 - no event tells it
                await anyio.sleep(0.01)
            await anyio.sleep(1)  # until the others are there, too
            before = count
            await anyio.sleep(SECONDS)
            print((count - before) / SECONDS, flush=True)
            await anyio.sleep_forever()


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.many_ends", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def rates(provider: str, slow: int) -> list[float]:
    """Items a second of each consumer; the first ``slow`` ones are slow."""
    consumers = [_start("consume", provider, "slow" if at < slow else "fast") for at in range(ENDS)]
    started = list(consumers)
    try:
        ports = [each.stdout.readline().strip() for each in consumers if each.stdout]
        started += [_start("produce", provider, *ports) for _ in range(ENDS)]
        return [float(each.stdout.readline()) for each in consumers if each.stdout]
    finally:
        for each in started:
            each.communicate()  # closes the standard input


def of_many_ends(rounds: int = 3) -> None:
    """Print the rate of a fast consumer, with and without a slow one beside it."""
    print(f"\n{ENDS} producers and {ENDS} consumers, items of {SIZE} B: items a second of a fast consumer")
    for provider in ("tcp", "shm"):
        found: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(rounds):
            for slow, means in found.items():
                means.append(mean(rates(provider, slow)[slow:]))
        all_fast, beside = median(found[0]), median(found[1])
        print(f"  {provider:24} {all_fast:12,.0f}, and {beside:,.0f} beside a slow one  [{beside / all_fast:.2f}]")


if __name__ == "__main__":
    side: Any = {"produce": produce, "consume": consume}[sys.argv[1]]
    anyio.run(until_told, side, *sys.argv[2:], backend_options={"use_uvloop": True})
