"""Unnamed failures: reads and writes of a peer's memory whose error entry does not say which operation failed.

shm copies a peer's memory within the posting call. If the copy fails because the peer has freed the memory, the
provider reports an error without a context (smr_rma_fast). The posting call returns 0 in 1.17, and -FI_EAGAIN in 2.x,
after which the operation is posted again. In both cases the operation would never end. The copies are made one after
the other, so the error belongs to the oldest operation that has not ended.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .._ffi import constants
from ..errors import from_errno
from .operation import FINISHED, QUEUED

if TYPE_CHECKING:
    from .source.source import Source
    from .submission import SubmissionQueue, Transfer

__all__ = ["watch"]


class _Copies:
    """The reads and writes of one queue that have not ended, in the order in which they were posted."""

    def __init__(self) -> None:
        self._open: deque[Transfer] = deque()

    def enter(self, transfer: Transfer) -> None:
        open_ = self._open
        while open_ and open_[0].state is FINISHED:
            open_.popleft()
        open_.append(transfer)

    def failed(self) -> bool:
        """An error without a context was read: end the oldest operation. False: there is none."""
        open_ = self._open
        while open_:
            transfer = open_.popleft()
            if transfer.state is not FINISHED:
                _fail(transfer)
                return True
        return False


def watch(source: Source, transfer: Transfer) -> None:
    """``transfer`` was just posted or queued; find it when ``source`` reports an error that names no operation."""
    if transfer.state is FINISHED:
        return
    copies = source.unmatched.unnamed_failure
    if copies is None:
        copies = source.unmatched.unnamed_failure = _Copies()
    copies.enter(transfer)


def _fail(transfer: Transfer) -> None:
    queue: SubmissionQueue = transfer.owner
    error = from_errno(constants.FI_EACCES, transfer.what, peer=queue.name)
    if transfer.state is QUEUED:
        queue.waiting.remove(transfer)
        queue.source.slots.release(transfer.slot)
    else:
        queue.retire(transfer)
    transfer.finish(error)
