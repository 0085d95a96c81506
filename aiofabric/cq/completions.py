"""SourceCompletions: read a completion queue, complete the operations, post what waited for transmit credits.

_core/completions.c reads the queue and completes the operations that are named. Errors and rare cases are here.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from .._core import Polling, SourceCore
from .._ffi import constants
from ..errors import check
from .readers import Readers
from .slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from .drivers import Driver
    from .interfaces import Completable, Queue
    from .queue import Entry

_log = logging.getLogger(__name__)

__all__ = ["SourceCompletions"]

# A peer accessed our memory (a write with data). The context names no operation: tcp leaves an earlier transfer's.
_OF_THE_PEER = constants.FI_REMOTE_READ | constants.FI_REMOTE_WRITE
_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA
_UNKNOWN = constants.FI_EADDRNOTAVAIL


class SourceCompletions(SourceCore):
    """The part of a source that needs no event loop. It owns the operations posted to its queue, by slot address."""

    def __init__(self, driver: Driver, queue: Queue | None, polling: Polling, *, polls: bool, busy_polls: bool) -> None:
        super().__init__(driver, queue, Readers(driver), deque(), polling, Slots(), polls=polls, busy_polls=busy_polls)
        self.peer_wrote: Callable[[Entry], object] | None = None  # takes the event of a peer's write
        self._warned = False  # of an event without a reader
        self.introduce: Callable[[bytes], int] | None = None  # returns the fi_addr of a new sender (FI_SOURCE_ERR)
        self.rx_cq_data = False  # whether a peer's write with data consumes a receive (FI_RX_CQ_DATA)
        self.unnamed_failure: Any = None  # finds the operation of an error entry without a context
        self._errors = self._stale = 0

    @property
    def draining(self) -> bool:
        """Whether completions are being dispatched now: the caller is a callback of one of them."""
        return self._draining

    def _read_failed(self, code: int) -> None:
        check(code, "fi_cq_read")

    def _quiet_failed(self, code: int) -> None:
        check(code, "fi_trywait")

    def _callback_failed(self, error: Exception) -> None:
        self.driver.report("aiofabric: a completion's callback failed", error)

    def _unasked(self, operation: Completable | None, entry: Entry) -> None:
        """Handle a completion that finishes no operation."""
        if entry[1] & _OF_THE_PEER:
            if operation is not None and self.rx_cq_data:
                operation.consumed()
            if self.peer_wrote is not None:
                self.peer_wrote(entry)
                return
            if entry[1] & _REMOTE_CQ_DATA and not self._warned:
                self._warned = True
                _log.warning(
                    "the data of a peer's write is dropped: open the endpoint with remote_writes= to receive it"
                )
        self._stale += 1

    def _drain_error(self) -> bool:
        assert self.queue is not None
        entry = self.queue.read_error()
        if entry is None:
            return False
        self._errors += 1
        operation = self.operations.get(entry.context)
        if operation is None:
            if entry.context or self.unnamed_failure is None or not self.unnamed_failure.failed():
                self._stale += 1
            return True
        try:
            if entry.errno == _UNKNOWN and self.introduce is not None:  # the message has arrived
                source = self.introduce(entry.address)
                operation.complete((*entry[:3], entry.buffer, entry.data, entry.tag, source))
            else:
                operation.fail(entry)
        except Exception as error:
            self._callback_failed(error)
        return True

    def enqueue(self, handle: Any) -> None:
        """Remember that ``handle`` has operations that wait for transmit credits."""
        if not handle.is_waiting:
            handle.is_waiting = True
            self.queued.append(handle)

    def _retry(self) -> int:
        moved = 0
        for _ in range(len(self.queued)):
            handle = self.queued.popleft()
            handle.is_waiting = False
            moved += handle.retry()  # queues itself again while operations are left
        return moved
