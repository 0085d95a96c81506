"""Stages of different processes, joined by push and pull.

A value is acknowledged when everything that was made of it is. So a process may die at any time: what it had not
finished goes to another worker of the stage, or to the one that takes its place.

Order: the workers of an ordered stage say which value each result was made of (by the number that the one producer gave
that value), and whether it is the last result. The next stage takes them in the order of these numbers. If its process
dies, the one that takes its place does not get what was acknowledged. So the producer says which values are unfinished,
and the run tells that. The finished ones are not all before the others: when a worker has died, too, what it had is
unfinished, and the values between that went to other workers may be finished.

If the producer's process dies, the one that takes its place counts from 0 again, so its numbers are in a higher range.
When the first of them comes, the values that are still held back for a lower one leave: the dead process had not
finished them, and the other one gives them again.
"""

from __future__ import annotations

import pickle
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import EndOfStream

from ..entry import Entry
from ..traces import TRACE_SIZE
from .board import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...objects import PickleObjects
    from ...pull import Pull
    from ...push import Push
    from ...runtime.item import Item

__all__ = ["RemoteInlet", "RemoteOutlet", "SortedInlet"]

_ORDER: Final = struct.Struct("<QBB")
_VALUE: Final = 1
_LAST: Final = 1
_RANGE: Final = 44
"""Bits of a number that count the values of one process."""
ALL_THERE: Final = 10.0
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
        restarts: int,
    ) -> None:
        self._objects = objects
        self._header = restarts.to_bytes(4, "little") if restarts else b""  # of values that are not ordered yet
        self._first_number = restarts << _RANGE
        self._ordered = ordered
        self._consumers = consumers
        self._entries: dict[int, Entry] = {}  # by the numbers of items, in their order
        self._given = 0

    def pack(self, value: Any) -> list[Any]:
        try:
            return self._objects.encode(value)
        except Exception as error:  # pickle has no class of its own for most of them
            name = type(value).__qualname__
            raise pickle.PicklingError(
                f"it gave a value of the type {name!r}, which pickle cannot send to another process: {error}"
            ) from error

    async def give(self, packed: list[Any], made_of: Sequence[Entry], *, last: bool) -> None:
        header = _ORDER.pack(made_of[0].number, _VALUE, last) if self._ordered else self._header
        await self._push(packed, header + made_of[0].trace, made_of)

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
        with anyio.move_on_after(ALL_THERE):
            while len(self.push.statistics().consumers) < self._consumers:  # noqa: ASYNC110 - no event tells it
                await anyio.sleep(0.005)

    def acked(self, number: int) -> None:
        self._entries.pop(number).release()

    def progress(self) -> Progress:
        """Which values are finished."""
        first = self._first_number
        return Progress(first + self._given, tuple([first + number for number in self._entries]))

    async def flush(self) -> None:
        self.push.announce_end()

    async def aclose(self) -> None:
        pass  # leaving the block of `push` says so, when everything is acknowledged


class RemoteInlet:
    """Takes values of other processes.

    ``came_again`` gets the text of each value that another process had before, and "" at the next other one.
    """

    def __init__(self, pull: Pull, objects: PickleObjects, came_again: Callable[[str], object] | None = None) -> None:
        self._pull = pull
        self._objects = objects
        self._flushed = False  # since the last value
        self._came_again = came_again
        self._told = False

    async def take(self) -> Entry | None:
        item = await (self._pull.pull() if self._flushed else self._pull.pull_or_none(when_full=False))
        self._flushed = item is None
        if item is None:
            return None
        before, trace = _header_of(item)
        number = item.number + (int.from_bytes(before, "little") << _RANGE)
        entry = _received(self._objects, item, trace, number=number)
        if self._came_again is not None and (item.redelivered or self._told):
            self._told = item.redelivered
            self._came_again(_text(entry.value) if item.redelivered else "")
        return entry


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
        self._given = 0  # numbers below this are finished, without the unfinished ones
        self._unfinished: frozenset[int] = frozenset()
        self._ready: deque[Entry] = deque()
        self._ended = self._flushed = False
        self._pulling: anyio.CancelScope | None = None

    def set_progress(self, progress: Progress) -> None:
        """Values that are finished were taken by another process, and do not come again."""
        self._given, self._unfinished = progress.given, frozenset(progress.unfinished)
        self._begin_at(max(self._next, min(progress.unfinished, default=progress.given)))
        if self._ready and self._pulling is not None:
            self._pulling.cancel()

    def _begin_at(self, first: int) -> None:
        """Values before this number are not waited for; those that are here are taken first."""
        for number in sorted(each for each in self._made if each < first):
            self._ready.extend(self._made.pop(number))
        self._complete = {each for each in self._complete if each >= first}
        self._next = first
        self._sort()

    async def take(self) -> Entry | None:
        while not self._ready:
            if self._ended:
                raise EndOfStream
            try:
                with anyio.CancelScope() as self._pulling:
                    item = await (self._pull.pull() if self._flushed else self._pull.pull_or_none(when_full=False))
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
            order, trace = _header_of(item)
            number, is_value, last = _ORDER.unpack(order)
            if number >> _RANGE > self._next >> _RANGE:
                self._begin_at(number >> _RANGE << _RANGE)
            made = self._made.setdefault(number, [])
            if is_value:
                made.append(_received(self._objects, item, trace))
            else:
                item.ack()
            if number < self._next:
                self._ready.extend(self._made.pop(number))
            elif last:
                self._complete.add(number)
                self._sort()
        return self._ready.popleft()

    def _sort(self) -> None:
        while self._next in self._complete or (self._next < self._given and self._next not in self._unfinished):
            self._complete.discard(self._next)
            self._ready.extend(self._made.pop(self._next, ()))
            self._next += 1


def _text(value: Any) -> str:
    try:
        return f"{value!r:.200}"
    except Exception:  # of the value's class
        return f"of the type {type(value).__name__}"


def _header_of(item: Item) -> tuple[bytes, bytes]:
    """The header that its outlet gave a value, and the value's trace."""
    header = item.header
    size = len(header)
    return (header[: size - TRACE_SIZE], header[size - TRACE_SIZE :]) if size >= TRACE_SIZE else (header, b"")


def _received(objects: PickleObjects, item: Item, trace: bytes, number: int = -1) -> Entry:
    """The entry of an item; the item is acknowledged when the entry is finished."""
    try:
        return Entry(objects.decode(item.parts), finished=item.ack, number=number, trace=trace)
    except Exception as error:  # a function of the program: it may raise anything
        text = f"it got a value that pickle cannot load in this process: {type(error).__name__}: {error}"
        problem = pickle.UnpicklingError(text)
        problem.__cause__ = error
        return Entry(bytes(item.parts[0]), finished=item.ack, number=number, error=problem, trace=trace)
