"""Incoming: one connection of an end that gets items: reads large ones, and acknowledges.

Items stay in order: what arrives behind a large item waits until that one was read.
"""

from __future__ import annotations

import warnings
from collections import deque
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from ..protocol.frames import (
    DRAINING,
    END,
    FULL,
    ITEM,
    ITEM_COST,
    ITEMS,
    READ,
    ROW,
    ProtocolError,
    aligned,
    decode_item,
    decode_items,
    decode_one_part,
    decode_row,
    encode_ack,
    encode_signal,
)
from ..protocol.receipts import Receipts
from .connection import PipelineConnection
from .item import Item, Items
from .large_read import LargeRead, Pending
from .memory.lent_memory import SharedLoan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...transport.connected.endpoint import MessageEndpoint
    from ..protocol.frames import LargeItem, SmallItems
    from ..protocol.hello import Hello
    from .item import Scope
    from .memory.lent_memory import LentMemory

__all__ = ["Incoming", "Owner", "Rest"]

LENT_FROM: Final = 1 << 14
"""Bytes from which an item is in lent memory. Fresh memory costs page faults: 64 KiB over shm took 55 us, not 22."""

ACKS_WAIT_FROM: Final = 1 << 17
"""Bytes of items in one iteration of the loop, while which acknowledgements wait: one took 12 us, as long as an item of
64 KiB. A producer of smaller items waits for them sooner."""


class Owner(Protocol):
    """The queue for the items of all connections: see `Intake`."""

    memory: LentMemory
    hello: Hello
    full: set[Incoming]
    thread: int  # of the block
    acknowledged: int
    check_open: Callable[[], None]  # raises in another thread, too

    def came(self, entry: Item | Rest) -> None: ...
    def producer_is_full(self, incoming: Incoming) -> None: ...
    def producer_drains(self, producer: bytes) -> None: ...
    def producer_ended(self, producer: bytes) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def connection_ended(self, incoming: Incoming, error: BaseException) -> None: ...


