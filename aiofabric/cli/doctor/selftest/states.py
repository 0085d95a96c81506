"""Checks of states: many connections, a connection without traffic, and a process that signals interrupt."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack, contextmanager
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import aiofabric
from aiofabric.cli.doctor.selftest.endpoint import listening, open_link
from aiofabric.cli.doctor.selftest.messages import SMALLEST, datagram_trip, echo, message_trip, receives, until_done
from aiofabric.cli.doctor.selftest.options import DATAGRAM, CheckOptions
from aiofabric.cli.doctor.selftest.sample import median_trip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiofabric.cli.doctor.selftest.control import Control

__all__ = ["follow_connections", "follow_idle", "follow_interrupt", "lead_connections", "lead_idle", "lead_interrupt"]

_CONNECTIONS = 32
_TIMEOUT = 2.0  # seconds for a message while signals arrive
_EVERY = 0.01  # seconds between two signals
_LATE = 0.025  # seconds after which the peer answers while signals arrive
_INTERRUPTED = 20  # messages


async def lead_connections(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    there = await control.receive()

    async def connect(number: int) -> Any:
        endpoint = await aiofabric.connect(there["host"], there["port"], provider=options.provider)
        message = number.to_bytes(SMALLEST, "big")
        await endpoint.send(message)
        if await endpoint.recv() != message:
            raise ValueError(f"connection {number} returned the message of another one")
        return endpoint

    await (await connect(_CONNECTIONS)).aclose()  # the first one loads the provider
    start = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        connecting = [tasks.create_task(connect(number)) for number in range(_CONNECTIONS)]
    figures["connections"] = _CONNECTIONS
    figures["opened_ms"] = round((perf_counter() - start) * 1e3, 1)
    start = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for each in connecting:
            tasks.create_task(each.result().aclose())
    figures["closed_ms"] = round((perf_counter() - start) * 1e3, 1)
    await control.finish()


async def follow_connections(control: Control, options: CheckOptions) -> None:
    async def serve(request: aiofabric.ConnectionRequest) -> None:
        async with await request.accept() as endpoint:
            async for message in endpoint:
                await endpoint.send(message)

    async def accept(listener: aiofabric.Listener) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for request in listener:
                tasks.create_task(serve(request))

    async with listening(control, options) as listener:
        await until_done(control, accept(listener))


async def lead_idle(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    async with open_link(control, options, **receives(SMALLEST)) as link:
        trip = datagram_trip(link) if options.kind == DATAGRAM else message_trip(link)
        usual = await median_trip(SMALLEST, trip)
        await control.send(cpu=True)
        theirs = (await control.receive())["cpu"]
        ours = process_time()
        await asyncio.sleep(options.idle)
        ours = process_time() - ours
        start = perf_counter()
        await trip(bytes(SMALLEST))
        first = perf_counter() - start
        await control.send(cpu=True)
        theirs = (await control.receive())["cpu"] - theirs
        figures |= {
            "idle_s": options.idle,
            "cpu_ms": round(ours * 1e3, 2),
            "peer_cpu_ms": round(theirs * 1e3, 2),
            "first_us": round(first * 1e6, 1),
            "usual_us": usual,
        }
        await control.finish()


async def follow_idle(control: Control, options: CheckOptions) -> None:
    async with (
        open_link(control, options, **receives(SMALLEST)) as link,
        asyncio.TaskGroup() as tasks,
    ):
        serving = tasks.create_task(echo(link))
        while "cpu" in await control.receive():
            await control.send(cpu=process_time())
        serving.cancel()
        await control.finished()


async def lead_interrupt(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    """Wait for messages while a timer interrupts the process."""
    async with open_link(control, options, **receives(SMALLEST)) as link:
        longest = 0.0
        with _signals() as signals:
            for number in range(_INTERRUPTED):
                start = perf_counter()
                await link.send(number.to_bytes(SMALLEST, "big"))
                try:
                    async with asyncio.timeout(_TIMEOUT):
                        await link.receive()
                except TimeoutError:
                    raise TimeoutError(f"message {number} did not arrive while signals interrupted the wait") from None
                longest = max(longest, perf_counter() - start)
        figures |= {
            "messages": _INTERRUPTED,
            "signals": len(signals),
            "answered_after_ms": _LATE * 1e3,
            "longest_ms": round(longest * 1e3, 1),
        }
        await control.finish()


async def follow_interrupt(control: Control, options: CheckOptions) -> None:
    async with open_link(control, options, **receives(SMALLEST)) as link:
        await until_done(control, echo(link, _LATE))


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Let a timer interrupt this process; the list has an entry for each signal."""
    came: list[int] = []
    with ExitStack() as stack:
        stack.callback(
            signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, lambda number, _: came.append(number))
        )
        stack.callback(signal.setitimer, signal.ITIMER_REAL, 0.0)
        signal.setitimer(signal.ITIMER_REAL, _EVERY, _EVERY)
        yield came
