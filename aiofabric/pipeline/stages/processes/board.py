"""Board: where the workers of a run listen for the stages that take their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["Board", "Places", "Progress"]


class Progress(NamedTuple):
    """Which values of an ordered stage are finished: those with numbers below ``given``, without the ``unfinished``."""

    given: int = 0
    unfinished: tuple[int, ...] = ()  # ascending


class Places:
    """The places of the producers of one stage: an async iterator of all of them, whenever they change.

    ``ended``: the producers that have finished, as the ids of their `Push`. ``on_end`` is called with each, also with
    those that had finished before: they cannot tell a worker that comes later.

    ``progress``: of the ordered stage before this one, as far as it is known. A worker that takes the place of another
    one does not wait for what is finished; see `SortedInlet`. ``on_progress`` is called with it.
    """

    def __init__(self) -> None:
        self.ended: list[bytes] = []
        self.progress = Progress()
        self.on_progress: Callable[[Progress], object] | None = None
        self._on_end: Callable[[bytes], object] | None = None
        self._places: list[str] = []
        self._version = 1
        self._changed = anyio.Event()

    def put(self, places: list[str], ended: list[bytes]) -> None:
        if (places, ended) == (self._places, self.ended):
            return
        self._places, before, self.ended = places, self.ended, ended
        self._version += 1
        self._changed.set()
        self._changed = anyio.Event()
        if self._on_end is not None:
            for each in ended[len(before) :]:
                self._on_end(each)

    def put_progress(self, progress: Progress) -> None:
        self.progress = progress
        if self.on_progress is not None:
            self.on_progress(progress)

    def on_end(self, call: Callable[[bytes], object] | None) -> None:
        """Call this with each producer that has finished, now and later; None: no more calls."""
        self._on_end = call
        if call is not None:
            for each in self.ended:
                call(each)

    def __aiter__(self) -> AsyncIterator[list[str]]:
        return _PlacesIterator(self)

    async def next_after(self, seen: int) -> tuple[int, list[str]]:
        """The version and the places, as soon as the version is not the one ``seen``."""
        while self._version == seen:
            await self._changed.wait()
        return self._version, self._places


class _PlacesIterator:
    """An iterator of the latest places. Not a generator: its reader may be cancelled between two values."""

    def __init__(self, places: Places) -> None:
        self._following = places
        self._seen = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[str]:
        self._seen, latest = await self._following.next_after(self._seen)
        return latest


class Board:
    """Places by the stage that connects to them, and by the worker that listens there."""

    def __init__(self) -> None:
        self._listening: dict[str, dict[object, tuple[str, bytes]]] = {}
        self._ended: dict[str, list[bytes]] = {}
        self._readers: dict[str, list[Places]] = {}
        self.began: set[str] = set()
        """The stages of which a worker has said anything."""
        self.progress: dict[str, Callable[[], Progress]] = {}
        """By the ordered stage with several processes: a function that tells what is finished."""

    def listen(self, stage: str, worker: object, place: str, producer: bytes) -> None:
        """A worker listens for a stage, with the `Push` that has the id ``producer``."""
        self._listening.setdefault(stage, {})[worker] = place, producer
        self._changed(stage)

    def leave(self, worker: object, *, done: bool) -> None:
        """A worker has died, or is done: then all that it gave is acknowledged."""
        for stage, places in self._listening.items():
            found = places.pop(worker, None)
            if found is not None:
                if done:
                    self._ended.setdefault(stage, []).append(found[1])
                self._changed(stage)

    def places(self, stage: str) -> Places:
        """Where the workers listen that give values to a stage, from now on."""
        places = Places()
        self._readers.setdefault(stage, []).append(places)
        self._tell(stage, places)
        return places

    def _changed(self, stage: str) -> None:
        for each in self._readers.get(stage, ()):
            self._tell(stage, each)

    def _tell(self, stage: str, places: Places) -> None:
        listening = [place for place, _ in self._listening.get(stage, {}).values()]
        places.put(listening, list(self._ended.get(stage, ())))
