"""The client's half of each workload: the operation that is repeated, and the values that are read before and after.

Each function takes the contender's ``connect``, the server's pid, and ``size``, ``width`` and ``seconds``
of the measure; it returns a sample: plain numbers, interpreted by the columns in measures.py.
"""

import os
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from statistics import quantiles

import anyio
from anyio.abc import SocketAttribute, SocketStream

from . import probe
from .connection import CallConnection, Connection

Connect = Callable[[], Awaitable[Connection]]
Sample = dict[str, float]

IDLE_SETTLES = 0.1  # seconds until the callbacks of an answered ping have run
MIXED_SETTLES = 0.1  # seconds until all tasks have begun
ENDLESS = 1 << 40


async def timed(
    run: Callable[[int], Awaitable[None]],
    *,
    prepare: Callable[[int], Awaitable[None]],
    server: int,
    width: int,
    seconds: float,
) -> Sample:
    """Repeat ``run`` with a growing count until one lasts long enough; the shorter ones are the warm-up."""
    count = 4 * width
    while True:
        await prepare(count)
        own, its = time.process_time(), probe.cpu(server)
        start = time.perf_counter()
        await run(count)
        took = time.perf_counter() - start
        own, its = time.process_time() - own, probe.cpu(server) - its
        if took > 0.7 * seconds:
            return {"count": count, "seconds": took, "cpu": own + its, "client_cpu": own}
        count = width * (int(count * min(20.0, seconds / took)) // width + 1)


async def ping(connect: Connect, server: int, size: int, width: int, seconds: float, *, work: str = "ping") -> Sample:
    """``width`` requests in flight on one connection."""
    message = bytes(size)
    async with aclosing(await connect()) as connection:
        return await timed(
            lambda count: connection.ping(message, width, count),
            prepare=lambda count: connection.begin(work, size, width, count),
            server=server,
            width=width,
            seconds=seconds,
        )


async def slow(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
    """A peer that takes its time to answer."""
    return await ping(connect, server, size, width, seconds, work="slow")


async def flood(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
    """Messages one way, with room for ``width`` of them where the contender has such a thing."""
    message = b"\1" * size  # bytes(size) would be one page of zeros, many times
    async with aclosing(await connect()) as connection:
        return await timed(
            lambda count: connection.flood(message, width, count),
            prepare=lambda count: connection.begin("flood", size, width, count),
            server=server,
            width=width,
            seconds=seconds,
        )


def calls(work: str) -> "Workload":
    """A workload that is a method of connections with calls."""

    async def workload(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
        message = b"\1" * size
        async with aclosing(await connect()) as connection:
            run = getattr(connection, work)
            return await timed(
                lambda count: run(message, width, count),
                prepare=lambda count: connection.begin(work, size, width, count),
                server=server,
                width=width,
                seconds=seconds,
            )

    return workload


async def beside(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
    """Calls beside a stream of large messages on the same connection: how long do they take?"""
    async with aclosing(await connect()) as connection:
        assert isinstance(connection, CallConnection)
        await connection.begin("beside", size, width, 1)
        took = await connection.beside(bytes(size), seconds)
    return {"count": len(took), "seconds": seconds, "late": quantiles(took, n=100)[98]}


async def fan(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
    """``width`` connections with one request in flight on each."""
    message = bytes(size)
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(aclosing(await connect())) for _ in range(width)]

        async def prepare(count: int) -> None:
            for connection in connections:
                await connection.begin("ping", size, 1, count // width)

        async def run(count: int) -> None:
            async with anyio.create_task_group() as group:
                for connection in connections:
                    group.start_soon(connection.ping, message, 1, count // width)

        return await timed(run, prepare=prepare, server=server, width=width, seconds=seconds)


async def idle(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
    """``width`` connections that were used once and are idle then.

    Memory is that of the side that needs more of it. Wake-ups are the server's alone:
    the client's own clock is a reason to wake up.
    """
    message = bytes(size)
    before = [probe.rss(os.getpid()), probe.rss(server)]
    async with AsyncExitStack() as stack:
        for _ in range(width):
            connection = await stack.enter_async_context(aclosing(await connect()))
            await connection.begin("ping", size, 1, 1)
            await connection.ping(message, 1, 1)
        after = [probe.rss(os.getpid()), probe.rss(server)]
        await anyio.sleep(IDLE_SETTLES)
        own, its, woken = time.process_time(), probe.cpu(server), probe.wakeups(server)
        await anyio.sleep(seconds)
        return {
            "count": width,
            "seconds": seconds,
            "cpu": time.process_time() - own + probe.cpu(server) - its,
            "wakeups": probe.wakeups(server) - woken,
            "rss": max(a - b for a, b in zip(after, before, strict=True)),
        }


async def mixed(connect: Connect, server: int, size: int, width: int, seconds: float) -> Sample:
    """One busy connection beside 50 timers and four pairs of sockets: how late are these others?"""
    late: list[float] = []

    async def timer(period: float) -> None:
        while True:
            due = time.perf_counter() + period
            await anyio.sleep(period)
            late.append(time.perf_counter() - due)

    async def talk(port: int) -> None:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            while True:
                await stream.send(struct.pack("d", time.perf_counter()))
                await anyio.sleep(0.002)

    async def hear(stream: SocketStream) -> None:
        while True:
            (sent,) = struct.unpack("d", await stream.receive(8))
            late.append(time.perf_counter() - sent)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with aclosing(await connect()) as connection, listener, anyio.create_task_group() as group:
        await connection.begin("ping", size, width, ENDLESS)
        group.start_soon(connection.ping, bytes(size), width, ENDLESS)
        group.start_soon(listener.serve, hear)
        for _ in range(4):
            group.start_soon(talk, listener.extra(SocketAttribute.local_port))
        for period in range(50):
            group.start_soon(timer, 0.005 + period % 10 / 1000)
        await anyio.sleep(MIXED_SETTLES)
        late.clear()
        await anyio.sleep(seconds)
        group.cancel_scope.cancel()
    return {"count": len(late), "seconds": seconds, "late": quantiles(late, n=100)[98]}


Workload = Callable[[Connect, int, int, int, float], Awaitable[Sample]]
WORKLOADS: dict[str, Workload] = {"ping": ping, "slow": slow, "flood": flood, "fan": fan, "idle": idle, "mixed": mixed}
WORKLOADS |= {work: calls(work) for work in ("items", "up", "down")} | {"beside": beside}
