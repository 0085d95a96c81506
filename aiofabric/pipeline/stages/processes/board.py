"""Board: where the workers of a run listen for the stages that take their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Board", "Places"]


class Places:
    """The places of the producers of one stage: an async iterator of all of them, whenever they change."""

    def __init__(self) -> None:
        self._places: list[str] = []
        self._changed = anyio.Event()

    def put(self, places: list[str]) -> None:
        if places != self._places:
            self._places = places
            self._changed.set()

    async def __aiter__(self) -> AsyncIterator[list[str]]:
        while True:
            changed = self._changed = anyio.Event()
            yield self._places
            await changed.wait()


class Board:
    """Places by the stage that connects to them, and by the worker that listens there."""

    def __init__(self) -> None:
        self._listening: dict[str, dict[object, str]] = {}
        self._readers: dict[str, list[Places]] = {}

    def listen(self, stage: str, worker: object, place: str) -> None:
        """A worker listens for a stage."""
        self._listening.setdefault(stage, {})[worker] = place
        self._changed(stage)

    def leave(self, worker: object) -> None:
        """A worker has died."""
        for stage, places in self._listening.items():
            if places.pop(worker, None) is not None:
                self._changed(stage)

    def places(self, stage: str) -> Places:
        """Where the workers listen that give values to a stage, from now on."""
        places = Places()
        self._readers.setdefault(stage, []).append(places)
        places.put(list(self._listening.get(stage, {}).values()))
        return places

    def _changed(self, stage: str) -> None:
        for each in self._readers.get(stage, ()):
            each.put(list(self._listening[stage].values()))
