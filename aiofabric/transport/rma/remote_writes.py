"""Remote writes: events of peers' writes into local memory (``write(..., remote_data=)``; man pages: fi_rma, fi_cq).

The completion at the target names no local operation. It carries only a number: tcp even leaves an earlier transfer's
context in it. So the completion queue identifies the endpoint, and an endpoint that wants such events has a queue of
its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..._ffi import constants
from ...errors import FabricConnectionEndedError, QueueOverrunError
from ...features import require
from ...flags import Caps
from ..exclusions import lacking, refusal
from ..messages.receive import Receives

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ...cq.loops.drivers import Waiter
    from ...cq.queue import Entry
    from ...errors import FabricError
    from ..handle import EndpointHandle

__all__ = ["RemoteWrite", "RemoteWriteQueue", "RemoteWrites"]

_EVENT = constants.FI_REMOTE_WRITE | constants.FI_REMOTE_CQ_DATA


class RemoteWrite(NamedTuple):
    """A peer's write that carried data and has arrived in local memory.

    Attributes:
        data: the peer's ``remote_data``.
        length: bytes written; None if the provider does not report it.
        source: the writer: the address of the peer of a connected endpoint, or the `Peer` if an RDM endpoint learns it;
            otherwise None.
    """

    data: int
    length: int | None
    source: Any


class RemoteWriteQueue:
    """Remote writes of one endpoint that were not taken yet, at most ``limit`` of them."""

    def __init__(self, handle: EndpointHandle, limit: int) -> None:
        require(Caps.RMA, handle.info)
        if missing := lacking(handle.info, Caps.RMA, Caps.REMOTE_WRITE):
            raise refusal("remote_writes", missing)
        self.handle = handle
        self.source = handle.source
        self.limit = limit
        self.events: deque[Entry | int] = deque()  # an integer stands for that many lost events
        self.count = 0  # entries in `events`, without the integers
        self.waiters: deque[Waiter] = deque()
        self.ended: Callable[[], BaseException] | None = None
        handle.source.unmatched.peer_wrote = self.arrived

    def arrived(self, entry: Entry) -> None:
        """A peer's access to local memory was reported."""
        if entry[1] & _EVENT != _EVENT:
            return
        if self.count < self.limit:
            self.events.append(entry)
            self.count += 1
        elif isinstance(last := self.events[-1], int):
            self.events[-1] = last + 1
        else:
            self.events.append(1)
        self._wake()

    def _wake(self, error: FabricError | None = None) -> bool:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                self.source.woke()
                waiter.set_result(error)
                return True
        return False

    def wait_failed(self, error: Callable[[], FabricError]) -> int:
        """The queue cannot be waited for: raise the error in all tasks that wait for an event; return their number."""
        count = 0
        while self.waiters:
            count += self._wake(error())
        return count

    async def next(self) -> Entry:
        """The next event; see `RemoteWrites.remote_write`."""
        source = self.source
        if source.driver.checkpoint_if_cancelled is not None:
            await source.driver.checkpoint_if_cancelled()
            await source.yield_to_loop()
        elif self.events and source.must_yield:
            await source.yield_to_loop()
        if not self.events and self.ended is None:
            source.poll()
        while not self.events:
            if self.ended is not None:
                raise self.ended()
            await self._wait()
        event = self.events.popleft()
        if isinstance(event, int):
            detail = f"{event} remote writes came while {self.limit} waited to be taken; their data is lost"
            raise QueueOverrunError(constants.FI_EOVERRUN, "remote_write", detail=detail)
        self.count -= 1
        return event

    async def _wait(self) -> None:
        source = self.source
        waiter = source.driver.create_waiter()
        self.waiters.append(waiter)
        source.interest += 1
        try:
            source.prepare()
            failure = await waiter
        except BaseException:
            if waiter in self.waiters:
                self.waiters.remove(waiter)
            elif self.events and not source.driver.closed():
                self._wake()  # the task was woken and cancelled in one loop iteration: pass the event to the next task
            raise
        finally:
            source.interest -= 1
        if failure is not None:
            raise failure

    def end(self, error: Callable[[], BaseException]) -> None:
        """No events come any more. Earlier ones may still be taken, unless the endpoint was closed here."""
        self.ended = error
        if self.handle.closed:
            self.events.clear()
        while self.waiters and not self.source.driver.closed():
            self._wake()


class RemoteWrites(Receives):
    """Events of peers' writes. Mixed into endpoints; opened with ``remote_writes=``."""

    __slots__ = ()

    async def remote_write(self) -> RemoteWrite:
        """Wait for the next write of a peer that carried ``remote_data``; its bytes are then in local memory.

        Events come in the order in which the provider reports them. Cancelling loses none.

        Raises:
            TypeError: the endpoint was opened without ``remote_writes=``.
            QueueOverrunError: more events came than may wait; the text says how many were lost. The next call
                continues.
            FabricConnectionEndedError: the peer closed in order, and all earlier events were taken.
            FabricConnectionResetError: the connection broke, and all earlier events were taken.
            ClosedResourceError: the endpoint is closed.

        Man pages: fi_rma (fi_writedata), fi_cq (FI_REMOTE_WRITE).
        """
        handle = self._handle
        queue = handle.remote_writes
        if queue is None:
            raise TypeError(
                f"this {handle.what} does not report its peers' writes: open it with remote_writes=, how many may "
                "wait to be taken"
            )
        if not handle.thread_check.admits():
            handle.check_open()
            if handle.gone is None:
                raise handle.refuse("remote_write")
        entry = await queue.next()
        return RemoteWrite(entry[4], entry[2] or None, self._source_of(entry[6] if len(entry) > 6 else None))

    def remote_writes(self) -> AsyncIterator[RemoteWrite]:
        """All events until the peer closes in order: ``async for event in ep.remote_writes()``.

        See `remote_write`.
        """
        return _Each(self)


class _Each:
    """Iterator of `remote_writes`. An async generator would need a running loop to be closed."""

    def __init__(self, endpoint: RemoteWrites) -> None:
        self._endpoint = endpoint

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RemoteWrite:
        try:
            return await self._endpoint.remote_write()
        except FabricConnectionEndedError:
            raise StopAsyncIteration from None
