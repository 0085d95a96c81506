"""Orphaned entries: places in a queue of shared memory that a killed process has taken, and will not fill.

Who sends over shm of libfabric 1.18 and later claims the next place in its receiver's queue, writes the message, and
publishes the place; the reader takes places in order. One that is killed in between stops everybody who sends to that
endpoint, for ever: of 450 senders of 2,000 B that were killed, one did. The same holds for the queue by which
receivers give back what they have read.

So when the OOB socket of a connection ends without a word, the places that are claimed and not published are examined.
A live process publishes within microseconds. What is still the same after `PATIENCE` is published as empty, as a sender
does that gives up (ofi_atomic_queue.h, _discard), and the reader passes it over. (Another live one that was stopped for
as long in just these microseconds would spoil the queue when it goes on.)
"""

from __future__ import annotations

import logging
import mmap
from typing import TYPE_CHECKING, NamedTuple

from ..._ffi import CData, ffi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ...cq.drivers import Driver

__all__ = ["PATIENCE", "OrphanedEntries", "Place"]

PATIENCE = 0.5  # seconds; less than who closes in order has for messages that are still on their way (connection.py)

_log = logging.getLogger(__name__)


class _Layout(NamedTuple):
    """Where an endpoint's memory says at which offsets its parts begin, and which are queues, with places how long."""

    parts: int
    queues: dict[int, int]


# By SMR_VERSION (smr_util.h), of 2.0 to 2.4, and of 2.5.1 and later. With others nothing is done, nor with a libfabric
# that was built for debugging, whose places are longer.
_LAYOUTS = {8: _Layout(80, {0: 576}), 10: _Layout(128, {0: 384, 3: 64})}
_PARTS = 7

# struct ofi_atomic_queue: three lines of 64 bytes, then the places, each a sequence number, whether it is empty, and
# what is in it.
_LINE = 64
_HEAD = 3 * _LINE
_EMPTY = 8


class Place(NamedTuple):
    """A place in a queue: the queue's offset in the memory, and how many places came before."""

    queue: int
    position: int


class _Queue:
    """A queue as it lies in memory."""

    def __init__(self, start: CData, offset: int, end: int, stride: int) -> None:
        self.start = start + offset
        self.size = int(ffi.cast("int32_t *", self.start + 2 * _LINE)[0])
        self.fits = self.size > 0 and not self.size & (self.size - 1) and _HEAD + self.size * stride == end - offset
        self._stride = stride

    @property
    def plausible(self) -> bool:
        """Whether each place is free, claimed or published, in some round."""
        return all((self._word(index) - index) & (self.size - 1) <= 1 for index in range(self.size))

    def unpublished(self) -> Iterator[int]:
        read, written = self._position(_LINE), self._position(0)
        places = range(read, min(written, read + self.size))
        return (position for position in places if self._word(position) == position)

    def publish_empty(self, position: int) -> None:
        place = self._place(position)
        ffi.cast("char *", place)[_EMPTY] = b"\1"
        ffi.cast("int64_t *", place)[0] = position + 1  # last: the reader looks at this

    def _position(self, offset: int) -> int:
        return int(ffi.cast("int64_t *", self.start + offset)[0])

    def _place(self, position: int) -> CData:
        return self.start + _HEAD + (position & (self.size - 1)) * self._stride

    def _word(self, position: int) -> int:
        return int(ffi.cast("int64_t *", self._place(position))[0])


class OrphanedEntries:
    """The queues of an endpoint of ours, by the file that its memory is."""

    def __init__(self, path: Path, driver: Driver, published: Callable[[], object]) -> None:
        """``published`` is called when places may have been: the reader may go on."""
        self.path = path
        self._driver = driver
        self._published = published
        self._watching = False

    def watch(self) -> None:
        """A process is gone that may have left claims: free what is not published in time."""
        if not self._watching:
            self._watching = True
            self._driver.call_soon(lambda: self._look(set()))  # once for all whose OOB sockets end now

    def _look(self, before: set[Place]) -> None:
        try:
            with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory, ffi.from_buffer(memory) as start:
                now = _free(start, before)
        except FileNotFoundError:  # the endpoint was closed meanwhile
            self._watching = False
            return
        except (OSError, ValueError) as error:
            _log.info("%s cannot be looked at yet: %s", self.path, error)  # no descriptor is left, or no memory
            now = before
        else:
            self._watching = bool(now)
        if self._watching:
            self._driver.call_later(PATIENCE, lambda: self._look(now))
        if before - now:
            self._published()


def _free(start: CData, left: set[Place]) -> set[Place]:
    """Publish what is ``left``; the other places that are not published."""
    found = set()
    for offset, queue in _queues(start):
        places = {Place(offset, position) for position in queue.unpublished()}
        if places and not queue.plausible:
            continue
        for place in places & left:
            queue.publish_empty(place.position)
            _log.info("a process was killed while it sent; what it had begun is passed over (%d)", place.position)
        found |= places - left
    return found


def _queues(start: CData) -> Iterator[tuple[int, _Queue]]:
    layout = _LAYOUTS.get(ffi.cast("uint8_t *", start)[0])
    if layout is None:
        return
    parts = ffi.unpack(ffi.cast("int64_t *", start + layout.parts), _PARTS)
    for number, stride in layout.queues.items():
        offset = parts[number]
        end = min((each for each in parts if offset + _HEAD < each <= len(start)), default=0)
        if 0 < offset < end and (queue := _Queue(start, offset, end, stride)).fits:
            yield offset, queue
