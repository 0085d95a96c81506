"""Intake: the items of all connections of one end, in the order in which the program gets them."""

from __future__ import annotations

import logging
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio
import anyio.lowlevel
from anyio import EndOfStream

from ...channel.signal import PollingSignal
from ...cq.loops.bursts import Burst
from ..statistics import LinkStatistics
from .connection import send_gathered
from .item import Item, Items
from .memory.lent_memory import LentMemory
from .metering import Counts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..protocol.hello import Hello
    from .incoming import Incoming, Rest

__all__ = ["Intake", "Scopes"]

_log = logging.getLogger("aiofabric.pipeline")


class Intake:
    """The queue of one end. ``producers``: how many must end before the stream ends; None: it never ends.

    ``check_open`` raises if the end is closed, or where it cannot be used: in another thread, for example.
    """

    def __init__(self, hello: Hello, producers: int | None, check_open: Callable[[], None]) -> None:
        self.hello = hello
        self.check_open = check_open
        self.thread = 0  # of the block, as soon as there is a connection
        self.memory = LentMemory(hello.window_bytes)
        self.queue: deque[Item | Rest] = deque()
        self.incoming: set[Incoming] = set()
        self.failure: Exception | None = None  # raised when the queue is empty
        self.received = self.acknowledged = self.redelivered = 0
        self._producers = producers
        self.ended = 0  # producers that have no more items
        self._ended: set[bytes] = set()  # their ids, if their number ends the stream
        self._draining: set[bytes] = set()  # producers that have no new items
        self.full: set[Incoming] = set()  # producers that wait for acknowledgements
        self._over = self._closed = False
        self._waiters: deque[Any] = deque()
        self._burst = Burst(check_open)

    @property
    def queued(self) -> int:
        return sum(1 if isinstance(entry, Item) else entry.left for entry in self.queue)

    def counts(self) -> Counts:
        """The numbers for `aiofabric.metrics`."""
        return Counts(len(self.incoming), self.memory.lent, self.received, self.acknowledged, self.redelivered)

    def links(self) -> tuple[LinkStatistics, ...]:
        """The numbers of each connection."""
        return tuple(
            LinkStatistics(each.id, str(each.connection.endpoint.peer_address), each.receipts.items_out)
            for each in self.incoming
        )

    # -- the program takes

    async def until_there_are_items(self) -> None:
        """Wait for items. Raises EndOfStream if the producers have no more, and ClosedResourceError."""
        if not self.has_next():
            await self.wait_for_items()

    def has_next(self) -> bool:
        """Whether the program gets an item at once: one is there, and the task need not yield to the loop before."""
        if get_ident() != self.thread:
            self.check_open()
        return bool(self.queue) and not self._closed and not self._burst.ended()

    async def wait_for_items(self) -> None:
        """Yield to the loop, or wait for items."""
        if self.queue and not self._closed:
            self.check_open()
            await anyio.lowlevel.checkpoint()
        while not self.queue or self._closed:
            await self._wait()

    def take_one(self) -> Item:
        """The next item. A small one that is delivered at most once is acknowledged here."""
        entry = self.queue[0]
        if isinstance(entry, Item):
            self.queue.popleft()
            entry._pulled()
            return entry
        item = entry.next_item()
        if not entry.incoming.at_least_once:
            item._acked = True
            self._took(entry, 1)
        if entry.at == len(entry.items):
            self.queue.popleft()
        return item

    def take_many(self, most: int | None) -> Items:
        """The next items of one frame. Acknowledged as by `take_one`; a large item comes alone, copied."""
        entry = self.queue[0]
        if isinstance(entry, Item):
            return self.take_one()._as_items()
        taken = entry.take(most)
        if not entry.incoming.at_least_once:
            taken._acked = True
            self._took(entry, len(taken))
        if not entry.left:
            self.queue.popleft()
        return taken

    def _took(self, entry: Rest, count: int) -> None:
        """Items that are delivered at most once were taken: they count as acknowledged."""
        self.acknowledged += count
        incoming = entry.incoming
        if incoming.taking is None:
            incoming.begin_taking(entry)
        if not entry.left:
            incoming.end_taking()

    async def are_there_items(self, when_full: bool) -> bool:
        """Wait for items; False if none come before an acknowledgement. Raises as the other does."""
        self.check_open()
        wanted = self._wants_acks if when_full else self._drains
        while not self.queue:
            if wanted():
                await anyio.lowlevel.checkpoint()
                break
            await self._wait(wanted)
        if self.queue:
            await self.until_there_are_items()
        return bool(self.queue)

    def _drains(self) -> bool:
        """Whether all producers have said that no new items come, and one of them waits for acknowledgements."""
        return (
            self._producers is not None and not self._over and len(self._draining) + len(self._ended) >= self._producers
        )

    def _wants_acks(self) -> bool:
        """Whether nothing comes before an acknowledgement: a producer waits for one from here, or all drain."""
        return any(each.receipts.items_out for each in self.full) or self._drains()

    async def _wait(self, enough: Callable[[], bool] | None = None) -> None:
        """Wait for a change. Raises if no items can come."""
        self.check_open()
        if self.failure is not None:
            raise self.failure
        if self._over:
            raise EndOfStream
        source: Any = next((each.connection.source for each in self.incoming), None)
        if source is not None and not source._others_woken:
            send_gathered(source.driver)
            source.poll()
            if self.queue or (enough is not None and enough()) or self._over:
                if source.must_yield:
                    await source.checkpoint()
                    source.loop_iterated()
                return
        signal: Any = anyio.Event() if source is None else PollingSignal(source)
        self._waiters.append(signal)
        try:
            await signal.wait()
        except BaseException:
            if signal in self._waiters:
                self._waiters.remove(signal)
            else:  # it was woken for items that another task must get now
                self._wake()
            raise
        self._burst.waited()

    def _wake(self) -> None:
        if self._waiters:
            self._waiters.popleft().set()

    def _wake_all(self) -> None:
        while self._waiters:
            self._waiters.popleft().set()

    # -- what connections bring

    def join(self, incoming: Incoming) -> Incoming:
        """A connection brings items from now on."""
        self.thread = get_ident()
        self.incoming.add(incoming)
        incoming.connection.start()
        return incoming

    def came(self, entry: Item | Rest) -> None:
        count = 1 if isinstance(entry, Item) else entry.left
        self.received += count
        self.redelivered += count * entry.redelivered
        self.queue.append(entry)
        if self._waiters:
            for _ in range(min(count, len(self._waiters))):
                self._wake()

    def producer_is_full(self, incoming: Incoming) -> None:
        self.full.add(incoming)
        self._wake_all()

    def producer_drains(self, producer: bytes) -> None:
        self._draining.add(producer)
        self._wake_all()

    def producer_ended(self, producer: bytes) -> None:
        self._draining.discard(producer)
        if producer in self._ended:
            return
        self.ended += 1
        if self._producers is None:  # it never ends, so the ids would be more and more
            return
        self._ended.add(producer)
        if len(self._ended) >= self._producers:
            self._over = True
            self._wake_all()

    def connection_ended(self, incoming: Incoming, error: BaseException) -> None:
        if not (incoming.finished or self._closed):
            _log.info("the producer at %s has left: %s", incoming.connection.endpoint.peer_address, error)
        self.incoming.discard(incoming)
        self.full.discard(incoming)
        self._draining.discard(incoming.id)  # another one may take its place

    # -- the end

    def fail(self, error: Exception) -> None:
        """No more items come: the program gets those that are here, and then the error."""
        self.failure = error
        self._over = True  # also for a task that polls now, and does not wait yet
        self._wake_all()

    async def finish(self) -> None:
        """Send the acknowledgements that are left, and close the connections in order."""
        self._closed = True
        async with anyio.create_task_group() as tasks:  # a producer that is stopped delays no other
            for incoming in list(self.incoming):
                incoming.send_acks()
                tasks.start_soon(incoming.connection.aclose)
        self._wake_all()

    def abort(self) -> None:
        """Close the connections now."""
        self._closed = True
        for incoming in list(self.incoming):
            incoming.close()
        self._wake_all()


ItemT = TypeVar("ItemT", bound=Item)


class Scopes(Generic[ItemT]):
    """The items of one loop: each step ends the scope of the item before."""

    def __init__(self, pull: Callable[[], Awaitable[ItemT]]) -> None:
        self._pull = pull
        self._item: ItemT | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ItemT:
        item, self._item = self._item, None
        if item is not None and not item.scope_ended:
            item.ack()
        try:
            self._item = await self._pull()
        except EndOfStream:
            raise StopAsyncIteration from None
        return self._item