class Incoming:
    """A producer, as a consumer sees it."""

    def __init__(self, owner: Owner, endpoint: MessageEndpoint, hello: Hello) -> None:
        self.owner = owner
        self.id = hello.id
        self.memory = owner.memory
        self.at_least_once = hello.at_least_once
        self.receipts = Receipts(owner.hello)
        self.connection = PipelineConnection(endpoint, self._arrived, self._connection_ended, self._notes)
        self.connection.gathered = self._iteration_ended
        self._seen = 0  # bytes of the items that had come when the last iteration ended
        self.taking: Rest | None = None  # its items are delivered at most once, and some are to be acknowledged
        self.lent: dict[int, tuple[float, int]] = {}  # by place: large items that were pulled, since when, and bytes
        self._read: list[int] = []  # places of large items that were read, of which the producer was not told
        self._pending: deque[Pending] = deque()  # in order: a large item that is being read, and what follows it
        self._over = anyio.Event()
        self.finished = False

    async def wait_end(self) -> bool:
        await self._over.wait()
        return self.finished

    def close(self) -> None:
        self.connection.end(anyio.ClosedResourceError("this consumer was closed"))

    def _notes(self) -> Iterator[str]:
        yield f"a producer; {self.receipts.items_out} of its items are here and not acknowledged"
        if lent := list(self.lent.values()):
            seconds, size = monotonic() - min(since for since, _ in lent), sum(size for _, size in lent)
            yield f"{len(lent)} large items are in use: {size} bytes, the oldest for {seconds:.1f} s"

    # -- frames

    def _arrived(self, kind: int, frame: memoryview) -> None:
        if kind == ITEMS:
            self.owner.full.discard(self)
            self._small(decode_items(frame))
        elif kind == ITEM:
            self.owner.full.discard(self)
            one = decode_one_part(frame)
            if one is None:
                self._large(decode_item(frame))
            else:
                self._one_part(frame, *one)
        elif kind == ROW:
            self.owner.full.discard(self)
            self._row(frame, *decode_row(frame))
        elif kind == FULL:
            if self.receipts.items_out:
                self.owner.producer_is_full(self)
        elif kind == DRAINING:
            self.owner.producer_drains(self.id)
        elif kind == END:
            self.finished = True
            self.owner.producer_ended(self.id)
        else:
            self.other_frame(kind, frame)

    def other_frame(self, kind: int, frame: memoryview) -> None:
        """A frame that producers do not send; subclasses know more kinds."""
        raise ProtocolError(f"a producer does not send frames of the kind {kind}")

    def item_of(
        self, place: int, cost: int, parts: Sequence[Any], number: int, redelivered: bool, header: bytes
    ) -> Item:
        """The item that the program gets."""
        return Item(self, place, cost, parts, number, redelivered, header)

    def all_ready(self) -> None:
        """Every large item that came was read."""

    def check_header(self, header: bytes) -> None:
        """Raise `ProtocolError` unless the header is one of this kind of producers."""

    def _small(self, small: SmallItems) -> None:
        items = small.items
        sizes = [*map(len, items)]
        place = self.receipts.arrived(len(items), ITEM_COST * len(items) + sum(sizes), max(sizes))
        self.ready(Rest(self, place, items, small.numbers, small.redelivered))

    def _one_part(self, frame: memoryview, header: bytes, start: int, number: int, redelivered: bool) -> None:
        """An item of one part, which is in the frame. The receive is lent to the program if the item is large."""
        self.check_header(header)
        size = len(frame) - start
        whole = len(header) + size
        cost = ITEM_COST + whole
        place = self.receipts.arrived(1, cost, whole)
        loan = self.connection.loan(start) if size >= LENT_FROM else None
        if loan is not None:
            view = loan.view
            self.memory.count(size)
            item = self.item_of(place, cost, (view,), number, redelivered, header)
            item._lend(loan)
            self.ready(item)
        elif size >= LENT_FROM:
            self._copy(place, cost, [frame[start:]], number, redelivered, header)
        else:
            self.ready(self.item_of(place, cost, (bytes(frame[start:]),), number, redelivered, header))

    def _row(self, frame: memoryview, start: int, sizes: Sequence[int], numbers: Sequence[int]) -> None:
        """Items of one part each, in one frame. Its receive is lent to the program if one of them is large."""
        self.check_header(b"")
        place = self.receipts.arrived(len(sizes), ITEM_COST * len(sizes) + sum(sizes), max(sizes))
        lent = sum([size >= LENT_FROM for size in sizes])
        loan = self.connection.loan(start) if lent else None
        shared, data = (SharedLoan(loan, lent), loan.view) if loan is not None else (None, frame[start:])
        at = 0
        for each, (size, number) in enumerate(zip(sizes, numbers, strict=True), place):
            part = data[at : at + size]
            at += size
            if size < LENT_FROM:
                self.ready(self.item_of(each, ITEM_COST + size, (bytes(part),), number, False, b""))
            elif shared is None:
                self._copy(each, ITEM_COST + size, [part], number, False, b"")
            else:
                self.memory.count(size)
                item = self.item_of(each, ITEM_COST + size, (part,), number, False, b"")
                item._lend(shared)
                self.ready(item)

    def _large(self, large: LargeItem) -> None:
        self.check_header(large.header)
        header, parts, number, redelivered, size = large
        cost = ITEM_COST + size
        place = self.receipts.arrived(1, cost, size)
        if any(isinstance(part, tuple) for part in parts):
            copied = [part if isinstance(part, tuple) else bytes(part) for part in parts]
            pending = Pending()
            self._pending.append(pending)
            LargeRead(self, pending, place, large._replace(parts=[]), copied)
        elif size < LENT_FROM:
            copied = [bytes(part) for part in parts]  # type: ignore[arg-type]  # none is a tuple
            self.ready(self.item_of(place, cost, copied, number, redelivered, header))
        elif (loan := self.connection.loan(0)) is not None:
            views = decode_item(loan.view).parts
            self.memory.count(sum(map(len, views)))
            item = self.item_of(place, cost, views, number, redelivered, header)
            item._lend(loan)
            self.ready(item)
        else:
            self._copy(place, cost, parts, number, redelivered, header)

    def _copy(self, place: int, cost: int, parts: Sequence[Any], number: int, redelivered: bool, header: bytes) -> None:
        """An item that came in a message, copied to memory that is lent until its scope ends."""
        try:
            memory = self.memory.take(sum([aligned(len(part)) for part in parts]))
        except MemoryError as error:
            self.connection.end(error)
            return
        views: list[memoryview] = []
        at = 0
        whole = memoryview(memory)
        for part in parts:
            view = whole[at : at + len(part)]
            view[:] = part
            views.append(view.toreadonly())
            at += aligned(len(part))
        item = self.item_of(place, cost, views, number, redelivered, header)
        item._lend(memory)
        self.ready(item)

    def ready(self, entry: Item | Rest) -> None:
        """Items are there: the program gets them after the large ones that came before and are still being read."""
        if self._pending:
            self._pending.append(Pending(entry))
        else:
            self.owner.came(entry)

    def was_read(self, pending: Pending, item: Item, place: int) -> None:
        """A large item is there: the program gets it, after those that came before, and what waits behind it. The
        producer is told at the end of the iteration, if the item is not acknowledged before: most are.
        """
        pending.entry = item
        self._read.append(place)
        while self._pending and (entry := self._pending[0].entry) is not None:
            self._pending.popleft()
            self.owner.came(entry)
        if not self._pending:
            self.all_ready()
        self.connection.gather()

    # -- acknowledgements

    def ack(self, place: int, cost: int, items: int = 1) -> None:
        """Acknowledge items. They are sent together when this iteration of the loop ends, or when many wait."""
        owner = self.owner
        if get_ident() != owner.thread:
            owner.check_open()
        owner.acknowledged += items
        if self.receipts.ack(place, cost, items):
            self.send_acks()
        elif not self.connection.gathering:
            self.connection.gather()

    def begin_taking(self, rest: Rest) -> None:
        """The program takes small items that are delivered at most once: what it has taken is acknowledged together,
        when this iteration of the loop ends or the frame has no more. One `ack` for each took a tenth of the time.
        """
        self.taking = rest
        self.connection.gather()

    def end_taking(self) -> None:
        """Acknowledge what was taken since `begin_taking`, or since the last call."""
        rest, self.taking = self.taking, None
        if rest is not None and self.receipts.ack(*rest.newly_taken()):
            self.send_acks()

    def _iteration_ended(self) -> bool:
        """Send the acknowledgements of this iteration, or keep them for the next. True: they are kept."""
        receipts = self.receipts
        came, self._seen = receipts.whole_cost - self._seen, receipts.whole_cost
        if came >= ACKS_WAIT_FROM and receipts.unsent * 16 < receipts.window and not self._read:
            return True
        self.send_acks()
        return False

    def send_acks(self) -> None:
        """Tell the producer what was acknowledged, and what else was read."""
        if self.taking is not None:
            self.end_taking()
        read, self._read = self._read, []
        if self.receipts.unsent:
            self.owner.full.discard(self)
            acknowledged = self.receipts.take()
            read = [place for place in read if not any(start <= place < end for start, end in acknowledged)]
            self.connection.send(encode_ack(acknowledged))
        for place in read:
            self.connection.send(encode_signal(READ, place))

    def scope_dropped(self, scope: Scope) -> None:
        """The program has dropped items without the end of their scope. The garbage collector calls this."""
        handle = self.connection.endpoint._handle
        if not (self.connection.ended or handle.forked):
            warnings.warn(
                f"{scope!r} was dropped without an acknowledgement: its producer keeps it until this consumer leaves. "
                "Use `with await pull.pull() as item:`, or call item.ack() or item.give_back()",
                ResourceWarning,
                source=scope,
                stacklevel=3,
            )

    # -- the end

    def _connection_ended(self, error: BaseException) -> None:
        pending, self._pending = self._pending, deque()
        for each in pending:  # another consumer gets them
            if isinstance(each.entry, Item):
                each.entry._end_of_scope(self)
        self.owner.connection_ended(self, error)
        self._over.set()


