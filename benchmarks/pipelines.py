"""``python -m benchmarks.pipelines``: items one way between two processes, by pipelines, the endpoint, and pyzmq's
PUSH and PULL; one publisher and 16 subscribers in two processes, by pipelines and by pyzmq's PUB and SUB.

The contenders take turns; the table has the medians of the rounds, and the ratio to pyzmq in brackets. Below it: the
time of one item through an idle pipeline, stages in processes, many ends of which one is slow, and other queues.
"""

from __future__ import annotations

import argparse
import importlib.util
import socket as socket_module
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import anyio

from .many_ends import of_many_ends
from .queues import of_queues
from .results import machine

MANY = 1000  # items of one call of push_many
SUBSCRIBERS = 16


class Work(NamedTuple):
    title: str
    size: int  # bytes of an item
    items: int
    many: bool = False
    topics: bool = False


class Contender(NamedTuple):
    title: str
    delivery: str | None = None  # None: pyzmq, or the endpoint
    provider: str = "tcp"
    endpoint: bool = False
    pool: bool = False  # items are made in memory of the producer's pool


WORKS = (
    Work("64 B, one await each", 64, 100_000),
    Work("64 B, many at once", 64, 1_000_000, many=True),
    Work("64 KiB", 65536, 10_000),
    Work("1 MiB", 1 << 20, 1000),
    Work("1 KiB to each of 16 subscribers", 1024, 10_000, topics=True),
)
CONTENDERS = (
    Contender("pyzmq on asyncio, tcp"),
    Contender("at most once, tcp", "at_most_once"),
    Contender("at least once, tcp", "at_least_once"),
    Contender("at least once, tcp, pool", "at_least_once", pool=True),
    Contender("at least once, shm", "at_least_once", "shm"),
    Contender("endpoint, tcp", endpoint=True),
    Contender("endpoint, shm", provider="shm", endpoint=True),
)


async def push(work: Work, contender: Contender, port: int) -> None:
    item = b"\1" * work.size
    if contender.endpoint:
        import aiofabric

        async with await aiofabric.connect("127.0.0.1", port, provider=contender.provider) as endpoint:
            for _ in range(work.items):
                await endpoint.send(item)
        return
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
        elif contender.pool:
            for _ in range(work.items):
                memory = producer.pool.take(work.size)
                await producer.push(memory)
                del memory
        else:
            for _ in range(work.items):
                await producer.push(item)


async def pull(work: Work, contender: Contender) -> None:
    """Print the port, then the seconds from the first item to the last."""
    if contender.endpoint:
        import aiofabric

        async with aiofabric.listen("127.0.0.1", 0, provider=contender.provider) as listener:
            print(listener.address.port, flush=True)
            async with await (await listener.accept_request()).accept(recv_size=work.size) as endpoint:
                await endpoint.recv()
                begin = perf_counter()
                for _ in range(work.items - 1):
                    async with endpoint.recv_view():
                        pass
                print(perf_counter() - begin)
        return
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


async def publish(work: Work, contender: Contender, port: int) -> None:
    """One publication for each subscriber. A slow one holds this publisher; pyzmq has no such policy: no limit."""
    item = b"\1" * work.size
    if contender.delivery is None:
        import zmq
        import zmq.asyncio

        with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as socket:
            socket.set(zmq.XPUB_VERBOSE, 1)
            socket.set(zmq.SNDHWM, 0)
            socket.bind(f"tcp://127.0.0.1:{port}")
            for _ in range(SUBSCRIBERS):
                await socket.recv()
            for _ in range(work.items):
                await socket.send_multipart([b"topic", item])
        return
    from aiofabric.pipeline import Publish

    async with Publish(listen=("127.0.0.1", port), provider=contender.provider) as publisher:
        await publisher.wait_for_subscribers(SUBSCRIBERS)
        for _ in range(work.items):
            await publisher.publish("topic", item)


