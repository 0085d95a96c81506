"""Inbox: the messages of one endpoint that arrived and were not taken yet, and who waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..._ffi import constants
from ...errors import TruncatedMessageError
from ..interfaces import InboxBase, PoolStatistics
from .loans import warn_of_all_lent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..handle import EndpointHandle
    from ..interfaces import ReceivedBuffer

__all__ = ["RECEIVE_AT_SHARED", "Inbox", "PoolStatistics", "truncated"]


RECEIVE_AT_SHARED = "what is sent to this endpoint arrives at its SharedReceive: receive there"


def _ignore(_: memoryview) -> None:
    pass


def truncated(size: int, limit: int) -> TruncatedMessageError:
    """A message of ``size`` bytes that is kept, because it does not fit the ``limit`` bytes of the caller's buffer."""
    detail = f"The next message has {size} bytes, and the buffer {limit}"
    error = TruncatedMessageError(constants.FI_ETRUNC, "recv_into", detail=detail)
    error.cure = "The message is kept: receive it with recv(), or into a larger buffer"
    error.size, error.limit = size, limit
    return error


class Inbox(InboxBase):
    """Where messages of up to ``size`` bytes wait to be taken, ``count`` of them at most.

    Who receives them calls `deliver`.
    """

    __slots__ = ()
    one_message_each: ClassVar[bool] = True
    """Whether each message has a buffer to itself."""

    def __init__(self, handle: EndpointHandle, size: int, count: int) -> None:
        super().__init__(handle, handle.source, size, count)

    def message_refused(self) -> None:
        """A message that cannot be taken was told of instead: its error was raised."""

    # -- the caller's side

    def _too_long(self, size: int, limit: int) -> NoReturn:
        raise truncated(size, limit)

    async def _next_after(self, room: int | None, receiver: Any) -> Any:
        """`next`, where something comes before waiting."""
        await self._before_waiting()
        if self.inbox:
            buffer = self.first(room)
            return buffer if receiver is None else self.unpack(receiver, buffer)
        if self.ended is not None:
            raise self.ended()
        return await self._enlist(room, receiver)

    async def _before_waiting(self) -> None:
        """What is owed first: a checkpoint, an iteration of the loop, or a look that may be had again after one."""
        source = self.source
        checkpoint = source.driver.checkpoint_if_cancelled
        if checkpoint is not None:
            # A trio await is always a checkpoint. Taken before the message is, it costs no latency: the peer
            # works meanwhile; and nothing can be lost to it.
            await checkpoint()
        elif not (self.inbox or source.winded):
            return
        await source.breathe()
        if not self.inbox and self.ended is None:
            source.poll()

    def _give_back(self, item: ReceivedBuffer | BaseException) -> None:
        """The receive was cancelled: what it was given already is the next one's again."""
        if self.ended is None or not isinstance(item, BaseException):  # the end is told to everybody anyway
            self._put_back(item)

    def _put_back(self, item: ReceivedBuffer | BaseException) -> None:
        """Handed out, and not taken: to whoever waits the longest, or into its old place in the inbox.

        Several may come back in one iteration, in the order in which they were handed out.
        """
        if self.waiting:
            self.hand_out(item)
        else:
            self.inbox.insert(self._returned, item)
            self._returned += 1

    def _all_lent(self) -> None:
        """Somebody begins to wait while callers have every buffer."""
        if self.one_message_each:
            warn_of_all_lent(self)

    # -- for adapters that want callbacks

    def set_sink(
        self,
        on_message: Callable[[memoryview], object] | None,
        on_end: Callable[[BaseException], object] | None,
    ) -> None:
        """Hand each message to ``on_message`` from the turn that read it, and the end to ``on_end``, once."""
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
        """Throw away what has arrived and what still comes; end every wait with ``error``."""
        while self.waiting:
            self._answer_first(error())
        if self.sink is not None:
            self.finish(error())
        self.set_sink(_ignore, None)

    def end_came(self) -> None:
        """The peer's end mark has arrived."""
        self.handle.end_came()

    def feed(self, buffer: ReceivedBuffer) -> None:
        assert self.sink is not None
        try:
            self.sink(buffer.view)
        except BaseException as error:
            self.source.driver.report("aiofabric: a message sink failed", error)
        self.recycle(buffer)

    def finish(self, error: BaseException) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            try:
                on_end(error)
            except BaseException as failure:
                self.source.driver.report("aiofabric: a message sink failed", failure)

    def end(self, error: Callable[[], BaseException]) -> None:
        """Nothing will arrive any more, and nobody may wait for it.

        What arrived before stays to be taken, unless the endpoint was closed by its owner.
        """
        self.ended = error
        if self.handle.closed:
            self.inbox.clear()
            self._returned = 0
        while self.waiting and not self.source.driver.closed():
            self._answer_first(error())
        if self.sink is not None:
            self.finish(error())

    def without_memory(self) -> Inbox:
        """What takes the inbox's place once the endpoint is closed."""
        return _ClosedInbox(self)

    def statistics(self) -> PoolStatistics:
        """See `PoolStatistics`."""
        filled = sum(not isinstance(item, BaseException) for item in self.inbox)
        exhausted = self.handle.exhausted
        return PoolStatistics(
            self.size, self.count, self.posted, filled, self._lent, self.messages, self.bytes, exhausted
        )


class _ClosedInbox(Inbox):
    """In the place of an endpoint's inbox once it is closed: what it was, without its memory.

    The endpoint and what it consists of refer to each other and stay until the garbage collector runs. The memory of
    a pool goes with the last message in it that a caller still has.
    """

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(inbox.handle, inbox.size, inbox.count)
        self.ended, self.messages, self.bytes = inbox.ended, inbox.messages, inbox.bytes

    def recycle(self, buffer: Any) -> None:
        """There is no memory."""
