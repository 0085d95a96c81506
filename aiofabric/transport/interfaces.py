"""Interfaces: what a route needs of its handle, and a handle of its inbox and remote writes, without their modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .._core import InboxCore
from ..regions import MemoryOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import ThreadCheck
    from ..cq.operation import Operation
    from ..cq.queue import Entry, ErrorEntry
    from ..cq.source.source import Source
    from ..cq.submission import Transfer
    from ..errors import FabricError
    from ..features import Quirk
    from ..info import Info

__all__ = ["InboxBase", "ReceivedBuffer", "PoolStatistics", "RemoteWriteEvents", "RouteOwner", "Undelivered"]


class RouteOwner(MemoryOwner, ABC):
    """The parts of its handle that a route needs."""

    __slots__ = (
        "info",
        "inject_size",
        "injects",
        "known",
        "last_access",
        "max_message",
        "max_size",
        "native_open",
        "reaches_memory",
        "source",
        "thread_check",
        "tx_flags",
    )  # fmt: skip
    thread_check: ThreadCheck
    info: Info
    inject_size: int
    injects: bool
    known: Quirk
    last_access: tuple[str, int] | None
    max_message: int
    max_size: int
    native_open: bool
    reaches_memory: bool
    source: Source
    tx_flags: int

    @property
    @abstractmethod
    def longest(self) -> int:
        """Bytes of the longest message that may be sent."""

    @abstractmethod
    def cancel(self, context: Any) -> int:
        """fi_cancel of the operation with this context."""

    @abstractmethod
    def explain(self, transfer: Transfer, entry: ErrorEntry) -> BaseException:
        """The exception for an operation that failed."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Where the buffers are (counts now), and the totals since the endpoint opened.

    ``exhausted`` counts receives that had to wait because every buffer was lent.
    """

    size: int
    count: int
    posted: int
    filled: int
    lent: int
    messages: int
    bytes: int
    exhausted: int = 0


class ReceivedBuffer(Protocol):
    """A message in the receiver's memory; `Inbox.recycle` gives the memory back."""

    length: int
    flags: int
    data: int
    tag: int
    source: int | None

    @property
    def view(self) -> memoryview: ...
    @property
    def contents(self) -> bytes: ...  # a copy


class InboxBase(InboxCore, ABC):
    """The parts of its inbox that a handle needs."""

    __slots__ = ()
    is_shared: ClassVar[bool] = False
    """Whether it only stands in for a shared inbox, from which the endpoint cannot receive."""
    end_mark: int

    @abstractmethod
    def recycle(self, buffer: Any) -> None:
        """The message was taken: its memory may be filled again."""

    @abstractmethod
    def was_lent(self) -> None:
        """One more buffer is lent."""

    @abstractmethod
    def discard(self, error: Callable[[], BaseException]) -> None:
        """Drop all messages, also those that still arrive; end every wait with ``error``."""

    @abstractmethod
    def end(self, error: Callable[[], BaseException]) -> None:
        """No message arrives any more: end every wait with ``error``."""

    @abstractmethod
    def wait_failed(self, error: Callable[[], FabricError]) -> int:
        """The queue cannot be waited for: raise the error in all tasks that wait for a message; return their number."""

    @abstractmethod
    def without_memory(self) -> InboxBase:
        """The object that replaces the inbox after the endpoint is closed."""

    @abstractmethod
    def statistics(self) -> PoolStatistics:
        """See `PoolStatistics`."""


class RemoteWriteEvents(Protocol):
    """Writes of peers that carried data."""

    async def next(self) -> Entry: ...
    def wait_failed(self, error: Callable[[], FabricError], /) -> int: ...
    def end(self, error: Callable[[], BaseException]) -> None: ...


class Undelivered(Protocol):
    """A message that a receive got although it was cancelled."""

    def fits_receive(self, receive: Operation) -> bool: ...
