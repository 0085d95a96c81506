"""The interfaces of queues and operations that a source uses, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core import NativeQueue
    from ..errors import FabricError
    from .polling import Waiting
    from .queue import Entry, ErrorEntry

__all__ = ["AttachedQueue", "Queue", "Completable", "SourceStatistics", "Polled", "WaitOwner"]


class Queue(Protocol):
    """A completion queue, as a progress pass uses it; `aiofabric.testing.ScriptedQueue` implements it, too."""

    @property
    def native_queue(self) -> NativeQueue | None: ...  # read in its place
    def read(self, window: int = 0, /) -> Sequence[Entry] | None: ...
    def read_error(self) -> ErrorEntry | None: ...
    def longest_gap(self) -> int: ...
    def quiet(self) -> bool: ...
    def fileno(self) -> int | None: ...


class WaitOwner(Protocol):
    """An object with tasks that wait for a source's passes, such as an endpoint."""

    def wait_failed(self, error: Callable[[], FabricError], /) -> int:
        """No pass may come: raise the error in all tasks that wait; return their number."""


class AttachedQueue(WaitOwner, Protocol):
    """An event queue that a source drains in its progress passes."""

    def drain(self) -> int: ...
    def quiet(self) -> bool: ...
    def fileno(self) -> int | None: ...


class Polled(Protocol):
    """An object that changes without a wake-up, such as a counter: polled after each pass while a task waits."""

    def poll(self) -> int: ...


class Completable(Protocol):
    """An object that is registered under the address of a slot."""

    def complete(self, entry: Entry, /) -> None: ...
    def fail(self, entry: ErrorEntry, /) -> None: ...
    def consumed(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Counters of one source since it was opened.

    ``in_flight`` counts the addresses that a completion may still name, pooled receives included. ``abandoned`` counts
    operations whose caller left before the completion, ``stale`` completions of no known operation, and ``quarantined``
    addresses that are not used again, or not until a claimed message is received.
    """

    waiting: Waiting
    passes: int
    completions: int
    errors: int
    stale: int
    wakeups: int
    empty_wakeups: int
    in_flight: int
    abandoned: int
    queued: int
    slots_in_use: int
    quarantined: int
    window_hits: int
    window_misses: int
    window_ns: int
