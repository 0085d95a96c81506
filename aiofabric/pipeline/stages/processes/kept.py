"""The workers of a run that are elsewhere: started, started again after they die, and ended with the run."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import anyio

from ..graph import Kind
from ..totals import StageError, StageTotals
from .board import Progress

if TYPE_CHECKING:
    from ..plan import Node, WorkOrder
    from .board import Board

__all__ = ["Ended", "KeptWorker", "Launch", "Launched"]

_TELL_PROGRESS: Final = 0.25
"""Seconds between two looks at what is finished, for a process that has taken the place of another one."""

_log = logging.getLogger("aiofabric.pipeline")


class Ended(NamedTuple):
    """How a worker has died. ``killed``: not by an error of the program, such as one in its main module."""

    how: str
    killed: bool


class Launched(Protocol):
    """A worker: a process, or an actor of Dask. ``tells_late``: it may have done more than it has told."""

    tells_late: bool

    async def start(self) -> None: ...
    async def tell(self, *words: Any) -> None: ...  # waits while it is busy; nothing, if it has died
    async def next_words(self) -> tuple[Any, ...] | None: ...  # see `worker`; None: it has died
    async def how_it_ended(self) -> Ended: ...
    async def end(self, *, at_once: bool) -> None: ...  # one that is done ends by itself


Launch = Callable[["WorkOrder"], Launched]


class KeptWorker:
    """One worker of one stage, and the ones that take its place after it has died."""

    def __init__(self, node: Node, board: Board, launch: Launch, restarts: int) -> None:
        self._node = node
        self._board = board
        self._launch = launch
        self._restarts_left = restarts
        self._places = board.places(node.name)
        self._stopped = anyio.Event()
        self._came_again = ""  # the value that it is at, if another process had it before
        self._tells_late = False
        self._before = StageTotals()  # of workers that have died
        self._now = StageTotals()

    def totals(self) -> StageTotals:
        """The numbers of this worker, as it has told them."""
        totals = StageTotals()
        totals.add(self._before)
        totals.add(self._now)
        return totals

    def stop(self) -> None:
        """A source produces no more."""
        self._stopped.set()

    async def run(self) -> None:
        """Until the work is done. Raises `StageError`."""
        name = self._node.name
        while True:
            self._came_again = ""
            ended = await self._run_once()
            if ended is None:
                return
            how, began = ended.how, name in self._board.began
            if not (began or ended.killed):
                raise StageError(
                    name,
                    f"its process has ended ({how}) before it began. It imports the program's main module: does that "
                    'start the pipeline under `if __name__ == "__main__":`, and is its function in a module?',
                )
            self._before.add(self._now)
            self._now = StageTotals()
            if began and self._node.stage.kind == Kind.SOURCE:
                raise StageError(name, f"its process has ended ({how}), and a source cannot be started again")
            if not self._restarts_left:
                raise StageError(name, f"its process has ended ({how}) too often{self._where()}")
            self._restarts_left -= 1
            self._before.restarts += 1
            _log.warning("a process of the stage %r has ended (%s): it is started again", name, how)

    def _where(self) -> str:
        if not self._came_again:
            return ""
        later = ", or at one of the next" if self._tells_late else ""
        return f"; the last one was at the value {self._came_again}{later}"

    async def _run_once(self) -> Ended | None:
        """One worker: None if the work is done, else how it has ended."""
        launched = self._launch(replace(self._node.order(), restarts=self._before.restarts))
        self._tells_late = launched.tells_late
        done = False
        try:
            try:
                await launched.start()
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                raise StageError(
                    self._node.name,
                    f"it cannot be sent to a process: {error}. Define its function at the top of a module, "
                    "not inside of a function, and not as a lambda",
                ) from error
            except Exception as error:  # no descriptors are left, for example
                raise StageError(self._node.name, f"its process cannot be started: {error}") from error
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_places, launched)
                tasks.start_soon(self._tell_stop, launched)
                if self._before.restarts and self._node.sorts_from is not None:
                    tasks.start_soon(self._tell_progress, launched, self._node.sorts_from.name)
                done = await self._listen(launched)
                tasks.cancel_scope.cancel()
            return None if done else await launched.how_it_ended()
        finally:
            self._board.leave(self, done=done)
            with anyio.CancelScope(shield=True):
                await launched.end(at_once=not done)

    async def _tell_places(self, launched: Launched) -> None:
        async for places in self._places:  # the latest ones: a worker that is busy misses those between
            await launched.tell("places", places, self._places.ended)

    async def _tell_progress(self, launched: Launched, stage: str) -> None:
        """The acknowledgements of the process that has died may still be on their way."""
        told = None
        while True:
            progress = self._board.progress.get(stage, Progress)()
            if progress != told:
                await launched.tell("progress", progress)
                told = progress
            await anyio.sleep(_TELL_PROGRESS)

    async def _tell_stop(self, launched: Launched) -> None:
        await self._stopped.wait()
        await launched.tell("stop")

    async def _listen(self, launched: Launched) -> bool:
        """Whether the work is done; False if the worker has died."""
        while (words := await launched.next_words()) is not None:
            self._board.began.add(self._node.name)
            word, *rest = words
            if word == "listening":
                stage, place, producer = rest
                self._board.listen(stage, self, place, producer)
            elif word == "again":
                (self._came_again,) = rest
            elif word == "failed":
                text, cause, traceback = rest
                raise StageError(self._node.name, text, traceback) from cause
            else:
                self._now, progress = rest
                for stage, each in progress.items():
                    self._board.progress[stage] = partial(Progress, *each)
                if word == "done":
                    return True
        return False
