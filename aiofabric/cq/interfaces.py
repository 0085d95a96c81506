"""What a source asks of queues and operations, and what it tells of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import NativeQueue
    from .polling import Waiting
    from .queue import Entry, ErrorEntry

__all__ = ["AttachedQueue", "Queue", "Completable", "SourceStatistics", "Polled"]


class Queue(Protocol):
    """What a turn asks of a completion queue; `aiofabric.testing.ScriptedQueue` is the other one."""

    @property
    def native_queue(self) -> NativeQueue | None: ...  # what is asked in its place
    def read(self, window: int = 0, /) -> Sequence[Entry] | None: ...
    def read_error(self) -> ErrorEntry | None: ...
    def longest_gap(self) -> int: ...
    def quiet(self) -> bool: ...
    def fileno(self) -> int | None: ...


class AttachedQueue(Protocol):
    """An event queue that is drained in the turns of a source."""

    def drain(self) -> int: ...
    def quiet(self) -> bool: ...
    def fileno(self) -> int | None: ...


class Polled(Protocol):
    """What moves without waking anybody, such as a counter: looked at after every turn while somebody waits."""

    def poll(self) -> int: ...


class Completable(Protocol):
    """Whatever is registered under a slot's address."""

    def complete(self, entry: Entry, /) -> None: ...
    def fail(self, entry: ErrorEntry, /) -> None: ...
    def consumed(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Counters of one source since it was opened.

    ``in_flight`` counts addresses that may still be named by a completion (pooled receives included),
    ``abandoned`` operations whose caller left before the provider answered, ``stale`` completions for no known
    operation, ``quarantined`` addresses that are never lent again.
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
    lent: int
    quarantined: int
    window_hits: int
    window_misses: int
    window_ns: int

    @property
    def parked(self) -> int:  # deprecated
        """The former name of ``queued``; deprecated."""
        return self.queued

    @property
    def turns(self) -> int:  # deprecated
        """The former name of ``passes``; deprecated."""
        return self.passes
