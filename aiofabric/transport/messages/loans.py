"""Loans: pooled memory in the hands of callers, and what becomes of it when they keep it.

A slice of a lent view is a view of its own, and stays valid when the lent one is released. So each loan is a view of an
object of its own, which lives as long as any view of it: what is kept keeps its buffer out of the pool.
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
        if inbox._lent * 2 > inbox.count:  # of what may run out it is told who has it
            inbox.handle.lent_at[buffer] = opened_at()
        # Not a view of the pool's view: see Pool.
        with buffer.view as memory, ffi.from_buffer(memory) as start:
            self._exporter = ffi.buffer(ffi.cast("char *", start), len(memory))
        self.view = memoryview(self._exporter)

    def end(self) -> None:
        """The block is left: give the buffer back, or later, when nobody has a part of it any more.

        Raises:
            BufferError: an object that was made of the view, such as an array, is still there.
        """
        alive = weakref.ref(self._exporter)
        try:
            self.view.release()
        finally:
            del self.view, self._exporter
            kept = alive() is not None
            if kept:
                weakref.finalize(alive(), _come_back, self._inbox, self._buffer).atexit = False
            else:
                _take_back(self._inbox, self._buffer)
        if kept:
            warnings.warn(
                "a slice of a recv_view is kept after its block: the pool has one buffer less until it is gone; "
                "copy what is needed, bytes(view[a:b])",
                ResourceWarning,
                stacklevel=4,  # end, recv_view, contextlib
            )


def _take_back(inbox: InboxBase, buffer: ReceivedBuffer) -> None:
    inbox._lent -= 1
    inbox.handle.lent_at.pop(buffer, None)
    inbox.recycle(buffer)


def _come_back(inbox: InboxBase, buffer: ReceivedBuffer) -> None:
    """What was kept is gone. Any thread, and in the midst of a collection."""
    inbox.handle.returned.append(buffer)
    with suppress(RuntimeError):  # the loop has ended
        inbox.source.driver.call_soon_threadsafe(lambda: _reclaim(inbox))


def _reclaim(inbox: InboxBase) -> None:
    returned = inbox.handle.returned
    while returned:
        _take_back(inbox, returned.pop())


def warn_of_all_lent(inbox: InboxBase) -> None:
    """Somebody waits for a message, and every buffer that could take one is lent."""
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
        f"by recv_view, among others at {places}: no message can arrive before one is "
        "given back. Leave the blocks first, or open the endpoint with a larger recv_count=",
        RuntimeWarning,
        stacklevel=2,
    )
