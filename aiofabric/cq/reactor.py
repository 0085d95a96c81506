"""Reactor: the sources of one running loop, and what its endpoints share."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from anyio.lowlevel import RunVar

from ..resource import loop_ended
from .loops.drivers import Driver, current_driver
from .polling import Waiting
from .source.source import Source

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable

    from .interfaces import Queue, SourceStatistics

__all__ = ["Reactor", "ReactorStatistics"]

_current: RunVar[Reactor] = RunVar("aiofabric_reactor")


@dataclass(frozen=True, slots=True)
class ReactorStatistics:
    """The sources of a loop, each with its counters."""

    driver: str
    sources: tuple[SourceStatistics, ...]


class Reactor:
    """One for each running loop, made on first use; it need not be closed.

    ``shared`` holds what endpoints of this loop use together (a fabric, a domain with its queues), counted by
    `acquire` and `release`.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.sources: list[Source] = []
        self._shared: dict[Hashable, list[Any]] = {}
        self._guard = self._until_the_end()

    @classmethod
    def current(cls) -> Self:
        """The reactor of the loop that runs now."""
        try:
            return _current.get()  # type: ignore[return-value]
        except LookupError:
            reactor = cls(current_driver())
            _current.set(reactor)
            # The loop closes its asynchronous generators when it ends: no call has to ask whether it still runs.
            with suppress(StopIteration):
                reactor._guard.__anext__().send(None)
            return reactor

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            loop_ended(self.driver)

    def attach(self, queue: Queue | None, *, waiting: Waiting = Waiting.ADAPTIVE, busy_poll: float = 200.0) -> Source:
        """Drive the progress of ``queue`` in this loop until the source is closed."""
        source = Source(self.driver, queue, waiting=waiting, busy_poll=busy_poll, on_close=self.sources.remove)
        self.sources.append(source)
        return source

    def acquire(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the object shared under ``key``, made on first use. Each acquire needs one release."""
        entry = self._shared.get(key)
        if entry is None:
            entry = self._shared[key] = [make(), 0]
        entry[1] += 1
        return entry[0]

    def open_key(self, key: Hashable, is_open: Callable[[Any], bool]) -> Hashable:
        """The key of an open object for ``key``, or of one to be made: a closed one stays until its users have left."""
        number = 0
        while (entry := self._shared.get((key, number))) is not None and not is_open(entry[0]):
            number += 1
        return (key, number)

    def users_of(self, key: Hashable) -> int:
        """Return how many users have acquired the object shared under ``key``."""
        entry = self._shared.get(key)
        return 0 if entry is None else entry[1]

    def release(self, key: Hashable, close: Callable[[Any], None]) -> None:
        """Undo one `acquire`; the last release closes the object."""
        entry = self._shared[key]
        entry[1] -= 1
        if entry[1] == 0:
            del self._shared[key]
            close(entry[0])

    def statistics(self) -> ReactorStatistics:
        """Counters of every source."""
        return ReactorStatistics(self.driver.name, tuple(source.statistics() for source in self.sources))