class Rest:
    """Small items of one frame, of which some may have been pulled."""

    __slots__ = ("_acked", "at", "incoming", "items", "numbers", "place", "redelivered")

    def __init__(
        self, incoming: Incoming, place: int, items: list[bytes], numbers: Sequence[int], redelivered: bool
    ) -> None:
        self.incoming = incoming
        self.place = place  # of the first one
        self.items = items
        self.numbers = numbers
        self.redelivered = redelivered
        self.at = 0  # of the next one
        self._acked = 0  # how many were acknowledged here: delivered at most once

    @property
    def left(self) -> int:
        return len(self.items) - self.at

    def next_item(self) -> Item:
        at = self.at
        self.at = at + 1
        item = self.items[at]
        return Item(self.incoming, self.place + at, ITEM_COST + len(item), (item,), self.numbers[at], self.redelivered)

    def newly_taken(self) -> tuple[int, int, int]:
        """Items that were taken since the last call, to be acknowledged: the place of the first, their cost, and how
        many.
        """
        start, self._acked = self._acked, self.at
        return self.place + start, self.cost(start, self.at), self.at - start

    def cost(self, start: int, end: int) -> int:
        """The bytes that some of the items count for."""
        return ITEM_COST * (end - start) + sum(map(len, self.items[start:end]))

    def take(self, most: int | None) -> Items:
        """The next items."""
        start = self.at
        self.at = end = len(self.items) if most is None else min(start + most, len(self.items))
        items, numbers = self.items, self.numbers
        if end - start < len(items):
            items, numbers = items[start:end], numbers[start:end]
        return Items(self.incoming, self.place + start, self.cost(start, end), items, numbers, self.redelivered)
