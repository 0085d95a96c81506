"""SubmissionQueue: one direction of one endpoint. What is posted there, what is queued, and how a caller leaves.

It bounds what is in flight: the tcp provider accepts any number of sends (20,000 of 64 KiB were seen). So above the
endpoint's own limit operations are queued here, in order, and are posted as room comes back. So are operations
to which the provider answers -FI_EAGAIN.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from anyio import move_on_after

from .._core import SubmissionCore, Transfer
from ..errors import check, from_errno
from .operation import ABANDONED, CANCELLING, FINISHED, POSTED, QUEUED

if TYPE_CHECKING:
    from collections.abc import Callable

    from .drivers import Waiter
    from .queue import ErrorEntry
    from .source import Source

_log = logging.getLogger(__name__)

__all__ = ["SubmissionQueue", "Transfer"]


class SubmissionOwner(Protocol):
    """The endpoint handle: it can ask the provider to cancel, and say what an error means."""

    @property
    def native_open(self) -> bool: ...
    def cancel(self, context: Any, /) -> object: ...
    def explain(self, transfer: Transfer, entry: ErrorEntry, /) -> BaseException: ...


# Shared by all submission queues: an empty deque takes 760 bytes, and few of them ever need one.
_NOBODY: deque[Transfer] = deque()


class SubmissionQueue(SubmissionCore):
    """Posted and queued operations of one direction.

    Args:
        source: where completions come from.
        owner: the endpoint handle.
        limit: most operations posted at once; more are queued.
        receives: whether the provider reports the length (receives) or the caller knows it (everything else).
        grace: seconds to wait for the provider's answer to a cancel; 0 where it is known not to cancel.
        name: whom it leads to, for error texts.
    """

    __slots__ = ("_waiters", "grace", "is_waiting", "name", "shut")

    def __init__(
        self, source: Source, owner: SubmissionOwner, limit: int, *, receives: bool, grace: float, name: object = None
    ) -> None:
        super().__init__(source, owner, _NOBODY, limit, receives)
        self.grace = grace
        self.name = name
        self._waiters: tuple[Waiter, ...] = ()  # of callers that wait until nothing is queued
        self.is_waiting = False
        self.shut: Callable[[], BaseException] | None = None  # why nothing may be posted any more

    def _wait_for_credits(self, transfer: Transfer) -> None:
        """There is no room for it now."""
        if self.shut is not None:
            self.source.slots.take_back(transfer.slot)
            transfer.pins = None
            transfer.let_go()
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
        """The provider says that it failed."""
        error = self.owner.explain(transfer, entry)
        self.home(transfer)
        transfer.finish(error)

    def consumed(self, transfer: Transfer) -> None:
        """A peer's write used the receive up (FI_RX_CQ_DATA): post it again, from the same slot."""
        assert transfer.post is not None
        function, args = transfer.post
        if not self.owner.native_open:  # what was flushed is read after fi_close; `end` settles this
            return
        if rc := function(*args):
            self.home(transfer)
            transfer.finish(from_errno(-rc, transfer.what, peer=self.name))

    def retry(self) -> int:
        """Post what is queued, oldest first, as far as there is room; return how many found their way."""
        moved = 0
        self.refused = False
        if self.shut is not None:
            self.fail_waiting(self.shut)
        while self.waiting and len(self.posted) < self.limit:
            transfer = self.waiting[0]
            try:
                if not self._try(transfer):
                    break
            except BaseException as error:
                self.waiting.popleft()  # before anybody is told, who may close the submission queue
                self._finish(transfer, error)
            else:
                self.waiting.popleft()
            moved += 1
        if self.waiting:
            self.source.enqueue(self)
        else:
            self._wake_waiters()
        return moved

    def _wake_waiters(self) -> None:
        """Something has left the submission queue: wake who waited for that."""
        if self.waiting:
            return
        waiters, self._waiters = [*self._waiters], ()
        if not self.posted:
            waiters += self.idle
            self.idle.clear()
        for waiter in waiters:
            if not waiter.done():
                self.source.woke()
                waiter.set_result(None)

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
        """The caller was interrupted: take the operation back, or ask the provider to, and wait a little."""
        if not self._taken_back(transfer):
            await self._cancel(transfer)

    def _left_behind(self, transfer: Transfer) -> None:
        """The caller is gone, and nothing can be awaited."""
        if not self._taken_back(transfer):
            self._abandon(transfer)

    def _taken_back(self, transfer: Transfer) -> bool:
        """The caller was interrupted: whether that ends the matter, because the provider has nothing of it."""
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
            self.source.slots.take_back(transfer.slot)
            transfer.finish()
            self._wake_waiters()
            return True
        return False

    async def _cancel(self, transfer: Transfer) -> None:
        source = self.source
        transfer.move(CANCELLING)
        self.owner.cancel(transfer.slot.pointer)  # fi_cancel's answer means nothing; only a completion tells
        source.drain()  # tcp answers at once
        source.touch()
        try:
            if self.grace and transfer.state is not FINISHED:
                transfer.notify = waiter = source.driver.create_waiter()
                with move_on_after(self.grace, shield=True):
                    await waiter
        finally:  # asyncio's own cancel goes through the shield
            self._abandon(transfer)

    def _abandon(self, transfer: Transfer) -> None:
        """Nobody waits any more: what is posted stays pinned until the provider answers, or until close."""
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
        """Nothing may be posted any more: the provider would crash. What is posted stays so. Any thread."""
        self.limit = 0  # so that `submit` and `retry` come by
        self.shut = error

    def dismiss(self, transfer: Transfer, error: BaseException) -> None:
        """Answer who waits for a posted operation; it stays pinned until the provider is done with it."""
        notify = transfer.notify
        transfer.error = error
        self._abandon(transfer)
        transfer.wake_waiter(notify)

    def fail_waiting(self, error: Callable[[], BaseException]) -> None:
        """Settle what is queued: it will not be posted any more."""
        left, self.waiting = self.waiting, _NOBODY
        for transfer in left:
            self.source.slots.take_back(transfer.slot)
            self._finish(transfer, error())
        self._wake_waiters()

    def forsake(self, error: Callable[[], BaseException], attic: SubmissionQueue) -> None:
        """The peer is gone but the endpoint stays: answer who waits; what is posted stays pinned, in ``attic``."""
        self.fail_waiting(error)
        left, self.posted = self.posted, {}
        for transfer in left:
            transfer.owner = attic
            attic.posted[transfer] = None
            notify, transfer.notify = transfer.notify, None
            if transfer.state is POSTED:
                transfer.error = error()
                transfer.move(CANCELLING)
                self.owner.cancel(transfer.slot.pointer)
                self._abandon(transfer)
            transfer.wake_waiter(notify)
        self._wake_waiters()

    def end(self, error: Callable[[], BaseException]) -> None:
        """After fi_close: no completion will come any more; settle what is left."""
        source = self.source
        left = [*self.posted, *self.waiting]
        for transfer in self.posted:
            source.operations.pop(transfer.slot.address)
            source.slots.quarantine(transfer.slot)
            source.interest -= 1
            if transfer.state is ABANDONED:
                source.abandoned -= 1
        for transfer in self.waiting:
            source.slots.take_back(transfer.slot)
        self.posted.clear()
        self.waiting.clear()
        loop_is_closed = source.driver.closed()  # the loop was closed first: its futures cannot be woken any more
        for transfer in left:
            if loop_is_closed:
                transfer.notify = None
            self._finish(transfer, error())
        if not loop_is_closed:
            self._wake_waiters()

    def _finish(self, transfer: Transfer, error: BaseException) -> None:
        try:
            transfer.finish(error)
        except Exception as failure:  # a callback's; the operations behind it are others'
            self.source.driver.report("aiofabric: a completion's callback failed", failure)
