"""Stages of different processes, joined by push and pull.

A value is acknowledged when everything that was made of it is. So a process may die at any time: what it had not
finished goes to another worker of the stage, or to the one that takes its place.

Order: the workers of an ordered stage say which value each result was made of (by the number that the one producer gave
that value), and whether it is the last result. The next stage takes them in the order of these numbers. If its process
dies, the one that takes its place does not get what was acknowledged. So the producer says from which number on values
are unfinished, and the run tells that.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import EndOfStream

from ..entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...objects import PickleObjects
    from ...pull import Pull
    from ...push import Push

__all__ = ["RemoteInlet", "RemoteOutlet", "SortedInlet"]

_ORDER: Final = struct.Struct("<QBB")
_VALUE: Final = 1
_LAST: Final = 1
_ALL_THERE: Final = 10.0
"""Seconds to wait for all processes of a stage; then those that are there work."""


class RemoteOutlet:
    """Gives values to the workers of one stage. ``push`` is set before the first one, with `acked` as its callback."""

    push: Push

    def __init__(
        self,
        objects: PickleObjects,
        *,
        ordered: bool,
        consumers: int,
        finished: Callable[[int], object] | None,
    ) -> None:
        self._objects = objects
        self._ordered = ordered
        self._consumers = consumers
        self._finished = finished
        self._entries: dict[int, Entry] = {}  # by the numbers of items, in their order
        self._given = 0

    async def give(self, value: Any, made_of: Sequence[Entry], *, last: bool) -> None:
        header = _ORDER.pack(made_of[0].number, _VALUE, last) if self._ordered else b""
        await self._push(self._objects.encode(value), header, made_of)

    async def made_none(self, entry: Entry) -> None:
        if self._ordered:
            await self._push([b""], _ORDER.pack(entry.number, 0, _LAST), [entry])

    async def _push(self, parts: list[Any], header: bytes, made_of: Sequence[Entry]) -> None:
        if not self._given:
            await self._until_all_are_there()
        entry = Entry(None, made_of)
        number = await self.push.push(parts, header=header)
        self._entries[number] = entry
        self._given = number + 1

    async def _until_all_are_there(self) -> None:
        """Else the process that connects first would take a whole window of values."""
        with anyio.move_on_after(_ALL_THERE):
            while len(self.push.statistics().consumers) < self._consumers:  # noqa: ASYNC110 - no event tells it
                await anyio.sleep(0.005)

    def acked(self, number: int) -> None:
        self._entries.pop(number).release()
        if self._finished is not None:
            self._finished(next(iter(self._entries), self._given))

    async def flush(self) -> None:
        self.push.announce_end()

    async def aclose(self) -> None:
        pass  # leaving the block of `push` says so, when everything is acknowledged


class RemoteInlet:
    """Takes values of other processes."""

    def __init__(self, pull: Pull, objects: PickleObjects) -> None:
        self._pull = pull
        self._objects = objects
        self._flushed = False  # since the last value

    async def take(self) -> Entry | None:
        item = await (self._pull.pull if self._flushed else self._pull.pull_or_none)()
        self._flushed = item is None
        if item is None:
            return None
        return Entry(self._objects.decode(item.parts), finished=item.ack, number=item.number)


class SortedInlet:
    """Takes the values of an ordered stage with several workers, in order.

    Values that come again, because a worker has died, are taken when they come.
    """

    def __init__(self, pull: Pull, objects: PickleObjects) -> None:
        self._pull = pull
        self._objects = objects
        self._next = 0
        self._made: dict[int, list[Entry]] = {}  # by the number of what they were made of
        self._complete: set[int] = set()
        self._ready: deque[Entry] = deque()
        self._ended = self._flushed = False
        self._pulling: anyio.CancelScope | None = None

    def finished(self, first: int) -> None:
        """The ``first`` values are finished: those that another process has taken do not come again."""
        if first > self._next:
            for number in sorted(each for each in self._made if each < first):
                self._ready.extend(self._made.pop(number))
            self._complete = {each for each in self._complete if each >= first}
            self._next = first
            self._sort()
        if self._ready and self._pulling is not None:
            self._pulling.cancel()

    async def take(self) -> Entry | None:
        while not self._ready:
            if self._ended:
                raise EndOfStream
            try:
                with anyio.CancelScope() as self._pulling:
                    item = await (self._pull.pull if self._flushed else self._pull.pull_or_none)()
            except EndOfStream:  # after a restart of the producer, numbers may be missing
                self._ended = True
                for number in sorted(self._made):
                    self._ready.extend(self._made.pop(number))
                continue
            if self._pulling.cancelled_caught:
                continue
            self._flushed = item is None
            if item is None:
                return None
            number, is_value, last = _ORDER.unpack(item.header)
            made = self._made.setdefault(number, [])
            if is_value:
                made.append(Entry(self._objects.decode(item.parts), finished=item.ack))
            else:
                item.ack()
            if number < self._next:
                self._ready.extend(self._made.pop(number))
            elif last:
                self._complete.add(number)
                self._sort()
        return self._ready.popleft()

    def _sort(self) -> None:
        while self._next in self._complete:
            self._complete.discard(self._next)
            self._ready.extend(self._made.pop(self._next))
            self._next += 1
