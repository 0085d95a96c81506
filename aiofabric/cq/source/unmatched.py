"""Unmatched: the part of a source that handles completions which finish no operation, and completions with an error.

_core/progress/completions.c reads the queue, and finishes the operations that the other completions name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..._ffi import constants

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._core import Registry
    from ..interfaces import Completable, Queue
    from ..queue import Entry

_log = logging.getLogger(__name__)

__all__ = ["Unmatched"]

# A peer accessed our memory (a write with data). The context names no operation: tcp leaves an earlier transfer's.
_OF_THE_PEER = constants.FI_REMOTE_READ | constants.FI_REMOTE_WRITE
_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA
_UNKNOWN = constants.FI_EADDRNOTAVAIL


class Unmatched:
    """Peers' writes, completions of operations that were forgotten, and errors.

    ``peer_wrote`` takes the event of a peer's write. ``introduce`` returns the fi_addr of a new sender (FI_SOURCE_ERR).
    ``rx_cq_data`` is set if a peer's write with data consumes a receive (FI_RX_CQ_DATA). ``unnamed_failure`` finds the
    operation of an error entry without a context.
    """

    def __init__(
        self, operations: Registry, queue: Queue | None, callback_failed: Callable[[Exception], object]
    ) -> None:
        self._operations = operations
        self._queue = queue
        self._callback_failed = callback_failed
        self.peer_wrote: Callable[[Entry], object] | None = None
        self.introduce: Callable[[bytes], int] | None = None
        self.rx_cq_data = False
        self.unnamed_failure: Any = None
        self.errors = self.stale = 0
        self._warned = False  # of an event without a reader

    def arrived(self, operation: Completable | None, entry: Entry) -> None:
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
        self.stale += 1

    def read_error(self) -> bool:
        """Read one entry of the error queue, and fail its operation. False if there was none."""
        assert self._queue is not None
        entry = self._queue.read_error()
        if entry is None:
            return False
        self.errors += 1
        operation = self._operations.get(entry.context)
        if operation is None:
            if entry.context or self.unnamed_failure is None or not self.unnamed_failure.failed():
                self.stale += 1
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