async def subscribe(work: Work, contender: Contender) -> None:
    """Print a port that is free, then the seconds from the first publication to the last of all subscribers."""
    with socket_module.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    print(port, flush=True)
    begun: list[float] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(SUBSCRIBERS):
            tasks.start_soon(take_all if contender.delivery else take_all_of_zmq, work, contender, port, begun)
    print(perf_counter() - begun[0])


async def take_all(work: Work, contender: Contender, port: int, begun: list[float]) -> None:
    from aiofabric.pipeline import Subscribe

    async with Subscribe(("127.0.0.1", port), "topic", when_slow="hold", provider=contender.provider) as subscriber:
        async for _ in subscriber:
            if not begun:
                begun.append(perf_counter())


async def take_all_of_zmq(work: Work, contender: Contender, port: int, begun: list[float]) -> None:
    import zmq
    import zmq.asyncio

    with zmq.asyncio.Context.instance().socket(zmq.SUB) as socket:
        socket.set(zmq.RCVHWM, 0)
        socket.connect(f"tcp://127.0.0.1:{port}")
        socket.subscribe(b"topic")
        for _ in range(work.items):
            await socket.recv_multipart()
            if not begun:
                begun.append(perf_counter())


def rate(work: Work, contender: Contender) -> float:
    """Items a second, once."""
    which = str(WORKS.index(work)), str(CONTENDERS.index(contender))
    command = [sys.executable, "-m", "benchmarks.pipelines", "--side"]
    source, sink = ("publish", "subscribe") if work.topics else ("push", "pull")
    with subprocess.Popen([*command, sink, *which], stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        port = consumer.stdout.readline().strip()
        subprocess.run([*command, source, *which, port], check=True, timeout=120)
        return work.items / float(consumer.stdout.read())


def of_stages(count: int = 300, size: int = 1 << 20) -> None:
    """Print how fast arrays go through stages in processes of their own: one hop, and two."""
    from aiofabric.pipeline import Pipeline

    with TemporaryDirectory() as folder:
        source = Pipeline(Arrays(count, size), name="source")
        hops = {"source, sink": source, "source, map, sink": source.map(same)}
        seconds: dict[str, list[float]] = {name: [] for name in hops}
        for _ in range(3):
            for name, pipeline in hops.items():
                clock = Clock(Path(folder, "seconds"), count)
                anyio.run(
                    partial(pipeline.sink(clock, name="sink").run, processes=True), backend_options={"use_uvloop": True}
                )
                seconds[name].append(float(clock.path.read_text()))
    print(f"\nstages in processes of their own, arrays of {size >> 20} MiB")
    one_hop = median(seconds["source, sink"])
    for name, found in seconds.items():
        rate = (count - 1) * size / median(found)
        print(f"  {name:24} {rate / 1e9:20.2f} GB/s  [{one_hop / median(found):.2f} of one hop]")


class Arrays:
    """A source of arrays."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __call__(self) -> Any:
        import numpy

        return (numpy.full(self.size, number % 256, dtype="u1") for number in range(self.count))


def same(array: Any) -> Any:
    return array


class Clock:
    """A sink that writes the seconds from its first value to its last."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.left, self.first = path, count, 0.0

    def __call__(self, _: Any) -> None:
        self.first = self.first or perf_counter()
        self.left -= 1
        if not self.left:
            self.path.write_text(str(perf_counter() - self.first))


def of_latency(provider: str) -> None:
    """Print the median time of one item, one way, through a pipeline, and through the endpoint: half a round trip."""
    command = [sys.executable, "-m", "benchmarks.pipelines", "--side", "echo", provider]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port, port_of_endpoint = (int(other.stdout.readline()) for _ in range(2))
        found = anyio.run(round_trips, provider, port, port_of_endpoint, backend_options={"use_uvloop": True})
    beneath = median(found["endpoint"])
    for name, seconds in found.items():
        print(f"  {name:10} {provider:4} {median(seconds) / 2 * 1e6:8.1f} us  [{median(seconds) / beneath:.2f}]")


async def round_trips(provider: str, port: int, port_of_endpoint: int, times: int = 2000) -> dict[str, list[float]]:
    import aiofabric
    from aiofabric.pipeline import Pull, Push

    found: dict[str, list[float]] = {"pipeline": [], "endpoint": []}
    async with (
        Pull(listen=("127.0.0.1", 0), provider=provider) as replies,
        Push(("127.0.0.1", port), provider=provider) as push,
        await aiofabric.connect("127.0.0.1", port_of_endpoint, provider=provider) as endpoint,
    ):
        await push.push(str(replies.address.port).encode())
        for _ in range(times):
            begin = perf_counter()
            await push.push(b"item")
            with await replies.pull():
                found["pipeline"].append(perf_counter() - begin)
            begin = perf_counter()
            await endpoint.send(b"item")
            await endpoint.recv()
            found["endpoint"].append(perf_counter() - begin)
    return found


async def echo(provider: str) -> None:
    """The other side of `of_latency`."""
    import aiofabric
    from aiofabric.pipeline import Pull, Push

    async def of_endpoint() -> None:
        async with await (await listener.accept_request()).accept() as endpoint:
            async for message in endpoint:
                await endpoint.send(message)

    async with (
        Pull(listen=("127.0.0.1", 0), provider=provider) as pull,
        aiofabric.listen("127.0.0.1", 0, provider=provider) as listener,
        anyio.create_task_group() as tasks,
    ):
        print(pull.address.port, listener.address.port, sep="\n", flush=True)
        tasks.start_soon(of_endpoint)
        with await pull.pull() as item:
            port = int(item.data)
        async with Push(("127.0.0.1", port), provider=provider) as push:
            async for item in pull:
                await push.push(bytes(item.data))


def runs(work: Work, contender: Contender) -> bool:
    """Whether the contender has this kind of work."""
    if work.many:
        return contender.delivery is not None and not contender.pool
    if work.topics:
        return contender.delivery != "at_least_once" and not contender.endpoint
    return work.size >= 65536 or not contender.pool


def table(rounds: int, quick: bool) -> None:
    contenders = [each for each in CONTENDERS if each.delivery or each.endpoint or importlib.util.find_spec("zmq")]
    works = [work for work in WORKS if not quick or work.items < 100_000]
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for work in works:
            for contender in contenders:
                if runs(work, contender):
                    found.setdefault((work.title, contender.title), []).append(rate(work, contender))
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for work in works:
        print(f"\n{work.title}, items a second")
        peer = found.get((WORKS[0].title if work.many else work.title, CONTENDERS[0].title))
        for contender in contenders:
            if rates := found.get((work.title, contender.title)):
                items, ratio = median(rates), f"  [{median(rates) / median(peer):.2f}]" if peer else ""
                print(f"  {contender.title:24} {items:12,.0f} {items * work.size / 1e9:7.2f} GB/s{ratio}")


def run() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of large items")
    parser.add_argument("--side", nargs="+", metavar="SIDE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        table(1 if options.quick else options.rounds, options.quick)
        if not options.quick:
            print("\none item through an idle pipeline, one way")
            for provider in ("tcp", "shm"):
                of_latency(provider)
            of_stages()
            of_many_ends(options.rounds)
            of_queues(options.rounds)
        return
    if options.side[0] == "echo":
        anyio.run(echo, options.side[1], backend_options={"use_uvloop": True})
        return
    side, at, which, *port = options.side
    side_of: Any = {"push": push, "pull": pull, "publish": publish, "subscribe": subscribe}[side]
    what = WORKS[int(at)], CONTENDERS[int(which)]
    anyio.run(side_of, *what, *map(int, port), backend_options={"use_uvloop": True})


if __name__ == "__main__":
    run()
