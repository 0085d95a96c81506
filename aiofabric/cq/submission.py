"""SubmissionQueue: the operations of one direction of one endpoint, posted or queued, and their cancellation.

The submission queue bounds the operations in flight, because the tcp provider does not: it accepted 20,000 sends of
64 KiB. Above the endpoint's limit, operations are queued here in order, and posted when transmit credits return. An
operation that the provider refuses with -FI_EAGAIN is queued, too.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from anyio import ClosedResourceError, move_on_after

from .._core import SubmissionCore, Transfer
from ..errors import FabricConnectionError, check, from_errno
from .operation import ABANDONED, CANCELLING, FINISHED, POSTED, QUEUED

if TYPE_CHECKING:
    from collections.abc import Callable

    from .loops.drivers import Waiter
    from .queue import ErrorEntry
    from .source.source import Source

_log = logging.getLogger(__name__)

__all__ = ["SubmissionQueue", "Transfer", "most_posted"]

_MOST_POSTED = 1 << 16


def most_posted(size: int) -> int:
    """How many operations may be posted if the attributes of an endpoint say ``size``: psm3 and opx say 2**64 - 1."""
    return max(1, min(size, _MOST_POSTED))


class SubmissionOwner(Protocol):
    """The endpoint handle: it asks the provider to cancel, and makes an exception of an error entry."""

    @property
    def native_open(self) -> bool: ...
    def cancel(self, context: Any, /) -> object: ...
    def explain(self, transfer: Transfer, entry: ErrorEntry, /) -> BaseException: ...


# Shared by all submission queues: an empty deque takes 760 bytes, and few of them ever need one.
_NONE_QUEUED: deque[Transfer] = deque()


class SubmissionQueue(SubmissionCore):
    """Posted and queued operations of one direction.

    Args:
        source: reports the completions.
        owner: the endpoint handle.
        limit: most operations posted at once; more are queued.
        receives: whether the provider reports the length (receives) or the caller knows it (everything else).
        grace: seconds to wait for a completion after fi_cancel; 0 if the provider is known not to cancel.
        name: the peer, for error texts.
    """

    __slots__ = ("_waiters", "grace", "is_waiting", "name", "shut")

    def __init__(
        self, source: Source, owner: SubmissionOwner, limit: int, *, receives: bool, grace: float, name: object = None
    ) -> None:
        super().__init__(source, owner, _NONE_QUEUED, limit, receives)
        self.grace = grace
        self.name = name
        self._waiters: tuple[Waiter, ...] = ()  # of callers that wait until nothing is queued
        self.is_waiting = False
        self.shut: Callable[[], BaseException] | None = None  # why nothing may be posted any more

    def _wait_for_credits(self, transfer: Transfer) -> None:
        """Queue an operation for which there are no transmit credits now."""
        if self.shut is not None:
            self.source.slots.release(transfer.slot)
            transfer.pins = None
            transfer.release_registrations()
            raise self.shut()
        transfer.move(QUEUED)
        if not self.waiting:
            self.waiting = deque()
        self.waiting.append(transfer)
        self.source.enqueue(self)
        if self.refused:
            self.source.touch()

    def _call_failed(self, code: int, what: str) -> None:
        check(code, what, peer=self.name)

    def failed(self, transfer: Transfer, entry: ErrorEntry) -> None:
        """The provider reported a failure."""
        error = self.owner.explain(transfer, entry)
        self.retire(transfer)
        transfer.finish(error)
        if transfer.unawaited and not isinstance(error, (FabricConnectionError, ClosedResourceError)):
            _log.warning(
                "a message of %d bytes to %s was lost after its send had returned: %s",
                transfer.length, self.name, error,
            )  # fmt: skip

    def consumed(self, transfer: Transfer) -> None:
        """A peer's write consumed the receive (FI_RX_CQ_DATA): post it again, with the same slot."""
        assert transfer.post is not None
        function, args = transfer.post
        if not self.owner.native_open:  # flushed completions are read after fi_close; `end` finishes the operation
            return
        if rc := function(*args):
            self.retire(transfer)
            transfer.finish(from_errno(-rc, transfer.what, peer=self.name))

    def retry(self) -> int:
        """Post queued operations, oldest first, while there are credits; return how many left the queue."""
        moved = 0
        self.refused = False
        if self.shut is not None:
            self.fail_waiting(self.shut)
        try:
            while self.waiting and len(self.posted) < self.limit and self._retry_first():
                moved += 1
        finally:
            if self.waiting:
                self.source.enqueue(self)
            else:
                self._wake_waiters()
        return moved

    def _retry_first(self) -> bool:
        """Try the oldest queued operation; return whether it has left the queue."""
        transfer = self.waiting[0]
        try:
            if not self._try(transfer):
                return False
        except BaseException as error:
            self.waiting.popleft()  # before a waiter is woken, which may close the submission queue
            if transfer.state is POSTED:  # Ctrl-C after the provider accepted it
                raise
            self._finish(transfer, error)
        else:
            self.waiting.popleft()
        return True

    def _wake_waiters(self) -> None:
        """An operation has left the queue: wake the tasks that wait for an empty one."""
        if self.waiting or self.source.driver.closed():
            return
        idle = () if self.posted else self.idle
        for waiter in (*self._waiters, *idle):
            if not waiter.done():
                self.source.woke()
                waiter.set_result(None)
        self._waiters = ()  # not before: Ctrl-C in the loop must leave them for the next call
        if idle:
            self.idle.clear()

    async def all_posted(self) -> None:
        """Wait until nothing is queued on this submission queue. Cancelling changes nothing."""
        source = self.source
        while self.waiting:
            waiter = source.driver.create_waiter()
            self._waiters += (waiter,)
            source.prepare()
            await waiter

    async def drained(self) -> None:
        """Wait until nothing is posted or queued on this submission queue. Cancelling changes nothing."""
        while self.posted or self.waiting:
            waiter = self.source.driver.create_waiter()
            self.idle.append(waiter)
            self.source.touch()
            await waiter

    async def _leave(self, transfer: Transfer) -> None:
        """The caller was cancelled: remove the operation, or call fi_cancel and wait up to ``grace`` seconds."""
        if not self._taken_back(transfer):
            await self._cancel(transfer)

    def _left_behind(self, transfer: Transfer) -> None:
        """The caller is gone, and no coroutine is left that could await the provider."""
        if not self._taken_back(transfer):
            self._abandon(transfer)

    def _taken_back(self, transfer: Transfer) -> bool:
        """Finish the operation if the provider does not have it; return whether it is finished."""
        transfer.notify = None
        if transfer.state is FINISHED:
            orphaned, transfer.orphaned = transfer.orphaned, None
            if transfer.error is None and orphaned is not None:
                orphaned(transfer)
            return True
        if transfer.state is ABANDONED:  # dismissed already
            return True
        if transfer.state is QUEUED:
            self.waiting.remove(transfer)
            self.source.slots.release(transfer.slot)
            transfer.finish()
            self._wake_waiters()
            return True
        return False

    async def _cancel(self, transfer: Transfer) -> None:
        source = self.source
        transfer.move(CANCELLING)
        # the return code of fi_cancel has no meaning; only a completion shows the result
        self.owner.cancel(transfer.slot.pointer)
        source.drain()  # tcp completes the cancelled operation at once
        source.touch()
        try:
            if self.grace and transfer.state is not FINISHED:
                transfer.notify = waiter = source.driver.create_waiter()
                with move_on_after(self.grace, shield=True):
                    await waiter
        finally:  # a second task.cancel() passes the shield
            self._abandon(transfer)

    def _abandon(self, transfer: Transfer) -> None:
        """The caller does not wait any more. A posted operation keeps its pins until it completes, or until close."""
        transfer.notify = None
        if transfer.state is POSTED:
            transfer.move(CANCELLING)
        if transfer.state is CANCELLING:
            transfer.move(ABANDONED)
            self.source.abandoned += 1
            _log.debug(
                "%s, %d bytes, with %s: abandoned, pinned until it ends", transfer.what, transfer.length, self.name
            )

    def close_off(self, error: Callable[[], BaseException]) -> None:
        """Refuse further posts, with which the provider would crash. Posted operations stay. Safe in any thread."""
        self.limit = 0  # `submit` and `retry` then look at `shut`
        self.shut = error

    def dismiss(self, transfer: Transfer, error: BaseException) -> None:
        """Wake the caller of a posted operation with an error; the operation keeps its pins until it completes."""
        notify = None if self.source.driver.closed() else transfer.notify
        transfer.error = error
        self._abandon(transfer)
        transfer.wake_waiter(notify)

    def fail_waiting(
        self, error: Callable[[], BaseException], chosen: Callable[[Transfer], bool] | None = None
    ) -> None:
        """Finish the queued operations, or those that are ``chosen``, with an error: they will not be posted."""
        left, self.waiting = self.waiting, _NONE_QUEUED
        if chosen is not None:
            ended = dict.fromkeys(transfer for transfer in left if chosen(transfer))
            self.waiting = deque(transfer for transfer in left if transfer not in ended)
            left = deque(ended)
        for transfer in left:
            self.source.slots.release(transfer.slot)
            self._finish(transfer, error())
        self._wake_waiters()

    def hand_over(self, error: Callable[[], BaseException], successor: SubmissionQueue) -> None:
        """Called when the peer has ended and the endpoint stays open: wake the callers, and move posted operations to
        ``successor``.
        """
        self.fail_waiting(error)
        left, self.posted = self.posted, {}
        for transfer in left:
            transfer.owner = successor
            successor.posted[transfer] = None
            notify, transfer.notify = transfer.notify, None
            if self.source.driver.closed():
                notify = None
            if transfer.state is POSTED:
                transfer.error = error()
                transfer.move(CANCELLING)
                self.owner.cancel(transfer.slot.pointer)
                self._abandon(transfer)
            transfer.wake_waiter(notify)
        self._wake_waiters()

    def end(self, error: Callable[[], BaseException]) -> None:
        """Finish all operations after fi_close, which is followed by no completion."""
        source = self.source
        left = [*self.posted, *self.waiting]
        for transfer in self.posted:
            source.operations.pop(transfer.slot.address)
            source.slots.quarantine(transfer.slot)
            source.interest -= 1
            if transfer.state is ABANDONED:
                source.abandoned -= 1
        for transfer in self.waiting:
            source.slots.release(transfer.slot)
        self.posted.clear()
        self.waiting.clear()
        for transfer in left:
            self._finish(transfer, error())
        self._wake_waiters()

    def _finish(self, transfer: Transfer, error: BaseException) -> None:
        if self.source.driver.closed():  # its futures cannot be woken
            transfer.notify = None
        try:
            transfer.finish(error)
        except Exception as failure:  # of a callback; the other operations must still finish
            self.source.driver.report("aiofabric: a completion's callback failed", failure)
