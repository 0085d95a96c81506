"""Items, as a consumer gets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, Self, overload

from anyio import ClosedResourceError

from ..protocol.frames import ITEM_COST

if TYPE_CHECKING:
    from types import TracebackType

    from ..._core import LoanCore
    from .memory.lent_memory import LentMemory, SharedLoan

__all__ = ["Item", "Items"]


class Origin(Protocol):
    """Where items came from: the connection with their producer."""

    id: bytes
    memory: LentMemory
    lent: dict[int, tuple[float, int]]
    at_least_once: bool

    def ack(self, place: int, cost: int, items: int = 1) -> None: ...
    def scope_dropped(self, scope: Scope) -> None: ...


class Scope:
    """Pulled items, until they are acknowledged or given back; ``producer`` names their producer by 16 bytes.

    ``redelivered``: whether another consumer may have had them before.
    """

    __slots__ = ("_acked", "_cost", "_count", "_origin", "_place", "producer", "redelivered")

    def __init__(self, origin: Origin, place: int, cost: int, count: int, redelivered: bool) -> None:
        self._origin: Origin | None = origin
        self._place = place
        self._cost = cost
        self._count = count
        self._acked = False  # True: elsewhere, when it was taken, because it is delivered at most once
        self.producer = origin.id
        self.redelivered = redelivered

    @property
    def scope_ended(self) -> bool:
        """Whether the items were acknowledged or given back."""
        return self._origin is None

    def ack(self) -> None:
        """Acknowledge, and end the scope. It is no error if the producer has gone.

        Raises:
            ClosedResourceError: the scope has ended.
            WrongThreadError: called from another thread than the consumer's.
            WrongLoopError: the consumer's event loop has ended.
            ForkedError: called in a forked child.
        """
        origin = self._origin or self._from()
        if not self._acked:
            origin.ack(self._place, self._cost, self._count)  # raises in another thread
        self._origin = None
        self._end_of_scope(origin)

    def give_back(self) -> None:
        """End the scope without an acknowledgement: the producer keeps the item until this consumer has left.
        Delivered at most once, it is lost.
        """
        origin = self._from()
        if not (self._acked or origin.at_least_once):
            origin.ack(self._place, self._cost, self._count)  # it is lost, and its credits return
        self._origin = None
        self._end_of_scope(origin)

    def _end_of_scope(self, origin: Origin) -> None:
        pass

    def _from(self) -> Origin:
        if self._origin is None:
            raise ClosedResourceError("the scope of this item has ended")
        return self._origin

    def __enter__(self) -> Self:
        if self._origin is None:
            self._from()  # raises
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._origin is None:
            return
        if exc_type is None:
            self.ack()
        else:
            self.give_back()

    def __del__(self) -> None:
        if self._origin is not None and not self._acked:
            self._origin.scope_dropped(self)


class Item(Scope):
    """One item, until its scope ends: the block of ``with item:``, or the body of ``async for item in pull``.

    A scope that ends without an exception acknowledges the item. One that ends with an exception gives it back: after
    this consumer has left, another one gets it, or this one again. `ack` acknowledges it earlier. An item that is
    dropped without the end of its scope warns (`ResourceWarning`).

    ``data``: bytes; of an item of 16 KiB or more a view of memory that is lent until the scope ends. After that its use
    raises ValueError. A slice or an array that was taken from it stays valid and right, but its memory cannot be used
    again while it exists: copy what you keep. ``parts``: the same, as the producer pushed it. Parts in lent memory
    are in one piece, in order; each begins a multiple of 64 bytes behind the first. ``header``: the producer's, at
    most 1 KiB. ``producer``: 16 bytes that name it. ``number``: of this item, counted by its producer from 0.
    ``redelivered``: whether another consumer may have had it before.
    """

    __slots__ = ("_memory", "header", "number", "parts")

    def __init__(
        self,
        origin: Origin,
        place: int,
        cost: int,
        parts: Sequence[Any],
        number: int,
        redelivered: bool,
        header: bytes = b"",
    ) -> None:
        # The attributes of `Scope` are set here: a call of its __init__ took 0.14 us more.
        self._origin = origin
        self._place = place
        self._cost = cost
        self._count = 1
        self._acked = False
        self.producer = origin.id
        self.redelivered = redelivered
        self._memory: Any = None
        self.parts = parts
        self.number = number
        self.header = header

    @property
    def data(self) -> Any:
        """The first part: most items have only one."""
        return self.parts[0]

    def _lend(self, memory: bytearray | LoanCore | SharedLoan) -> None:
        """The parts are in memory that is used again after the scope: of the end, or of a receive."""
        self._memory = memory

    def _pulled(self) -> None:
        """The program has it: `aiofabric.debug` shows how long it keeps the memory."""
        if self._memory is not None:
            self._from().lent[self._place] = monotonic(), self._cost - ITEM_COST

    def _as_items(self) -> Items:
        """The same as `Items`, copied; this object is not used any more."""
        origin = self._from()
        items = Items(origin, self._place, self._cost, [b"".join(self.parts)], [self.number], self.redelivered)
        self._origin = None
        self._end_of_scope(origin)
        return items

    def _end_of_scope(self, origin: Origin) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            origin.lent.pop(self._place, None)
            if type(memory) is bytearray:
                origin.memory.give_back(memory, self.parts)
            else:
                origin.memory.end_loan(memory, self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __repr__(self) -> str:
        again = ", redelivered" * self.redelivered
        return f"<Item {self.number}, {len(self)} bytes{again}>"


class Items(Scope, Sequence[bytes]):
    """Small items of one producer, in order, with one scope for all: ``with await pull.pull_many() as items:``.

    ``numbers``: of the items, counted by the producer. ``redelivered``: as for `Item`.
    """

    __slots__ = ("_items", "numbers")

    def __init__(
        self, origin: Origin, place: int, cost: int, items: Sequence[bytes], numbers: Sequence[int], redelivered: bool
    ) -> None:
        super().__init__(origin, place, cost, len(items), redelivered)
        self._items = items
        self.numbers = numbers

    @overload
    def __getitem__(self, at: int, /) -> bytes: ...
    @overload
    def __getitem__(self, at: slice, /) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice, /) -> bytes | Sequence[bytes]:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._items)

    def __repr__(self) -> str:
        again = ", redelivered" * self.redelivered
        return f"<{len(self)} items from {self.numbers[0]} on{again}>"
