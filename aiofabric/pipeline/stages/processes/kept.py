"""The worker processes of a run: started, started again after they die, and ended with the run."""

from __future__ import annotations

import logging
import multiprocessing
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from ..graph import Kind
from ..totals import StageError, StageTotals
from .worker import worker

if TYPE_CHECKING:
    from ..plan import Node
    from .board import Board

__all__ = ["KeptProcess"]

_GRACE: Final = 5.0
"""Seconds until a process that was told to end is killed."""

_log = logging.getLogger("aiofabric.pipeline")
_processes = multiprocessing.get_context("spawn")


class KeptProcess:
    """One worker of one stage: a process, and the ones that take its place after it has died."""

    def __init__(self, node: Node, board: Board, settings: dict[str, Any], restarts: int) -> None:
        self._node = node
        self._board = board
        self._settings = settings
        self._restarts_left = restarts
        self._pipe: Any = None
        self._stopped = False
        self._before = StageTotals()  # of processes that have died
        self._now = StageTotals()

    def totals(self) -> StageTotals:
        """The numbers of this worker, as it has told them."""
        totals = StageTotals()
        totals.add(self._before)
        totals.add(self._now)
        return totals

    def stop(self) -> None:
        """A source produces no more."""
        self._stopped = True
        self._tell("stop")

    async def run(self) -> None:
        """Until the work is done. Raises `StageError`."""
        name = self._node.name
        while True:
            code = await self._run_once()
            if code is None:
                return
            self._before.add(self._now)
            self._now = StageTotals()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            if self._node.stage.kind == Kind.SOURCE:
                raise StageError(name, f"its process has ended ({how}), and a source cannot be started again")
            if not self._restarts_left:
                raise StageError(name, f"its process has ended ({how}) too often")
            self._restarts_left -= 1
            self._before.restarts += 1
            _log.warning("a process of the stage %r has ended (%s): it is started again", name, how)

    async def _run_once(self) -> int | None:
        """One process: None if the work is done, else how it has ended."""
        self._pipe, theirs = _processes.Pipe()
        arguments = (theirs, self._node.order(), *self._settings.values())
        process = _processes.Process(
            target=worker, args=arguments, name=f"aiofabric stage {self._node.name}", daemon=True
        )
        done = False
        try:
            try:
                await anyio.to_thread.run_sync(process.start)
            except Exception as error:
                raise StageError(
                    self._node.name,
                    f"it cannot be sent to a process: {error}. Define its function at the top of a module, "
                    "not inside of a function, and not as a lambda",
                ) from error
            theirs.close()
            if self._stopped:
                self._tell("stop")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_places)
                done = await self._listen()
                tasks.cancel_scope.cancel()
            if not done:
                await anyio.wait_readable(process.sentinel)
                process.join()
            return None if done else process.exitcode
        finally:
            self._board.leave(self, done=done)
            self._pipe.close()
            theirs.close()
            with anyio.CancelScope(shield=True):
                await _end(process, at_once=not done)

    async def _tell_places(self) -> None:
        found = self._board.places(self._node.name)
        async for places in found:
            self._tell("places", places, found.ended)

    def _tell(self, *words: Any) -> None:
        if self._pipe is not None:
            with suppress(OSError):  # it has died, which `_listen` notices
                self._pipe.send(words)

    async def _listen(self) -> bool:
        """Whether the work is done; False if the process has died."""
        while True:
            await anyio.wait_readable(self._pipe.fileno())
            try:
                word, *rest = self._pipe.recv()
            except (EOFError, OSError):
                return False
            if word == "listening":
                stage, place, producer = rest
                self._board.listen(stage, self, place, producer)
            elif word == "failed":
                text, cause = rest
                raise StageError(self._node.name, text) from cause
            else:
                self._now = rest[0]
                if word == "done":
                    return True


async def _end(process: Any, *, at_once: bool) -> None:
    """Wait for the end of a process that is done, and end one that is not."""
    if process.pid is None:
        return
    if at_once or not await _ends(process):
        process.terminate()
        if not await _ends(process):
            process.kill()
    process.join()
    process.close()


async def _ends(process: Any) -> bool:
    """Whether it ends in time."""
    with anyio.move_on_after(_GRACE):
        await anyio.wait_readable(process.sentinel)
    return process.exitcode is not None
