"""Reads: a closed endpoint stays open inside until the provider can close it.

tcp of libfabric 1.17 has a read whose answer is arriving in two lists. If ``fi_close`` or ``fi_shutdown`` ends it here,
tcp reports and frees the read twice. rxm over it gets a null context then and ends the process; alone, tcp hands one
transfer's memory to two later ones. It does not happen if the peer ends the connection. rxm also receives large
messages by reads.

So the program's endpoint is closed at once, its tasks get their errors, and ``fi_close`` follows when the reads have
ended: when all their data has come, or when the connection has broken. The buffers of the reads stay pinned as long. If
the loop ends before, ``fi_close`` is never called.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from ...cq.submission import Transfer
from ...features import Quirk
from ...flags import EndpointType
from ...regions import MemoryOwner, RegionHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...cq.submission import SubmissionQueue

__all__ = ["after_reads", "has_reads", "linger"]

_log = logging.getLogger(__name__)

_LARGE = 131072
"""Bytes of the longest message that rxm receives without a read (FI_OFI_RXM_SAR_LIMIT)."""


class Closing(Protocol):
    """The parts of an endpoint's handle that a close with reads needs."""

    info: Any
    known: Quirk
    lingers: bool
    native_open: bool
    pool: Any
    remote_writes: Any
    source: Any
    thread_check: Any
    what: str

    @property
    def serves_memory(self) -> bool: ...
    @property
    def peer_name(self) -> object: ...
    @property
    def submission_queues(self) -> Iterable[SubmissionQueue]: ...
    def cancel(self, context: Any, /) -> int: ...
    def closed_error(self) -> BaseException: ...
    def wake_gone_waiters(self) -> None: ...
    def _leave(self) -> None: ...


def has_reads(handle: Closing) -> bool:
    """Whether the provider could not close the endpoint now without freeing a read twice.

    A virtual connection hands its reads over to the multiplexer's endpoint.
    """
    known = Quirk.CLOSE_FREES_READS_TWICE in handle.known
    return known and handle.serves_memory and handle.native_open and any(_reads(handle))


def _reads(handle: Closing) -> Iterable[Any]:
    """The reads under way, and the large receives that may be reads."""
    for queue in handle.submission_queues:
        for transfer in queue.posted:
            if transfer.what.startswith("fi_read"):
                yield transfer
    if handle.info.ep_attr.type != EndpointType.MSG:
        yield from _large_receives(handle)


def _large_receives(handle: Closing) -> Iterable[Any]:
    for operation in dict(handle.source.operations).values():
        if isinstance(operation, Transfer):
            if operation.what.startswith(("fi_recv", "fi_trecv")) and operation.length > _LARGE:
                yield operation
            continue
        buffer: Any = operation  # of a pool
        if getattr(buffer, "posted", False) and buffer.pool.size > _LARGE:
            yield buffer


def linger(handle: Closing) -> None:
    """The program has closed the endpoint while there are reads. Wake its tasks; the handle leaves when they have
    ended."""
    handle.lingers = True
    handle.thread_check.thread = 0
    _hold_queues(handle)
    if handle.source.driver.closed():
        return  # nothing reads completions any more
    for queue in handle.submission_queues:
        queue.shut = handle.closed_error
        queue.fail_waiting(handle.closed_error)
        for transfer in [*queue.posted]:
            queue.dismiss(transfer, handle.closed_error())
    if handle.pool is not None and not handle.pool.is_shared:
        handle.pool.discard(handle.closed_error)
    if handle.remote_writes is not None:
        handle.remote_writes.end(handle.closed_error)
    handle.wake_gone_waiters()
    if handle.info.ep_attr.type != EndpointType.MSG:
        for operation in [*_large_receives(handle)]:
            handle.cancel(operation.slot.pointer)  # those that no message has begun to fill end at once
        handle.source.drain()

    def leave() -> None:
        handle.lingers = False
        handle._leave()

    _log.debug("%s with %s: closed when its reads have ended", handle.what, handle.peer_name)
    after_reads(handle, leave)


def _hold_queues(handle: Any) -> None:
    """If the domain closes, its queues stay open until the endpoint has left: its reads end there."""
    for other in handle.parent.children:
        if not isinstance(other, MemoryOwner | RegionHandle):
            other.children[handle] = None
            handle.needed.append(other)


def after_reads(handle: Closing, action: Callable[[], None]) -> None:
    """Call ``action`` from the loop when the reads have ended; at once, if there are none."""
    if not has_reads(handle):
        action()
    else:
        handle.source.polled[_Waiting(handle, action)] = None
        handle.source.touch()


class _Waiting:
    """Asks in each pass whether the reads have ended."""

    def __init__(self, handle: Closing, action: Callable[[], None]) -> None:
        self._handle = handle
        self._action = action

    def poll(self) -> int:
        if has_reads(self._handle):
            return 0
        source = self._handle.source
        del source.polled[self]
        source.driver.call_soon(self._action)  # in a pass, completions that a close flushes could not be read
        return 1
