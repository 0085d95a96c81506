"""Test whether costs grow over time: ``python -m benchmarks.history``, about two minutes, started by hand.

One connection carries five million requests, 64 in flight, and as many replies, in twenty parts. The program prints the
cost of a round trip in each part, and the resident memory of both processes after it. A thousand round trips precede
the first part.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import aclosing
from statistics import median
from time import perf_counter

import anyio

from . import probe
from .contenders import messages

SIZE, WIDTH, PARTS = 64, 64, 20
SERVER = (sys.executable, "-m", f"{__package__}.worker", "messages", "uvloop", '{"waiting": "adaptive"}', "server")


async def history(address: str, server: int, count: int) -> None:
    message, part = bytes(SIZE), count // PARTS
    costs, memory = [], []
    async with aclosing(await messages.connect(address, waiting="adaptive")) as connection:
        await connection.begin("ping", SIZE, WIDTH, 1000)
        await connection.ping(message, WIDTH, 1000)
        print(f"{'round trips':>12} {'us each':>8} {'client KiB':>11} {'server KiB':>11}")
        for number in range(1, PARTS + 1):
            await connection.begin("ping", SIZE, WIDTH, part)
            start = perf_counter()
            await connection.ping(message, WIDTH, part)
            costs.append((perf_counter() - start) / part * 1e6)
            memory.append((probe.rss(os.getpid()) // 1024, probe.rss(server) // 1024))
            print(f"{number * part:12,} {costs[-1]:8.2f} {memory[-1][0]:11,} {memory[-1][1]:11,}", flush=True)
    fifth = PARTS // 5
    print(f"cost of the last fifth to that of the first: {median(costs[-fifth:]) / median(costs[:fifth]):.3f}")
    for name, first, last in zip(("client", "server"), memory[0], memory[-1], strict=True):
        print(f"memory that the {name} gained since the first part: {last - first:,} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--count", type=int, default=5_000_000, help="round trips (5,000,000)")
    count = parser.parse_args().count
    cores = sorted(os.sched_getaffinity(0))
    with subprocess.Popen(SERVER, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            address = json.loads(server.stdout.readline())
            probe.pin(server.pid, cores[0])
            probe.pin(os.getpid(), cores[-1])
            anyio.run(history, address, server.pid, count, backend_options={"use_uvloop": True})
        finally:
            server.kill()


if __name__ == "__main__":
    main()
