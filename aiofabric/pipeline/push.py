"""Push: the producer's end of a pipeline."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from inspect import iscoroutinefunction
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import anyio.lowlevel

from ..arguments import check_type
from .consumer import Consumer, close_regions
from .protocol.frames import ITEM_COST, PART_ALIGNMENT
from .protocol.groups import Large, cost_of
from .protocol.hello import Hello, Role
from .protocol.sharing import Sharing
from .runtime.connection import INLINE, RECV_SIZE, send_gathered, sized_for
from .runtime.end import PipelineEnd, check_limits, new_id
from .runtime.exposing import SMALL, header_of, parts_of
from .runtime.memory.item_pool import ItemPool
from .runtime.metering import Counts
from .statistics import LinkStatistics, PushStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Unpack

    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import StreamKeywords
    from .places import Place, PlaceFolder, Places
    from .protocol.sharing import Outgoing

__all__ = ["Push"]

Delivery = Literal["at_least_once", "at_most_once"]

_FULL_AFTER: Final = 0.05
"""Seconds that an item waits for room before the consumers are told."""

_log = logging.getLogger(__name__)


class Push(PipelineEnd):
    """A producer: its items are shared out among the consumers that are connected, by the credits that they grant.

    Open in the block of ``async with``. The block's end waits until every item is acknowledged, and tells the consumers
    that this producer has no more. After an exception everything is closed at once. Entering the block does not wait;
    `push`, `drain` and the block's end do, without a time limit: put ``with anyio.fail_after(5):`` around the call, or
    around the whole ``async with``.

    ``delivery``:

    * ``"at_least_once"``: this producer keeps an item until a consumer has acknowledged it. What a consumer had not
      acknowledged when its connection ended goes to another, marked as redelivered.
    * ``"at_most_once"``: what a consumer that has died was sent is lost, and counted in `statistics`.

    In both, items that this process has not delivered end with it.

    If the memory of a large item cannot be registered for the consumers, this producer closes at once, and its block
    raises the `FabricError`.

    Args:
        places: where consumers listen; see `aiofabric.pipeline.places`.
        listen: where this producer listens for consumers: ``"host:port"``, ``(host, port)``, an `Address`.
        announce: a folder in which this listener can be found.
        delivery: see above.
        max_unacknowledged, max_unacknowledged_bytes: what this producer keeps at most; `push` waits above that. An item
            counts for its bytes and 64. One that is larger than the limit goes alone.
        acknowledged: a plain function, called with the number of each item that a consumer has acknowledged (at most
            once: taken). A process in the middle of a pipeline acknowledges there what it made the item from. If it
            raises, this producer closes at once, and its block raises that exception.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        options: of the connections, such as ``heartbeat=``; see `EndpointOptions`.
    """

    def __init__(
        self,
        places: Places | None = None,
        *,
        listen: Place | None = None,
        announce: PlaceFolder | None = None,
        delivery: Delivery = "at_least_once",
        max_unacknowledged: int = 65536,
        max_unacknowledged_bytes: int = 256 << 20,
        acknowledged: Callable[[int], object] | None = None,
        provider: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> None:
        if delivery not in ("at_least_once", "at_most_once"):
            raise ValueError(f"delivery must be 'at_least_once' or 'at_most_once', not {delivery!r}")
        check_limits(max_unacknowledged=max_unacknowledged, max_unacknowledged_bytes=max_unacknowledged_bytes)
        if acknowledged is not None and not _is_plain(acknowledged):
            raise TypeError(f"acknowledged must be a plain function of the item's number, not {acknowledged!r:.100}")
        at_least_once = delivery == "at_least_once"
        hello = Hello(Role.PUSH, new_id(), RECV_SIZE, at_least_once=at_least_once)
        super().__init__(hello, places, listen, announce, {**options, "provider": provider})
        self._sharing = sharing = Sharing(
            at_least_once=at_least_once, most=max_unacknowledged, most_bytes=max_unacknowledged_bytes
        )
        sharing.room, sharing.idle, sharing.forget = self._room_came, self._all_acknowledged, close_regions
        if acknowledged is not None:
            sharing.each_acked = self._acked
        self._acknowledged = acknowledged
        self._pool = ItemPool(max_unacknowledged_bytes, self._check_open)
        self._consumers: dict[Outgoing, Consumer] = {}
        self._turn = anyio.Lock()
        self._waiting = 0
        self._draining = False
        self._room: anyio.Event | None = None
        self._idle: list[anyio.Event] = []
        self._cancel_full: Callable[[], None] | None = None

    @property
    def pool(self) -> ItemPool:
        """Memory for large items, which is registered once: ``memory = push.pool.take(size)``."""
        return self._pool

    async def push(self, data: Any, *, header: bytes = b"") -> int:
        """Push one item: any buffer that is contiguous in C's order, or a list of buffers, which stay apart.

        Returns the item's number, counted from 0, when the item was sent to a consumer, or waits in line to leave with
        others of this iteration of the loop. Waits while no consumer has room, or this producer keeps as much as it
        may. It does not mean that a consumer has it: see `drain`.

        Up to 192 KiB the item is copied, unless its parts are ``bytes`` or lie in `pool`. A larger one leaves from this
        memory in a message, or the consumer reads it there (RMA): do not change it until `drain` has returned, or, at
        most once, before the consumer has it.

        Cancelling: an item that still waits is not pushed.

        Raises:
            TypeError: not a buffer.
            ValueError: a header of more than 1,024 bytes, no part, or more than 256 parts. Also: the item is larger
                than every consumer's ``max_item_size``.
            ClosedResourceError: the block has ended.
            WrongThreadError: called from another thread than the one that entered the block.
            WrongLoopError: the event loop of the block has ended.
            ForkedError: called in a forked child.
        """
        if self._burst.ended():
            self._check_open()
            assert self._driver is not None
            send_gathered(self._driver)  # trio may continue before the iteration ends
            await anyio.lowlevel.checkpoint()  # before the item is pushed: a cancelled call has pushed nothing
        if type(data) is bytes and type(header) is bytes and not header and (size := len(data)) <= INLINE:
            item: bytes | Large = data if size <= SMALL else Large(b"", (data,), size, not size % PART_ALIGNMENT)
            cost = ITEM_COST + size
        else:
            item = _item(data, header, self._pool)
            cost = cost_of(item)
        if not (self._waiting or self._closed) and get_ident() == self._thread:
            number = self._sharing.push(item, cost)
            if number >= 0:
                return number
        self._check_open()
        with self._counted():
            async with self._turn:
                self._check_open()  # the block may have ended meanwhile
                while (number := self._sharing.push(item, cost)) < 0:
                    await self._wait_for_room(cost)
        return number

    async def push_many(self, items: Sequence[Any]) -> None:
        """Push a list of items in order, in as few frames as possible. Waits as `push` does, in the middle if it must.

        Cancelling: those that were not sent yet are not pushed; `statistics().pushed` tells how many were.

        Raises: like `push`.
        """
        self._check_open()
        check_type("items", items, list, tuple)
        ready = [item if type(item) is bytes and len(item) <= SMALL else _item(item, b"", self._pool) for item in items]
        at = 0
        with self._counted():
            async with self._turn:
                self._check_open()  # the block may have ended meanwhile
                while at < len(ready):
                    sent = self._push_first(ready[at:] if at else ready)
                    at += sent
                    if not sent:
                        await self._wait_for_room(cost_of(ready[at]))

    def _push_first(self, items: list[Any]) -> int:
        """Push as many of the first items as one consumer takes now; returns how many."""
        first = items[0]
        if type(first) is Large:
            return int(self._sharing.push(first, cost_of(first)) >= 0)
        small = items[: min(len(items), 8192)]
        for at, item in enumerate(small):
            if type(item) is Large:
                small = small[:at]
                break
        return self._sharing.push_some(small)

    def announce_end(self) -> None:
        """Tell the consumers that no new items come, as the end of the block does. A consumer that holds items back, to
        handle several together, acknowledges them then; see `Pull.pull_or_none`. An item that is pushed nevertheless
        is delivered.

        Raises:
            ClosedResourceError: the block has ended.
        """
        self._check_open()
        if not self._draining:
            self._draining = True
            for consumer in self._consumers.values():
                consumer.announce_end()

    async def drain(self) -> None:
        """Wait until every item that was pushed is acknowledged (at most once: taken, or lost). A consumer that holds
        items back, to handle several together, is told after 50 ms; see `Pull.pull_or_none`.

        Raises:
            ClosedResourceError: the block has ended.
        """
        self._check_open()
        while self._sharing.kept:
            self._check_open()
            event = anyio.Event()
            self._idle.append(event)
            self._announce_full_later()
            try:
                await event.wait()
            finally:
                if event in self._idle:  # cancelled
                    self._idle.remove(event)
        await anyio.lowlevel.checkpoint()

    def statistics(self) -> PushStatistics:
        """The numbers of this moment."""
        sharing = self._sharing
        return PushStatistics(
            pushed=sharing.pushed,
            acknowledged=sharing.acknowledged,
            redelivered=sharing.redelivered,
            lost=sharing.lost,
            not_acknowledged=sharing.kept,
            bytes_kept=sharing.kept_bytes,
            pool_bytes=self._pool.bytes_held,
            oldest_seconds=sharing.age_of_oldest(monotonic()),
            waiting=self._waiting,
            consumers=tuple(
                LinkStatistics(each.id, str(consumer.connection.endpoint.peer_address), each.items_out)
                for each, consumer in self._consumers.items()
            ),
        )

    def counts(self) -> Counts:
        """The numbers for `aiofabric.metrics`."""
        sharing = self._sharing
        return Counts(
            peers=len(self._consumers),
            bytes=sharing.kept_bytes,
            items=sharing.pushed,
            acknowledged=sharing.acknowledged,
            redelivered=sharing.redelivered,
            lost=sharing.lost,
        )

    # -- waiting

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _wait_for_room(self, cost: int) -> None:
        self._check_open()
        consumers = self._sharing.consumers
        if consumers and cost > (most := max(each.most_cost for each in consumers)):
            raise ValueError(
                f"no consumer takes an item of {cost - ITEM_COST} bytes: the most is {most - ITEM_COST}, the "
                "max_item_size of Pull"
            )
        room = self._room = anyio.Event()
        self._announce_full_later()
        try:
            await room.wait()
        finally:
            if self._room is room:  # cancelled
                self._room = None

    def _announce_full_later(self) -> None:
        """A consumer that holds items back, to handle several together, acknowledges them if a task of this producer
        has waited for a while: `Pull.pull_or_none`.
        """
        if self._cancel_full is None:
            assert self._driver is not None
            self._cancel_full = self._driver.call_later(_FULL_AFTER, self._announce_full)

    def _announce_full(self) -> None:
        self._cancel_full = None
        if self._waits():
            for consumer in list(self._consumers.values()):
                consumer.announce_full()

    def _waits(self) -> bool:
        """Whether a task waits for acknowledgements."""
        return self._room is not None or bool(self._idle)

    def _stop_announcing(self) -> None:
        cancel, self._cancel_full = self._cancel_full, None
        if cancel is not None:
            cancel()

    def _room_came(self) -> None:
        """Something was acknowledged, or a consumer has come or gone."""
        room, self._room = self._room, None
        if room is not None:
            room.set()
        self._stop_announcing()
        if self._idle and self._sharing.kept:
            self._announce_full_later()

    def _acked(self, number: int) -> None:
        assert self._acknowledged is not None
        if self._failure is None:
            try:
                self._acknowledged(number)
            except Exception as error:  # it would end this connection only, and the item would be sent again
                self._fail(error)

    def _all_acknowledged(self) -> None:
        idle, self._idle = self._idle, []
        for event in idle:
            event.set()
        if not self._waits():
            self._stop_announcing()

    # -- connections

    def _joined(self, endpoint: MessageEndpoint, theirs: Hello) -> Consumer:
        consumer = Consumer(endpoint, sized_for(endpoint, theirs), self._sharing, self._pool, self._left, self._fail)
        self._consumers[consumer.outgoing] = consumer
        consumer.connection.iteration_ended = self._burst.waited
        consumer.start()
        if self._draining:
            consumer.announce_end()
        return consumer

    def _left(self, consumer: Consumer, error: BaseException) -> None:
        if not self._closed:
            _log.info("the consumer at %s has left: %s", consumer.connection.endpoint.peer_address, error)
        self._consumers.pop(consumer.outgoing, None)

    async def _finish(self) -> None:
        self.announce_end()
        await self.drain()
        self._closed = True
        async with anyio.create_task_group() as tasks:  # a consumer that is stopped delays no other
            for consumer in list(self._consumers.values()):
                tasks.start_soon(consumer.leave)

    def _abort(self) -> None:
        for consumer in list(self._consumers.values()):
            consumer.close()
        self._room_came()
        self._pool.close()
        self._all_acknowledged()  # tasks that wait in `drain` are told that this producer is closed
        self._stop_announcing()


def _is_plain(function: Any) -> bool:
    return callable(function) and not iscoroutinefunction(function)


def _item(data: Any, header: bytes, pool: ItemPool) -> bytes | Large:
    """An item that a program pushes, checked; copied where it may be. Memory of the pool does not change."""
    header = header_of(header)
    parts = parts_of(data)
    size = len(header) + sum(map(len, parts))
    if size > INLINE:
        return Large(header, parts, size)
    parts = [part if type(part) is bytes or (len(part) > SMALL and pool.holds(part)) else bytes(part) for part in parts]
    is_plain = len(parts) == 1 and not header
    if is_plain and size <= SMALL:
        return bytes(parts[0])
    return Large(header, parts, size, is_plain and not size % PART_ALIGNMENT)
