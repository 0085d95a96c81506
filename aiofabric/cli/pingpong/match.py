"""Match: the whole measurement, size after size, message by message, back and forth."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiofabric.cli.pingpong.control import Control, ControlError, control_channel
from aiofabric.cli.pingpong.data_path import DataPath, open_data_path
from aiofabric.cli.pingpong.pattern import FINISH, CorruptMessageError, Pattern
from aiofabric.cli.pingpong.report import HEADER, LARGEST, line, sizes
from aiofabric.flags import EndpointType

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

__all__ = ["play"]

_TIMEOUT = 5.0  # seconds without a datagram, or without the other side's last message
_LATE = 1.0  # seconds that the last message may arrive after the end of the control channel
_SAME = "does it have the same -e, -I and -S?"


async def play(options: argparse.Namespace) -> None:
    """Run the whole measurement and print a line for each size.

    Raises:
        ControlError: the other side went away.
        CorruptMessageError: a message had other contents than expected.
        TimeoutError: a datagram was lost.
    """
    ports = {"source_port": options.source_port, "port": options.port}
    async with (
        control_channel(options.server, **ports, ipv6=options.ipv6) as control,
        asyncio.TaskGroup() as tasks,
    ):
        watches = [tasks.create_task(_watch_other_side(control))]
        async with open_data_path(options, control) as data_path:
            match = Match(options, control, data_path)
            listening = tasks.create_task(match.watch_for_words())
            if options.kind is EndpointType.DGRAM:
                watches.append(tasks.create_task(match.watch_for_loss()))
            try:
                await match.measure()
            finally:  # after an error the other side may leave while this one closes: that is not the reason to report
                for watch in watches:
                    watch.cancel()
            await match.finish()
            listening.cancel()


async def _watch_other_side(control: Control) -> None:
    """End the measurement when the other side has ended, because not every provider reports this."""
    await control.lost.wait()
    raise ControlError(f"the other side has ended. If it printed no reason: {_SAME}")


class Match:
    """Two sides that take turns; the client begins."""

    def __init__(self, options: argparse.Namespace, control: Control, data_path: DataPath) -> None:
        self._iterations: int = options.iterations
        self._control = control
        self._data_path = data_path
        control.meanwhile = self._no_message
        largest = min(options.size if isinstance(options.size, int) else LARGEST, data_path.largest)
        self._sizes = sizes(options.size, largest)
        self._theirs = Pattern(largest) if options.check else None
        self._ours = Pattern(largest) if options.check else None
        self._answers = 0
        self._playing = False
        self._finishing = False

    async def measure(self) -> None:
        """Measure all sizes, one after the other."""
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
            print(line(size, self._iterations, acknowledged, seconds), flush=True)
        self._finishing = True

    async def _no_message(self, word: Coroutine[Any, Any, bytes]) -> bytes:
        """Receive a control message of the client, which sends no data before it, unless its options differ."""
        said, message = asyncio.ensure_future(word), asyncio.ensure_future(self._data_path.receive())
        try:
            await asyncio.wait((said, message), return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                await message  # raises if it failed
                raise ControlError(f"the other side sends more messages than this one expects: {_SAME}")
            return said.result()
        finally:
            for each in (said, message):
                each.cancel()
            await asyncio.wait((said, message))

    async def watch_for_words(self) -> None:
        """End the measurement if the other side sends a control message too early: it has finished before this side."""
        while True:
            await self._control.spoke.wait()
            self._control.spoke.clear()
            if not self._control.unread:
                continue
            if self._playing and self._answers < self._iterations:
                raise ControlError(f"the other side has finished after {self._answers} messages of a size: {_SAME}")
            if self._finishing:
                raise ControlError(f"the other side has more sizes to measure: {_SAME}")

    async def _lead(self, size: int) -> None:
        message: bytes | memoryview = bytes(size)
        for _ in range(self._iterations):
            if self._ours is not None:
                message = self._ours.next(size)
            await self._data_path.send(message)
            self._take(await self._data_path.receive(), size)

    async def _follow(self, size: int) -> None:
        message: bytes | memoryview = bytes(size)
        for _ in range(self._iterations):
            self._take(await self._data_path.receive(), size)
            if self._ours is not None:
                message = self._ours.next(size)
            await self._data_path.send(message)

    def _take(self, message: memoryview, size: int) -> None:
        self._answers += 1
        if len(message) != size:
            raise CorruptMessageError(
                f"a message of {len(message)} bytes arrived instead of a message of {size}: {_SAME}"
            )
        if self._theirs is not None:
            self._theirs.check(message, self._answers)

    async def finish(self) -> None:
        """Exchange the last message, which is not measured, and end."""
        await self._data_path.send(FINISH)
        message, lost = (asyncio.ensure_future(each) for each in (self._data_path.receive(), self._control.lost.wait()))
        try:
            await asyncio.wait((message, lost), timeout=_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((message,), timeout=_LATE)
            if not message.done():
                raise ControlError(f"the other side left without its last message: {_SAME}")
            await message
        finally:
            for each in (message, lost):
                each.cancel()
            await asyncio.wait((message, lost))
        async with asyncio.timeout(_TIMEOUT):
            await self._control.finish()

    async def watch_for_loss(self) -> None:
        """End the measurement if a datagram was lost: both sides would wait for each other."""
        before = -1
        while True:
            if self._playing and before == self._answers:
                raise TimeoutError(f"no answer in {_TIMEOUT:.0f} s: a datagram was lost, try again")
            before = self._answers if self._playing else -1
            await asyncio.sleep(_TIMEOUT)
