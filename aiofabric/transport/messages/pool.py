"""Pool: receives that stay posted, so that `recv` only takes a message from a queue.

Cancelling a pooled receive is local: nothing native is posted or cancelled, so no message can be lost. It also avoids
most of the defects of libfabric 1.17 with messages that arrive before their receive (see cq/source/source.py).

A buffer is in one of four states: posted; filled and waiting to be taken; lent to a caller; free until the next batch
of posts. A message stays in the pool's memory until it is taken. If the program does not receive, the pool runs out of
buffers, the provider stops reading its socket, and the sender stops.

A pool begins with few buffers, because an idle connection pays for each: 0.5 KiB here, as much in libfabric, and a page
of 4 KiB once a message was in it. When a burst uses all of them, the pool doubles them, up to its count. 64 requests in
flight cost 10 % less CPU with 64 receives posted than with 16. With two buffers to begin with, a round trip takes 6 us
more.
"""

from __future__ import annotations

import mmap
from itertools import count as counter
from typing import TYPE_CHECKING

from ..._core import PoolBuffer, PoolCore
from ..._ffi import address_of, constants, ffi
from ...cq.queue import ErrorEntry
from ...errors import check
from ...flags import EndpointType
from .inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cq.queue import Entry
    from ..handle import EndpointHandle

__all__ = ["Pool", "PoolBuffer"]

_FIRST = 4  # buffers to begin with
# Buffers at a distance of a power of two would map to a few sets of each cache, so each buffer begins five cache lines
# further on.
_LINE = 64
_STEP = 5 * _LINE
_PAGE = 4096
_AGAIN = 0.002  # seconds until receives that the provider had no room for are posted again
_serial = counter()


class Pool(PoolCore, Inbox):
    """Up to ``count`` receives of ``size`` bytes each, kept posted on one endpoint.

    Each receive has ``extra`` bytes that belong to no message (`prefix.PrefixPool`, `truncation.TruncationPool`).
    ``behind`` is the address and length of memory for the tail of a message that is too long (`overflow.OverflowPool`).
    ``limits``: the provider does not report a message that is too long, so each message is checked (`overlong`).
    """

    __slots__ = ("_base", "_descriptor", "_pins", "_stride", "extra", "view")
    buffer_type = PoolBuffer

    def __init__(
        self,
        handle: EndpointHandle,
        size: int,
        count: int,
        *,
        extra: int = 0,
        behind: tuple[int, int] = (0, 0),
        limits: bool = False,
    ) -> None:
        super().__init__(handle, size, count)
        self.extra = extra
        # Anonymous pages: untouched ones take no memory, and closing the pool frees all at once.
        self._stride = -(size + extra) // _LINE * -_LINE + _STEP
        self._base = next(_serial) * _STEP % _PAGE
        memory = mmap.mmap(-1, self._base + self._stride * count)
        self.view = memoryview(memory)
        # Not from the view: a memoryview with an export crashes the collector when both are in one cycle
        # (CPython gh-77894, in Debian's 3.11.2).
        self._pins = ffi.from_buffer("char[]", memory, require_writable=True)
        self._descriptor = handle.register_own(self._pins)
        endpoint, descriptor = address_of(handle.fid), address_of(self._descriptor)
        self._prepare(endpoint, descriptor, size + extra, count, behind, limits)
        self._extend(min(count, _FIRST))
        try:
            self.post()
        except BaseException:
            handle.pool = self  # the handle ends it, after the native endpoint is closed
            raise

    def _extend(self, count: int) -> None:
        """Grow the pool to ``count`` buffers."""
        source = self.source
        memory = address_of(self._pins)
        for index in range(len(self._buffers), count):
            offset = self._base + index * self._stride
            slot = source.slots.acquire()
            source.operations[slot.address] = buffer = self.buffer_type(self, index, offset, slot)
            self._enter(buffer, memory + offset, slot.address)

    def exhausted(self) -> None:
        """No receive is posted and all buffers are in use: double the pool, up to its count."""
        if self.ended is None:
            self._extend(min(self.count, 2 * len(self._buffers)))
        self.post()

    # -- the provider's side

    def _post_failed(self, code: int) -> None:
        if code != -constants.FI_ENOMEM:
            check(code, "fi_recv", peer=self.handle.peer_name)
        # On 1.17's shm this means that its queue of receives is full.
        self.source.driver.call_later(_AGAIN, self.post)

    def failed(self, buffer: PoolBuffer, entry: ErrorEntry) -> None:
        """A receive failed: it was flushed because the connection ends, its sender has died, or its message did not
        fit.
        """
        handle = self.handle
        if self.ended is not None or handle.closed:
            return
        connected = handle.info.ep_attr.type == EndpointType.MSG
        if not connected:
            self._use_slot(buffer, self.source.slots.replace(buffer, self.source.operations))
        if not handle.flushed(entry.errno):
            error = handle.failure("fi_recv", entry, self.size, handle.peer_name)
            if self.sink is None:
                self.hand_out(error)
            else:
                self.finish(error)
        elif connected:
            return
        if not self.posted:  # 2.x's tcp goes on after a message that did not fit
            self.post()

    def overlong(self, buffer: PoolBuffer, entry: Entry, over: int = 0) -> None:
        """A message of more than ``size`` bytes completed. ``over`` of them are lost; 0 if the number is unknown."""
        unknown = constants.FI_ADDR_NOTAVAIL
        buffer.fail(ErrorEntry(entry[0], entry[1], entry[2], over, entry[5], constants.FI_ETRUNC, 0, "", unknown))

    def end(self, error: Callable[[], BaseException]) -> None:
        """Like `Inbox.end`; the native endpoint is already closed, so no receive is posted any more."""
        source = self.source
        for buffer in self._leave():  # empty at the second call: peer gone, then closed
            source.operations.pop(buffer.slot.address)
            if buffer.posted:
                source.slots.quarantine(buffer.slot)
            else:
                source.slots.release(buffer.slot)
        super().end(error)
