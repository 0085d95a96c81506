"""Deadlines: one timer for all calls of a loop."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cq.loops.drivers import Driver

__all__ = ["Deadlines"]

_SPARE = 1024
_LATENESS = 0.0002  # seconds by which a timer may fire early, because of the loop's clock


class Expiring(Protocol):
    """A call with a deadline."""

    deadline: float | None
    over: bool

    def expired(self) -> None: ...


_current: RunVar[Any] = RunVar("aiofabric_rpc_deadlines")


class Deadlines:
    """A heap of deadlines. Calls that are over stay in it until their time, or until they are the larger part."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._heap: list[tuple[float, int, Expiring]] = []
        self._number = count()
        self._cancel: Callable[[], None] | None = None
        self._due = 0.0
        self._limit = _SPARE

    @classmethod
    def of(cls, driver: Driver) -> Deadlines:
        """The deadlines of the running loop."""
        try:
            found: Deadlines = _current.get()
        except LookupError:
            found = cls(driver)
            _current.set(found)
        return found

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, call: Expiring) -> None:
        """Call ``call.expired()`` at ``call.deadline``, unless it is over."""
        when = call.deadline
        assert when is not None
        heap = self._heap
        if len(heap) >= self._limit:
            heap[:] = [entry for entry in heap if not entry[2].over]
            heapify(heap)
            self._limit = 2 * len(heap) + _SPARE
        heappush(heap, (when, next(self._number), call))
        if self._cancel is None or when < self._due:
            self._schedule(when)

    def _schedule(self, when: float) -> None:
        if self._cancel is not None:
            self._cancel()
        self._due = when
        self._cancel = self._driver.call_later(max(0.0, when - monotonic()), self._fire)

    def _fire(self) -> None:
        self._cancel = None
        heap, now = self._heap, monotonic() + _LATENESS
        try:
            while heap and (heap[0][2].over or heap[0][0] <= now):
                _, _, call = heappop(heap)
                if not call.over:
                    self._expire(call)
        finally:  # Ctrl-C, too, leaves the other deadlines their timer
            if heap and self._cancel is None:
                self._schedule(heap[0][0])

    def _expire(self, call: Expiring) -> None:
        try:
            call.expired()
        except Exception as error:  # of the program's code that the end of the call has run
            self._driver.report("aiofabric.rpc: the end of a call at its deadline raised", error)
