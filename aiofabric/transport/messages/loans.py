"""Loans: pooled memory that callers hold, and its return to the pool.

A slice of a lent view is a view of its own, and stays valid when the lent view is released. So a loan counts the views
of its message (``_core/messages/loan.c``). While a caller keeps a slice, the buffer does not return to the pool.
"""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..._core import LoanCore
from ...resource import opened_at

if TYPE_CHECKING:
    from ..interfaces import InboxBase, ReceivedBuffer

__all__ = ["Loan", "give_back_later", "warn_of_all_lent"]

_PLACES_MOST = 3


class Loan(LoanCore):
    """One buffer of a pool, lent by `recv_view` until `end`."""

    __slots__ = ("_buffer", "_inbox", "lent")

    def __init__(self, inbox: InboxBase, buffer: ReceivedBuffer) -> None:
        _reclaim(inbox)
        super().__init__(inbox, buffer)
        self._inbox, self._buffer = inbox, buffer
        if inbox._lent * 2 > inbox.count:  # the warning names the holders; recorded only once buffers become scarce
            inbox.handle.lent_at[buffer] = opened_at()
        self.lent = self.view
        inbox.was_lent()

    def end_block(self) -> None:
        """The block ended: give the buffer back now, or when its last slice is gone.

        Raises:
            BufferError: an object made from the view, such as an array, still exists.
        """
        try:
            self.lent.release()
        finally:
            over = self.end()
            if over:
                self._inbox.handle.lent_at.pop(self._buffer, None)
        if not over:
            warnings.warn(
                "a slice of a recv_view is kept after its block: the pool has one buffer less until the slice "
                "is released. Copy the part that you need: "
                "bytes(view[a:b])",
                ResourceWarning,
                stacklevel=4,  # end_block, recv_view, contextlib
            )


def give_back_later(inbox: InboxBase, buffer: ReceivedBuffer) -> None:
    """The last view of a loan is gone. May run in any thread, and inside a garbage collection."""
    handle: Any = inbox.handle
    if handle is None or getattr(handle, "forked", True):  # None, or without it: both are being collected
        return
    driver = getattr(inbox.source, "driver", None)
    if driver is None:  # the connection is being collected
        return
    handle.returned.append(buffer)
    with suppress(RuntimeError):  # the loop has ended
        driver.call_soon_threadsafe(lambda: _reclaim(inbox))


def _reclaim(inbox: InboxBase) -> None:
    handle: Any = inbox.handle
    while handle is not None and handle.returned:
        buffer = handle.returned.pop()
        inbox._lent -= 1
        handle.lent_at.pop(buffer, None)
        inbox.recycle(buffer)


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
