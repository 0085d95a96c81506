"""Loans: pooled memory that callers hold, and its return to the pool.

A slice of a lent view is a view of its own, and stays valid when the lent view is released. So each loan is a view of
its own object, which lives as long as any view of it. While a caller keeps a slice, the buffer does not return to the
pool.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..._ffi import ffi
from ...resource import opened_at

if TYPE_CHECKING:
    from ..interfaces import InboxBase, ReceivedBuffer

__all__ = ["Loan", "warn_of_all_lent"]

_PLACES_MOST = 3


class Loan:
    """One buffer of a pool, lent until `end`."""

    __slots__ = ("_buffer", "_exporter", "_inbox", "view")

    def __init__(self, inbox: InboxBase, buffer: ReceivedBuffer) -> None:
        self._inbox = inbox
        self._buffer = buffer
        _reclaim(inbox)
        inbox._lent += 1
        if inbox._lent * 2 > inbox.count:  # the warning names the holders; recorded only once buffers become scarce
            inbox.handle.lent_at[buffer] = opened_at()
        # Not a view of the pool's view: see Pool.
        with buffer.view as memory, ffi.from_buffer(memory) as start:
            self._exporter = ffi.buffer(ffi.cast("char *", start), len(memory))
        self.view = memoryview(self._exporter)

    def end(self) -> None:
        """The block ended: give the buffer back now, or when its last slice is gone.

        Raises:
            BufferError: an object made from the view, such as an array, still exists.
        """
        alive = weakref.ref(self._exporter)
        try:
            self.view.release()
        finally:
            del self.view, self._exporter
            kept = alive() is not None
            if kept:
                weakref.finalize(alive(), _slice_is_gone, self._inbox, self._buffer).atexit = False
            else:
                _end_loan(self._inbox, self._buffer)
        if kept:
            warnings.warn(
                "a slice of a recv_view is kept after its block: the pool has one buffer less until the slice "
                "is released. Copy the part that you need: "
                "bytes(view[a:b])",
                ResourceWarning,
                stacklevel=4,  # end, recv_view, contextlib
            )


def _end_loan(inbox: InboxBase, buffer: ReceivedBuffer) -> None:
    inbox._lent -= 1
    inbox.handle.lent_at.pop(buffer, None)
    inbox.recycle(buffer)


def _slice_is_gone(inbox: InboxBase, buffer: ReceivedBuffer) -> None:
    """The last slice of a loan is gone. May run in any thread, and inside a garbage collection."""
    inbox.handle.returned.append(buffer)
    with suppress(RuntimeError):  # the loop has ended
        inbox.source.driver.call_soon_threadsafe(lambda: _reclaim(inbox))


def _reclaim(inbox: InboxBase) -> None:
    returned = inbox.handle.returned
    while returned:
        _end_loan(inbox, returned.pop())


def warn_of_all_lent(inbox: InboxBase) -> None:
    """A task waits for a message while every receive buffer is lent: warn."""
    _reclaim(inbox)
    if inbox._lent < inbox.count:
        return
    handle: Any = inbox.handle
    handle.exhausted += 1
    if handle.exhausted > 1:
        return
    counted = Counter(handle.lent_at.values()).most_common(_PLACES_MOST)
    places = ", ".join(f"{place} ({count})" for place, count in counted)
    warnings.warn(
        f"recv waits, and all {inbox.count} receive buffers of the {handle.what} opened at {handle.opened_at} are lent "
        f"by recv_view, among others at {places}: no message can arrive before one of them is returned. Leave "
        "a recv_view block before you receive, or "
        "open the endpoint with a larger recv_count=",
        RuntimeWarning,
        stacklevel=2,
    )
