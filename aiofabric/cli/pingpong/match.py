"""One match: size after size, message by message, to and fro."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from aiofabric.cli.pingpong.control import Control, ControlError, control_channel
from aiofabric.cli.pingpong.link import Link, open_link
from aiofabric.cli.pingpong.pattern import FINISH, CorruptMessageError, Pattern
from aiofabric.cli.pingpong.report import HEADER, LARGEST, line, sizes
from aiofabric.flags import EndpointType

if TYPE_CHECKING:
    import argparse

__all__ = ["play"]

_PATIENCE = 5.0  # seconds without a datagram, or without the other side's goodbye


async def play(options: argparse.Namespace) -> None:
    """Play the whole match and print a line for each size.

    Raises:
        ControlError: the other side went away.
        CorruptMessageError: what came is not what was to come.
        TimeoutError: a datagram was lost.
    """
    ports = {"source_port": options.source_port, "port": options.port}
    async with (
        control_channel(options.server, **ports, ipv6=options.ipv6) as control,
        asyncio.TaskGroup() as tasks,
    ):
        watches = [tasks.create_task(_watch_other_side(control))]
        async with open_link(options, control) as link:
            match = Match(options, control, link)
            if options.kind is EndpointType.DGRAM:
                watches.append(tasks.create_task(match.watch_for_loss()))
            await match.measure()
            for watch in watches:
                watch.cancel()
            await match.finish()


async def _watch_other_side(control: Control) -> None:
    """End the match when the other side is gone: not every fabric tells."""
    await control.lost.wait()
    raise ControlError("the other side went away")


class Match:
    """Two sides that take turns; the client begins."""

    def __init__(self, options: argparse.Namespace, control: Control, link: Link) -> None:
        self._iterations: int = options.iterations
        self._control = control
        self._link = link
        largest = min(options.size if isinstance(options.size, int) else LARGEST, link.largest)
        self._sizes = sizes(options.size, largest)
        self._theirs = Pattern(largest) if options.check else None
        self._ours = Pattern(largest) if options.check else None
        self._answers = 0
        self._playing = False

    async def measure(self) -> None:
        """Every size in turn."""
        if self._sizes:
            print(HEADER, flush=True)
        for size in self._sizes:
            await self._control.ready()
            self._answers = 0
            self._playing = True
            start = perf_counter()
            await (self._lead if self._control.is_client else self._follow)(size)
            seconds = perf_counter() - start
            self._playing = False
            acknowledged = await self._control.exchange_count(self._answers)
            if self._iterations:
                print(line(size, self._iterations, acknowledged, seconds), flush=True)

    async def _lead(self, size: int) -> None:
        message: bytes | memoryview = bytes(size)
        for _ in range(self._iterations):
            if self._ours is not None:
                message = self._ours.next(size)
            await self._link.send(message)
            self._take(await self._link.receive(), size)

    async def _follow(self, size: int) -> None:
        message: bytes | memoryview = bytes(size)
        for _ in range(self._iterations):
            self._take(await self._link.receive(), size)
            if self._ours is not None:
                message = self._ours.next(size)
            await self._link.send(message)

    def _take(self, message: memoryview, size: int) -> None:
        self._answers += 1
        if len(message) != size:
            raise CorruptMessageError(
                f"a message of {len(message)} bytes came instead of one of {size}: has the other side the same -S?"
            )
        if self._theirs is not None:
            self._theirs.check(message, self._answers)

    async def finish(self) -> None:
        """Exchange the last message, which nobody measures, and part."""
        await self._link.send(FINISH)
        async with asyncio.timeout(_PATIENCE):
            await self._link.receive()
            await self._control.finish()

    async def watch_for_loss(self) -> None:
        """End the match when a datagram must have been lost: either side then waits for the other."""
        before = -1
        while True:
            if self._playing and before == self._answers:
                raise TimeoutError(f"no answer in {_PATIENCE:.0f} s: a datagram was lost, play again")
            before = self._answers if self._playing else -1
            await asyncio.sleep(_PATIENCE)
