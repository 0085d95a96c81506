"""Pool: receives that stay posted, so that `recv` only takes from a queue.

Cancelling a pooled receive is local, nothing native is posted or cancelled, so nothing can be lost. And on
libfabric 1.17 the traps of a message that comes before its receive (see cq/turning.py) hardly ever open.

A buffer is posted, or filled and waiting to be taken, or lent to a caller, or free until the next batch of
posts. A message stays in the pool's memory until it is taken: a reader that does not read makes the pool run
dry, the provider stops reading its socket, and the sender stops.

A pool begins with a few buffers, because an idle connection pays for each (0.5 KiB here, as much in libfabric, and a
page of 4 KiB once a message was in it), and doubles them, up to its count, when a burst runs it dry: 64 requests in
flight cost 10 % less CPU with 64 receives posted than with 16. With two to begin with, a round trip takes 6 us more.
"""

from __future__ import annotations

import mmap
from itertools import count as counter
from typing import TYPE_CHECKING

from .._ffi import constants, ffi, lib
from ..errors import check
from .inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cq.queue import Entry, ErrorEntry
    from ..cq.slots import Slot
    from .handle import EndpointHandle

__all__ = ["Pool", "PoolBuffer"]

_EAGAIN = constants.FI_EAGAIN
_FIRST = 4  # buffers to begin with
# Buffers a power of two apart would share a few sets of every cache: each begins five lines further on.
_LINE = 64
_STEP = 5 * _LINE
_PAGE = 4096
_serial = counter()


class PoolBuffer:
    """One buffer of a pool, with its slot; registered with the source for as long as the pool lives."""

    __slots__ = ("data", "flags", "index", "length", "offset", "pool", "posted", "slot", "source", "tag")

    def __init__(self, pool: Pool, index: int, offset: int, slot: Slot) -> None:
        self.pool = pool
        self.index = index
        self.offset = offset
        self.slot = slot
        self.posted = False
        self.length = self.flags = self.data = self.tag = 0
        self.source: int | None = None

    def complete(self, entry: Entry) -> None:
        """A message arrived: to the sink, to whoever waits the longest, or into the inbox."""
        # One function on purpose: three calls of a line each cost 0.2 us of the 3.5 us that a message takes.
        if len(entry) == 6:
            _, self.flags, self.length, _, self.data, self.tag = entry
        else:
            _, self.flags, self.length, _, self.data, self.tag, self.source = entry
        self.posted = False
        pool = self.pool
        pool.posted -= 1
        if not pool.posted:
            pool.grow()
        pool.messages += 1
        pool.bytes += self.length
        if pool.sink is not None:
            pool.feed(self)
        elif pool.waiters:
            pool.hand_out(self)
        else:
            pool.inbox.append(self)

    def fail(self, entry: ErrorEntry) -> None:
        self.pool.failed(self, entry)

    def consumed(self) -> None:
        """A peer's write used the receive up (FI_RX_CQ_DATA): nothing is in it."""
        self.posted = False
        self.pool.posted -= 1
        self.pool.recycle(self)

    @property
    def view(self) -> memoryview:
        """The message, in the pool's memory."""
        return self.pool.view[self.offset : self.offset + self.length]


class Pool(Inbox):
    """Up to ``count`` receives of ``size`` bytes each, kept posted on one endpoint.

    Each has ``extra`` bytes that are no message's (see `prefix.PrefixPool`, `whole.WholePool`).
    """

    buffer_type = PoolBuffer

    def __init__(self, handle: EndpointHandle, size: int, count: int, *, extra: int = 0) -> None:
        super().__init__(handle, size, count)
        self.extra = extra
        # Anonymous pages: untouched ones take no memory, and a closed pool gives all back at once.
        self._stride = -(size + extra) // _LINE * -_LINE + _STEP
        self._base = next(_serial) * _STEP % _PAGE
        memory = mmap.mmap(-1, self._base + self._stride * count)
        self.view = memoryview(memory)
        # Not of the view: a memoryview with an export crashes the collector when both are in one cycle
        # (CPython gh-77894, in Debian's 3.11.2).
        self._pins = ffi.from_buffer("char[]", memory, require_writable=True)
        self._descriptor = handle.register_own(self._pins)
        self._receives = ffi.new("struct aiofabric_receive[]", count)
        self._buffers: list[PoolBuffer] = []
        self._free: list[int] = []  # their indexes
        self._extend(min(count, _FIRST))
        self.post()

    def _extend(self, count: int) -> None:
        """Have ``count`` buffers."""
        source = self.source
        for index in range(len(self._buffers), count):
            offset = self._base + index * self._stride
            slot = source.slots.lend()
            receive = self._receives[index]
            receive.buf, receive.context = self._pins + offset, slot.pointer
            source.operations[slot.address] = buffer = self.buffer_type(self, index, offset, slot)
            self._buffers.append(buffer)
            self._free.append(index)
        self._batch = max(1, count // 2)

    def grow(self) -> None:
        """The pool ran dry: double it while it may grow."""
        if len(self._buffers) < self.count and self.ended is None:
            self._extend(min(self.count, 2 * len(self._buffers)))
            self.post()

    # -- the provider's side

    def post(self) -> None:
        """Post every free buffer."""
        if self.ended is not None or not self.handle.native_open:  # what arrived last is read after fi_close
            return
        free, buffers = self._free, self._buffers
        while free:
            posted = self._post_each(free)
            if posted < 0:
                if posted != -_EAGAIN:
                    check(posted, "fi_recv", peer=self.handle.peer_name)
                break
            for index in free[:posted]:
                buffers[index].posted = True
            del free[:posted]
            self.posted += posted
        self.source.touch()

    def _post_each(self, which: list[int]) -> int:
        """Post buffers by index; return how many found room, or the error of the first."""
        size, receives = self.extra + self.size, self._receives
        posted: int = lib.aiofabric_recv_each(self.handle.fid, receives, which, len(which), size, self._descriptor)
        return posted

    def recycle(self, buffer: PoolBuffer) -> None:
        """The message was taken. Posted again in batches: one turn for eight posts instead of one for each."""
        free = self._free
        free.append(buffer.index)
        if len(free) >= self._batch:
            self.post()

    def wanted(self) -> None:
        if not self.posted:  # most are lent: the rest is less than a batch
            self.post()

    def failed(self, buffer: PoolBuffer, entry: ErrorEntry) -> None:
        """A receive failed: flushed because the connection ends, or its message did not fit."""
        if buffer.posted:
            buffer.posted = False
            self.posted -= 1
        self._free.append(buffer.index)
        if not (self.handle.flushed(entry.errno) or self.handle.closed):
            error = self.handle.failure("fi_recv", entry, self.size, self.handle.peer_name)
            if self.sink is None:
                self.hand_out(error)
            else:
                self.finish(error)
            if not self.posted:  # 2.x's tcp goes on after a message that did not fit
                self.post()

    def end(self, error: Callable[[], BaseException]) -> None:
        """As `Inbox.end`; the endpoint is gone natively, so no receive is posted any more."""
        source = self.source
        buffers, self._buffers = self._buffers, []  # end may come twice: peer gone, then closed
        for buffer in buffers:
            source.operations.pop(buffer.slot.address, None)
            if buffer.posted:
                source.slots.quarantine(buffer.slot)
            else:
                source.slots.take_back(buffer.slot)
            buffer.posted = False
        self.posted = 0
        super().end(error)
