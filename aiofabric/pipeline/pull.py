"""Pull: the consumer's end of a pipeline."""

from __future__ import annotations

import logging
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.lowlevel
from anyio import EndOfStream

from ..channel.signal import PollingSignal
from ..remote_region import RemoteRegion
from .connection import RECV_SIZE, PipelineConnection
from .end import PipelineEnd, check_limits, new_id
from .item import Item, Items
from .lent_memory import LentMemory
from .protocol.frames import (
    END,
    ITEM,
    ITEM_COST,
    ITEMS,
    READ,
    ProtocolError,
    decode_item,
    decode_items,
    encode_ack,
    encode_signal,
)
from .protocol.hello import Hello, Role
from .protocol.receipts import Receipts
from .statistics import LinkStatistics, PullStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Unpack

    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import StreamKeywords
    from .places import Place, PlaceFolder, Places
    from .protocol.frames import LargeItem, SmallItems

__all__ = ["Incoming", "Pull"]

PART_ALIGNMENT: Final = 64
"""Parts that are read begin this many bytes apart, or at a multiple of it: arrays over them have aligned values."""

_log = logging.getLogger(__name__)


class Pull(PipelineEnd):
    """A consumer: gets items of every producer that is connected, in the order of each producer.

    Open in the block of ``async with``. The block's end sends the acknowledgements that are left. What was not
    acknowledged goes back to its producer.

    The stream ends when ``producers`` of them have said that they have no more items: then `pull` raises
    `anyio.EndOfStream`, and ``async for`` ends. A producer that dies has not said so; another one may take its place.

    Args:
        places: where producers listen; see `aiofabric.pipeline.places`.
        listen: where this consumer listens for producers: ``"host:port"``, ``(host, port)``, an `Address`.
        announce: a folder in which this listener can be found.
        producers: how many must end before the stream ends; None: it never ends.
        window, window_bytes: items that may be here and not acknowledged, from each producer. An item counts for its
            bytes and 64. One that is larger than ``window_bytes`` comes alone.
        max_item_size: bytes of the largest item.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        options: of the connections, such as ``heartbeat=``; see `EndpointOptions`.
    """

    def __init__(
        self,
        places: Places | None = None,
        *,
        listen: Place | None = None,
        announce: PlaceFolder | None = None,
        producers: int | None = 1,
        window: int = 1024,
        window_bytes: int = 64 << 20,
        max_item_size: int = 1 << 30,
        provider: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> None:
        if producers is not None:
            check_limits(producers=producers)
        check_limits(window=window, window_bytes=window_bytes, max_item_size=max_item_size)
        hello = Hello(Role.PULL, new_id(), RECV_SIZE, window, window_bytes, max_item_size)
        super().__init__(hello, places, listen, announce, {**options, "provider": provider})
        self.memory = LentMemory(window_bytes)
        self._producers = producers
        self._incoming: set[Incoming] = set()
        self._queue: deque[Item | _Rest] = deque()
        self._waiters: deque[Any] = deque()
        self._ended: set[bytes] = set()
        self._over = False
        self._received = self._acknowledged = self._redelivered = 0

    async def pull(self) -> Item:
        """The next item.

        Cancelling loses nothing: the next call gets the item.

        Raises:
            EndOfStream: the producers have no more items.
            ClosedResourceError: the block has ended.
        """
        await self._until_there_are_items()
        return self._take_one()

    async def pull_many(self, most: int | None = None) -> Items:
        """Small items that came together from one producer, at most ``most``: with one scope, and without an object for
        each. A larger item comes alone, copied; `pull` lends its memory instead.

        Cancelling, errors: as for `pull`.
        """
        if most is not None and most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        await self._until_there_are_items()
        entry = self._queue[0]
        if isinstance(entry, Item):
            return self._take_one()._as_items()
        items, numbers, place = entry.take(most)
        if not entry.left:
            self._queue.popleft()
        incoming = entry.incoming
        taken = Items(incoming, place, items, numbers, entry.redelivered)
        if not incoming.at_least_once:
            taken._ack_now()
        return taken

    def _take_one(self) -> Item:
        entry = self._queue[0]
        if isinstance(entry, Item):
            self._queue.popleft()
            return entry
        at = entry.at
        entry.at = at + 1
        if not entry.left:
            self._queue.popleft()
        incoming = entry.incoming
        item = Item(incoming, entry.place + at, (entry.items[at],), entry.numbers[at], entry.redelivered)
        if not incoming.at_least_once:
            item._ack_now()
        return item

    def __aiter__(self) -> AsyncIterator[Item]:
        """Each item, until the producers have no more. The body of the loop is the item's scope: the next step
        acknowledges it. After a ``break`` or an exception it is not acknowledged.
        """
        return _Scopes(self)

    def statistics(self) -> PullStatistics:
        """The numbers of this moment."""
        return PullStatistics(
            received=self._received,
            acknowledged=self._acknowledged,
            redelivered=self._redelivered,
            queued=sum(1 if isinstance(entry, Item) else entry.left for entry in self._queue),
            lent_bytes=self.memory.lent,
            ended=len(self._ended),
            producers=tuple(
                LinkStatistics(each.id, str(each.connection.endpoint.peer_address), each.receipts.items_out)
                for each in self._incoming
            ),
        )

    # -- waiting

    async def _until_there_are_items(self) -> None:
        if get_ident() != self._thread:
            self._check_open()
        if self._queue and not self._closed and self._burst.ended():
            await anyio.lowlevel.checkpoint()
        while not self._queue or self._closed:
            await self._wait()

    async def _wait(self) -> None:
        """Wait until items are there, or raise."""
        self._check_open()
        if self._over:
            raise EndOfStream
        source: Any = next((each.connection.source for each in self._incoming), None)
        if source is not None and not source._others_woken:
            source.poll()
            if self._queue or self._over:
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

    def _joined(self, endpoint: MessageEndpoint, theirs: Hello) -> Incoming:
        incoming = Incoming(self, endpoint, theirs)
        self._incoming.add(incoming)
        incoming.connection.start()
        return incoming

    def _came(self, entry: Item | _Rest) -> None:
        count = 1 if isinstance(entry, Item) else entry.left
        self._received += count
        self._redelivered += count * entry.redelivered
        self._queue.append(entry)
        for _ in range(min(count, len(self._waiters))):
            self._wake()

    def _was_acknowledged(self, count: int) -> None:
        self._acknowledged += count

    def _producer_ended(self, incoming: Incoming) -> None:
        self._ended.add(incoming.id)
        if self._producers is not None and len(self._ended) >= self._producers:
            self._over = True
            self._wake_all()

    async def _finish(self) -> None:
        self._closed = True
        async with anyio.create_task_group() as tasks:  # a producer that is stopped delays no other
            for incoming in list(self._incoming):
                incoming.send_acks()
                tasks.start_soon(incoming.connection.aclose)
        self._wake_all()

    def _abort(self) -> None:
        for incoming in list(self._incoming):
            incoming.close()
        self._wake_all()


class Incoming:
    """A producer, as a consumer sees it."""

    def __init__(self, owner: Pull, endpoint: MessageEndpoint, hello: Hello) -> None:
        self.owner = owner
        self.id = hello.id
        self.memory = owner.memory
        self.at_least_once = hello.at_least_once
        self.receipts = Receipts(owner._hello)
        self.connection = PipelineConnection(endpoint, self._arrived, self._connection_ended)
        self.connection.gathered = self.send_acks
        self._pending: deque[_Pending] = deque()  # in order: a large item that is being read, and what follows it
        self._to_read: deque[tuple[_Pending, int, LargeItem, list[Any]]] = deque()
        self._woken = anyio.Event()
        self._finished = False

    async def wait_end(self) -> bool:
        """Read large items, several at a time, until the connection ends."""
        async with anyio.create_task_group() as tasks:
            while not self.connection.ended:
                while self._to_read:
                    tasks.start_soon(self._read, *self._to_read.popleft())
                await self._woken.wait()
                self._woken = anyio.Event()
        return self._finished

    def close(self) -> None:
        self.connection.end(anyio.ClosedResourceError("this consumer was closed"))

    # -- frames

    def _arrived(self, kind: int, frame: memoryview) -> None:
        if kind == ITEMS:
            self._small(decode_items(frame))
        elif kind == ITEM:
            self._large(decode_item(frame))
        elif kind == END:
            self._finished = True
            self.owner._producer_ended(self)
        else:
            raise ProtocolError(f"a producer does not send frames of the kind {kind}")

    def _small(self, small: SmallItems) -> None:
        items, most = small.items, self.owner._hello.max_item_size
        if most < RECV_SIZE and max(map(len, items)) > most:
            raise ProtocolError(f"an item is larger than {most} bytes, the max_item_size of this consumer")
        place = self.receipts.arrived(len(items), ITEM_COST * len(items) + sum(map(len, items)))
        self._ready(_Rest(self, place, items, small.numbers, small.redelivered))

    def _large(self, large: LargeItem) -> None:
        place = self.receipts.arrived(1, ITEM_COST + large.size)
        if any(isinstance(part, tuple) for part in large.parts):
            parts = [part if isinstance(part, tuple) else bytes(part) for part in large.parts]
            pending = _Pending()
            self._pending.append(pending)
            self._to_read.append((pending, place, large._replace(parts=[]), parts))
            self._woken.set()
        else:
            parts = [bytes(part) for part in large.parts]  # type: ignore[arg-type]  # none is a tuple
            self._ready(Item(self, place, parts, large.number, large.redelivered, large.header))

    def _ready(self, entry: Item | _Rest) -> None:
        if self._pending:
            self._pending.append(_Pending(entry))
        else:
            self.owner._came(entry)

    # -- large items

    async def _read(self, pending: _Pending, place: int, large: LargeItem, parts: list[Any]) -> None:
        """Read a large item out of the producer's memory."""
        size = sum(_aligned(part[0]) for part in parts if isinstance(part, tuple))
        try:
            memory = self.memory.take(size)
        except MemoryError as error:
            self.connection.end(error)
            return
        whole, at = memoryview(memory), 0
        views: list[Any] = []
        try:
            for part in parts:
                if isinstance(part, tuple):
                    end = at + part[0]
                    views.append(whole[at:end].toreadonly())
                    await self._read_part(whole[at:end], part[1])
                    at = _aligned(end)
                else:
                    views.append(part)
        except (OSError, ValueError, anyio.ClosedResourceError) as error:
            self.memory.lent -= len(memory)  # the provider may still write there, so it is not used again
            self.connection.end(ConnectionAbortedError(f"an item of {size} bytes could not be read: {error}"))
            return
        whole.release()
        item = Item(self, place, views, large.number, large.redelivered, large.header)
        item._lend(memory)
        self.connection.send(encode_signal(READ, place))
        pending.entry = item
        while self._pending and (entry := self._pending[0].entry) is not None:
            self._pending.popleft()
            if not self.connection.ended:
                self.owner._came(entry)

    async def _read_part(self, buffer: memoryview, description: bytes) -> None:
        remote = RemoteRegion.unpack(description)
        if remote.length != len(buffer):
            raise ValueError(f"the producer exposes {remote.length} bytes, and announced {len(buffer)}")
        endpoint = self.connection.endpoint
        most = endpoint.info.ep_attr.max_msg_size
        for start in range(0, len(buffer), most):
            part = buffer[start : start + most]
            await endpoint.read_into(part, remote[start : start + len(part)])

    # -- acknowledgements

    def ack(self, place: int, cost: int, items: int = 1) -> None:
        """Acknowledge items. They are sent together when this iteration of the loop ends, or when many wait."""
        if get_ident() != self.owner._thread:
            self.owner._check_open()
        receipts = self.receipts
        receipts.ack(place, cost, items)
        self.owner._was_acknowledged(items)
        if receipts.due:
            self.send_acks()
        else:
            self.connection.gather()

    def send_acks(self) -> None:
        if self.receipts.unsent:
            self.connection.send(encode_ack(self.receipts.take()))

    # -- the end

    def _connection_ended(self, error: BaseException) -> None:
        owner = self.owner
        if not (self._finished or owner._closed):
            _log.info("the producer at %s has left: %s", self.connection.endpoint.peer_address, error)
        owner._incoming.discard(self)
        self._woken.set()


def _aligned(size: int) -> int:
    """Where the next part of an item begins in memory."""
    return -(-size // PART_ALIGNMENT) * PART_ALIGNMENT


class _Scopes:
    """The items of one loop: each step ends the scope of the item before."""

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self._item: Item | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        item, self._item = self._item, None
        if item is not None and not item.scope_ended:
            item.ack()
        try:
            self._item = await self._pull.pull()
        except EndOfStream:
            raise StopAsyncIteration from None
        return self._item


class _Rest:
    """Small items of one frame, of which some may have been pulled."""

    __slots__ = ("at", "incoming", "items", "numbers", "place", "redelivered")

    def __init__(
        self, incoming: Incoming, place: int, items: list[bytes], numbers: Sequence[int], redelivered: bool
    ) -> None:
        self.incoming = incoming
        self.place = place  # of the first one
        self.items = items
        self.numbers = numbers
        self.redelivered = redelivered
        self.at = 0  # of the next one

    @property
    def left(self) -> int:
        return len(self.items) - self.at

    def take(self, most: int | None) -> tuple[Sequence[bytes], Sequence[int], int]:
        """The next items, their numbers, and the place of the first."""
        start = self.at
        if not start and (most is None or most >= len(self.items)):
            self.at = len(self.items)
            return self.items, self.numbers, self.place
        self.at = end = len(self.items) if most is None else min(start + most, len(self.items))
        return self.items[start:end], self.numbers[start:end], self.place + start


class _Pending:
    """Items that have arrived after a large item; ``entry`` is None while that item is being read."""

    __slots__ = ("entry",)

    def __init__(self, entry: Item | _Rest | None = None) -> None:
        self.entry = entry
