"""``python -m benchmarks.pipelines``: items one way between two processes, by pipelines and by pyzmq's PUSH and PULL.

The contenders take turns; the table has the medians of the rounds, and the ratio to pyzmq in brackets.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import anyio

from .results import machine

MANY = 1000  # items of one call of push_many


class Work(NamedTuple):
    title: str
    size: int  # bytes of an item
    items: int
    many: bool = False


class Contender(NamedTuple):
    title: str
    delivery: str | None = None  # None: pyzmq
    provider: str = "tcp"


WORKS = (
    Work("64 B, one await each", 64, 100_000),
    Work("64 B, many at once", 64, 1_000_000, many=True),
    Work("64 KiB", 65536, 10_000),
    Work("1 MiB", 1 << 20, 1000),
)
CONTENDERS = (
    Contender("pyzmq on asyncio, tcp"),
    Contender("at most once, tcp", "at_most_once"),
    Contender("at least once, tcp", "at_least_once"),
    Contender("at least once, shm", "at_least_once", "shm"),
)


async def push(work: Work, contender: Contender, port: int) -> None:
    item = b"\1" * work.size
    if contender.delivery is None:
        import zmq
        import zmq.asyncio

        with zmq.asyncio.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.connect(f"tcp://127.0.0.1:{port}")
            for _ in range(work.items):
                await socket.send(item, copy=work.size < zmq.COPY_THRESHOLD)
        return
    from aiofabric.pipeline import Push

    delivery: Any = contender.delivery
    async with Push(("127.0.0.1", port), delivery=delivery, provider=contender.provider) as producer:
        if work.many:
            for _ in range(work.items // MANY):
                await producer.push_many([item] * MANY)
        else:
            for _ in range(work.items):
                await producer.push(item)


async def pull(work: Work, contender: Contender) -> None:
    """Print the port, then the seconds from the first item to the last."""
    if contender.delivery is None:
        import zmq
        import zmq.asyncio

        with zmq.asyncio.Context() as context, context.socket(zmq.PULL) as socket:
            print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
            await socket.recv()
            begin = perf_counter()
            for _ in range(work.items - 1):
                await socket.recv(copy=work.size < zmq.COPY_THRESHOLD)
            print(perf_counter() - begin)
        return
    from aiofabric.pipeline import Pull

    async with Pull(listen=("127.0.0.1", 0), provider=contender.provider) as consumer:
        print(consumer.address.port, flush=True)
        (await consumer.pull()).ack()
        begin = perf_counter()
        if work.many:
            count = 1
            while count < work.items:
                with await consumer.pull_many() as items:
                    count += len(items)
        else:
            for _ in range(work.items - 1):
                with await consumer.pull():
                    pass
        print(perf_counter() - begin)


def rate(work: Work, contender: Contender) -> float:
    """Items a second, once."""
    which = str(WORKS.index(work)), str(CONTENDERS.index(contender))
    command = [sys.executable, "-m", "benchmarks.pipelines", "--side"]
    with subprocess.Popen([*command, "pull", *which], stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        port = consumer.stdout.readline().strip()
        subprocess.run([*command, "push", *which, port], check=True, timeout=120)
        return work.items / float(consumer.stdout.read())


def table(rounds: int, quick: bool) -> None:
    contenders = [each for each in CONTENDERS if each.delivery or importlib.util.find_spec("zmq")]
    works = [work for work in WORKS if not quick or work.items < 100_000]
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for work in works:
            for contender in contenders:
                if not work.many or contender.delivery:
                    found.setdefault((work.title, contender.title), []).append(rate(work, contender))
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for work in works:
        print(f"\n{work.title}, items a second")
        peer = found.get((WORKS[0].title if work.many else work.title, CONTENDERS[0].title))
        for contender in contenders:
            if rates := found.get((work.title, contender.title)):
                items, ratio = median(rates), f"  [{median(rates) / median(peer):.2f}]" if peer else ""
                print(f"  {contender.title:24} {items:12,.0f} {items * work.size / 1e9:7.2f} GB/s{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of large items")
    parser.add_argument("--side", nargs="+", metavar="SIDE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        table(1 if options.quick else options.rounds, options.quick)
        return
    side, work, contender, *port = options.side
    what = WORKS[int(work)], CONTENDERS[int(contender)]
    loop = {"use_uvloop": True}
    if side == "push":
        anyio.run(push, *what, int(port[0]), backend_options=loop)
    else:
        anyio.run(pull, *what, backend_options=loop)


if __name__ == "__main__":
    main()
