"""A worker process of a run. It does one stage's work, and talks with the process that started it over a pipe.

The run says ("places", places, ended), ("progress", Progress) and ("stop",). The worker says ("listening", stage,
place, id), ("totals", StageTotals, progress), ("again", text) of a value that another process had before, and at the
end ("done", StageTotals, progress) or ("failed", text, error, traceback). ``progress`` has a `Progress` for each
ordered stage that it gives values to. The worker ends when the pipe does.
"""

from __future__ import annotations

import os
import pickle
import signal
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import anyio

from ..totals import StageError, StageTotals
from ..tracebacks import traceback_of
from .at_work import at_work
from .board import Places

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import FrameType

    from ..plan import WorkOrder
    from ..work import StageWork
    from .board import Progress

__all__ = ["work", "worker"]

_TELL: Final = 0.25
"""Seconds between two reports of totals."""
_TERMINATED: Final = 2.0
"""Seconds after SIGTERM until the process ends, unless the run stops."""


def worker(pipe: Connection, order: WorkOrder, backend: dict[str, Any], host: str, options: dict[str, Any]) -> None:
    """The main function of a worker process."""
    each = _Worker(pipe, order, host, options)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the run decides what it means
    signal.signal(signal.SIGTERM, each.terminated)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])  # see local_process.py
    anyio.run(each.run, **backend)


def work(pipe: Connection, order: WorkOrder, backend: dict[str, Any], host: str, options: dict[str, Any]) -> None:
    """The same, in any thread."""
    anyio.run(_Worker(pipe, order, host, options).run, **backend)


class _Worker:
    def __init__(self, pipe: Connection, order: WorkOrder, host: str, options: dict[str, Any]) -> None:
        self._pipe = pipe
        self._order = order
        self._host = host
        self._options = options
        self._places = Places()
        self._totals = StageTotals()
        self._progress: dict[str, Callable[[], Progress]] = {}
        self._work: StageWork | None = None
        self._stopped = False
        self._terminated = False

    def terminated(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM. A service manager sends it to all processes of a run, and the run then stops in order. If it does
        not, the signal was meant for this process.
        """
        if self._stopped:
            return
        if self._terminated:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._terminated = True
        later = Timer(_TERMINATED, os.kill, [os.getpid(), number])
        later.daemon = True
        later.start()

    async def run(self) -> None:
        self._tell_totals("totals")  # it has begun
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, tasks.cancel_scope)
            tasks.start_soon(self._report)
            try:
                await at_work(
                    self._order,
                    self._totals,
                    inlet=None,
                    joints={},
                    places=self._places,
                    listening=lambda *found: self._tell("listening", *found),
                    progress=self._progress,
                    began=self._began,
                    host=self._host,
                    options=self._options,
                    came_again=lambda text: self._tell("again", text),
                )
            except StageError as error:
                self._tell_failure(error.text, error.__cause__)
            except Exception as error:
                self._tell_failure(f"{type(error).__name__}: {error}", error)
            else:
                self._tell_totals("done")
            tasks.cancel_scope.cancel()

    def _began(self, work: StageWork) -> None:
        self._work = work
        if self._stopped:
            work.stop()

    def _tell(self, *words: Any) -> None:
        with suppress(OSError):  # the run was killed, which `_listen` notices
            self._pipe.send(words)

    def _tell_totals(self, word: str) -> None:
        self._tell(word, self._totals, {stage: progress() for stage, progress in self._progress.items()})

    def _tell_failure(self, text: str, error: BaseException | None) -> None:
        traceback = traceback_of(error)
        self._tell("failed", text, _portable(error, traceback), traceback)

    async def _report(self) -> None:
        while True:
            await anyio.sleep(_TELL)
            self._tell_totals("totals")

    async def _listen(self, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.wait_readable(self._pipe.fileno())
            try:
                word, *rest = self._pipe.recv()
            except (EOFError, OSError):  # the run has ended, or was killed
                scope.cancel()
                return
            if word == "places":
                self._places.put(*rest)
            elif word == "progress":
                self._places.put_progress(*rest)
            else:
                self._stopped = True
                if self._work is not None:
                    self._work.stop()


def _portable(error: BaseException | None, traceback: str) -> BaseException | None:
    """An error that can be sent to the run, with its traceback as a note; or None."""
    if error is None:
        return None
    try:
        if traceback:
            error.add_note(traceback)
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return copy if isinstance(copy, BaseException) else None
