"""Orphaned entries: entries of a queue in shared memory that a killed process has claimed, and will not fill.

A sender over shm of libfabric 1.18 and later claims the next entry in its receiver's queue, writes the message, and
publishes the entry. The reader takes entries in order. A sender that is killed before it publishes blocks all senders
to that endpoint, for ever: in a test, one of 450 killed senders of messages of 2,000 B caused this. The same holds for
the queue by which receivers give back buffers that they have read.

So when a connection ends without an orderly end, the queue is examined. An entry that is claimed and not published is
released once its sender is proved dead. The proof: since then, every live thread of every process that has the memory
mapped was asleep inside a system call, where no claim is held, or stopped in one that waits (`writers`). A sender that
is stopped elsewhere keeps its entry until it continues, or is killed. A released entry is published as empty, and the
reader skips it. A sender that gives up an entry does the same (ofi_atomic_queue.h, _discard).
"""

from __future__ import annotations

import logging
import mmap
from typing import TYPE_CHECKING, NamedTuple

from ..._ffi import CData, ffi
from .writers import Thread, Unprovable, left_a_write, threads_that_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ...cq.loops.drivers import Driver

__all__ = ["DELAYS", "EMPTY_AT", "OrphanedEntries", "Place", "queues_of"]

DELAYS = (0.0, 0.01, 0.1, 0.5)  # seconds between two examinations; the last one repeats

_log = logging.getLogger(__name__)


class _Layout(NamedTuple):
    """The offset of the table of parts in an endpoint's memory; which parts are queues, and the length of their
    entries."""

    parts: int
    queues: dict[int, int]


# By SMR_VERSION (smr_util.h), of 2.0 to 2.4, and of 2.5.1 and later. Other versions are left alone, and debug builds of
# libfabric, whose entries are longer.
_LAYOUTS = {8: _Layout(80, {0: 576}), 10: _Layout(128, {0: 384, 3: 64})}
_PARTS = 7

# struct ofi_atomic_queue: three lines of 64 bytes, then the entries: a sequence number, a flag for an empty entry, and
# the content.
_LINE = 64
_HEAD = 3 * _LINE
EMPTY_AT = 8
"""Offset of the flag in an entry."""


class Place(NamedTuple):
    """An entry in a queue: the queue's offset in the memory, and how many entries came before."""

    queue: int
    position: int


class _Queue:
    """A queue in the mapped memory."""

    def __init__(self, start: CData, offset: int, end: int, stride: int) -> None:
        self.start = start + offset
        self.size = int(ffi.cast("int32_t *", self.start + 2 * _LINE)[0])
        self.fits = self.size > 0 and not self.size & (self.size - 1) and _HEAD + self.size * stride == end - offset
        self._stride = stride

    @property
    def plausible(self) -> bool:
        """Whether each entry is free, claimed or published, in some round."""
        return all((self._word(index) - index) & (self.size - 1) <= 1 for index in range(self.size))

    def unpublished(self) -> Iterator[int]:
        read, written = self._position(_LINE), self._position(0)
        places = range(read, min(written, read + self.size))
        return (position for position in places if self._word(position) == position)

    def publish_empty(self, position: int) -> None:
        place = self.place(position)
        ffi.cast("char *", place)[EMPTY_AT] = b"\1"
        ffi.cast("int64_t *", place)[0] = position + 1  # written last, because the reader checks it

    def _position(self, offset: int) -> int:
        return int(ffi.cast("int64_t *", self.start + offset)[0])

    def place(self, position: int) -> CData:
        return self.start + _HEAD + (position & (self.size - 1)) * self._stride

    def _word(self, position: int) -> int:
        return int(ffi.cast("int64_t *", self.place(position))[0])


class OrphanedEntries:
    """The queues of one endpoint of this process, accessed by the file of its memory."""

    def __init__(self, path: Path, driver: Driver, published: Callable[[], object]) -> None:
        """``published`` is called when entries were released, because the reader may continue."""
        self.path = path
        self._driver = driver
        self._published = published
        self._watching = False
        self._candidates: dict[Place, set[Thread]] = {}  # the threads that may have claimed it
        self._attempts = 0
        self._reported = ""

    def watch(self) -> None:
        """A process has ended that may have left claims: release the entries that are proved to be its own."""
        self._attempts = 0
        if not self._watching:
            self._watching = True
            self._driver.call_soon(self._examine)  # one examination for all peers that end now

    def _examine(self) -> None:
        released = False
        try:
            with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory, ffi.from_buffer(memory) as start:
                released = self._release(start)
        except FileNotFoundError:  # the endpoint was closed meanwhile
            self._watching = False
            return
        except (OSError, ValueError, Unprovable) as error:  # no descriptor left, no memory, or no proof
            self._report(f"{self.path} cannot be examined: {error}")
        else:
            self._watching = bool(self._candidates)
        if self._watching:
            self._attempts += 1
            self._driver.call_later(DELAYS[min(self._attempts, len(DELAYS) - 1)], self._examine)
        if released:
            self._published()

    def _release(self, start: CData) -> bool:
        """Publish entries that no live thread can have claimed; return whether there were any."""
        queues = [(offset, queue, list(queue.unpublished())) for offset, queue in queues_of(start)]
        claimed = {Place(offset, position) for offset, _, positions in queues for position in positions}
        candidates = {place: threads for place, threads in self._candidates.items() if place in claimed}
        if new := claimed - candidates.keys():  # only threads that exist now can have claimed these
            candidates |= dict.fromkeys(new, threads_that_map(self.path))
        cleared = {thread for thread in set[Thread]().union(*candidates.values()) if left_a_write(thread)}
        self._candidates = {place: threads - cleared for place, threads in candidates.items()}
        released = False
        for offset, queue, _ in queues:
            # Read again: a live sender may have published its message before it was seen asleep.
            left = [*queue.unpublished()]
            mine = [position for position in left if not self._candidates.get(Place(offset, position), True)]
            if mine and queue.plausible:
                for position in mine:
                    queue.publish_empty(position)
                    _log.info("a process was killed while it sent; its entry (%d) is skipped", position)
                released = True
        self._candidates = {place: threads for place, threads in self._candidates.items() if threads}
        if self._candidates:
            processes = {thread.process for threads in self._candidates.values() for thread in threads}
            self._report(f"entries of {self.path} are kept: processes {sorted(processes)} may be about to fill them")
        return released

    def _report(self, text: str) -> None:
        if text != self._reported:
            self._reported = text
            _log.info("%s", text)


def queues_of(start: CData) -> Iterator[tuple[int, _Queue]]:
    """Offset and queue of each queue in an endpoint's memory; none if its layout is not known."""
    layout = _LAYOUTS.get(ffi.cast("uint8_t *", start)[0])
    if layout is None:
        return
    parts = ffi.unpack(ffi.cast("int64_t *", start + layout.parts), _PARTS)
    for number, stride in layout.queues.items():
        offset = parts[number]
        end = min((each for each in parts if offset + _HEAD < each <= len(start)), default=0)
        if 0 < offset < end and (queue := _Queue(start, offset, end, stride)).fits:
            yield offset, queue
