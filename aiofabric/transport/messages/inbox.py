"""Inbox: the messages of one endpoint that arrived and were not taken yet, and the tasks that wait for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..._core import LoanCore
from ..._ffi import constants
from ...errors import TruncatedMessageError
from ..interfaces import InboxBase, PoolStatistics
from .loans import give_back_later, warn_of_all_lent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...errors import FabricError
    from ..handle import EndpointHandle
    from ..interfaces import ReceivedBuffer

__all__ = ["RECEIVE_AT_SHARED", "Inbox", "PoolStatistics", "truncated"]


RECEIVE_AT_SHARED = "messages to this endpoint arrive at its SharedReceive: receive there"


def _ignore(_: memoryview) -> None:
    pass


def truncated(size: int, limit: int) -> TruncatedMessageError:
    """The error for a message of ``size`` bytes that does not fit the caller's buffer; the message is kept."""
    detail = f"The next message has {size} bytes, and the buffer {limit}"
    error = TruncatedMessageError(constants.FI_ETRUNC, "recv_into", detail=detail)
    error.cure = "The message is kept: receive it with recv(), or into a larger buffer"
    error.size, error.limit = size, limit
    return error


class Inbox(InboxBase):
    """Messages of up to ``size`` bytes that wait to be taken, at most ``count`` of them.

    The code that receives messages calls `deliver`.
    """

    __slots__ = ()
    one_message_each: ClassVar[bool] = True
    """Whether each message has its own buffer."""

    def __init__(self, handle: EndpointHandle, size: int, count: int) -> None:
        super().__init__(handle, handle.source, size, count)

    def message_refused(self) -> None:
        """Called when an error was raised in place of a message that cannot be taken."""

    # -- the caller's side

    def _too_long(self, size: int, limit: int) -> NoReturn:
        raise truncated(size, limit)

    async def _next_after(self, room: int | None, receiver: Any) -> Any:
        """`next`, if something must happen before the wait."""
        await self._before_waiting()
        if self.inbox:
            buffer = self.first(room)
            return buffer if receiver is None else self.unpack(receiver, buffer)
        if self.ended is not None:
            raise self.ended()
        return await self._enlist(room, receiver)

    async def _before_waiting(self) -> None:
        """Run the checkpoint or the loop iteration that must come before the wait, then poll if polling is allowed
        again.
        """
        source = self.source
        checkpoint = source.driver.checkpoint_if_cancelled
        if checkpoint is not None:
            # A trio await is always a checkpoint. Here, before the message is taken, it adds no latency,
            # because the peer
            # works meanwhile, and no message can be lost.
            await checkpoint()
        elif not (self.inbox or source.must_iterate):
            return
        await source.yield_to_loop()
        if not self.inbox and self.ended is None:
            source.poll()

    def _return_message(self, item: ReceivedBuffer | BaseException) -> None:
        """The receive was cancelled: give the message it was handed to the next receive."""
        # the end is not put back: every later receive raises it, too
        if self.ended is None or not isinstance(item, BaseException):
            self._requeue(item)

    def _requeue(self, item: ReceivedBuffer | BaseException) -> None:
        """Put back a message that was handed out and not taken: to the task that waits longest, or to its old place.

        Several messages may come back in one iteration, in the order in which they were handed out.
        """
        if self.waiting:
            self.hand_out(item)
        else:
            self.inbox.insert(self._returned, item)
            self._returned += 1

    def _all_lent(self) -> None:
        """A task begins to wait while all buffers are lent."""
        if self.one_message_each:
            warn_of_all_lent(self)

    # -- for adapters that want callbacks

    def set_sink(
        self,
        on_message: Callable[[memoryview], object] | None,
        on_end: Callable[[BaseException], object] | None,
    ) -> None:
        """Pass each message to ``on_message`` in the progress pass that read it, and the end to ``on_end``, once."""
        self.sink, self._on_end = on_message, on_end
        if on_message is None:
            return
        self._returned = 0
        while self.inbox and self.sink is not None:
            item = self.inbox.popleft()
            if not isinstance(item, BaseException):
                self.feed(item)
            else:
                self.finish(item)
        if self.ended is not None:
            self.finish(self.ended())

    def discard(self, error: Callable[[], BaseException]) -> None:
        """Drop the messages that arrived and those that still arrive; end every wait with ``error``."""
        while self.waiting:
            self._wake_first(error())
        if self.sink is not None:
            self.finish(error())
        self.set_sink(_ignore, None)

    def end_came(self) -> None:
        """The peer's end mark has arrived."""
        self.handle.end_came()

    def feed(self, buffer: ReceivedBuffer) -> None:
        assert self.sink is not None
        before, self._fed = self._fed, buffer
        try:
            self.sink(buffer.view)
        except BaseException as error:
            self._sink_failed(error)
        finally:
            kept, self._fed = self._fed is not buffer, before
            if not kept:
                self.recycle(buffer)

    def loan(self, start: int) -> LoanCore | None:
        """For a sink, while it gets a message: the message from ``start`` on stays where it is until the loan's end,
        read-only. None: three quarters of the buffers are lent, and the sink copies it.
        """
        if self._lent * 4 >= self.count * 3 or not self.one_message_each:
            return None
        loan = LoanCore(self, self._fed, start, True)
        self._fed = None
        self.was_lent()
        return loan

    def was_lent(self) -> None:
        """Called when one more buffer is lent."""

    def unused_later(self, buffer: ReceivedBuffer) -> None:
        """The memory of a loan is free: called by C, in any thread, and inside a garbage collection."""
        give_back_later(self, buffer)

    def _sink_failed(self, error: BaseException) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # as from any callback of the loop
            raise error
        self.source.driver.report("aiofabric: a message sink failed", error)

    def finish(self, error: BaseException) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            try:
                on_end(error)
            except BaseException as failure:
                self._sink_failed(failure)

    def end(self, error: Callable[[], BaseException]) -> None:
        """No message arrives any more: end every wait with ``error``.

        Messages that arrived before can still be taken, unless the endpoint was closed by its owner.
        """
        self.ended = error
        if self.handle.closed:
            self.inbox.clear()
            self._returned = 0
        while self.waiting and not self.source.driver.closed():
            self._wake_first(error())
        if self.sink is not None:
            self.finish(error())

    def wait_failed(self, error: Callable[[], FabricError]) -> int:
        """The queue cannot be waited for: end every wait with ``error``; return how many there were."""
        count = 0
        while self.waiting:
            count += self._wake_first(error())
        if self.sink is not None:
            self.finish(error())
            count += 1
        return count

    def without_memory(self) -> Inbox:
        """The object that replaces the inbox after the endpoint is closed."""
        return _ClosedInbox(self)

    def statistics(self) -> PoolStatistics:
        """See `PoolStatistics`."""
        filled = sum(not isinstance(item, BaseException) for item in self.inbox)
        exhausted = self.handle.exhausted
        return PoolStatistics(
            self.size, self.count, self.posted, filled, self._lent, self.messages, self.bytes, exhausted
        )


class _ClosedInbox(Inbox):
    """Replaces the inbox of a closed endpoint: its counts, without its memory.

    An endpoint and its parts refer to each other and stay until the garbage collector runs. The memory of a pool is
    freed with the last message in it that a caller still holds.
    """

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(inbox.handle, inbox.size, inbox.count)
        self.ended, self.messages, self.bytes = inbox.ended, inbox.messages, inbox.bytes

    def recycle(self, buffer: Any) -> None:
        """The memory is already freed."""
