"""Run: a pipeline's graph at work."""

from __future__ import annotations

from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import anyio

from ...cq.loops.drivers import current_backend
from ...errors import WrongThreadError
from .graph import IteratorSource
from .joints import Joint
from .processes.at_work import at_work
from .processes.board import Board
from .processes.dask_actor import DaskActor
from .processes.kept import KeptWorker
from .processes.local_process import LocalProcess
from .totals import StageError, StageTotals, Totals

if TYPE_CHECKING:
    from types import TracebackType

    from .plan import Node
    from .processes.kept import Launch
    from .work import StageWork

__all__ = ["Run"]


class Run:
    """A pipeline at work, until the end of the block of ``async with``, which waits until all stages are done.

    An exception of the block ends everything at once. So does a stage that fails: the block ends with its `StageError`.
    """

    def __init__(
        self, nodes: list[Node], *, host: str, restarts: int, options: dict[str, Any], client: Any = None
    ) -> None:
        self._nodes = nodes
        self._client = client  # of Dask; None: the workers are processes of this machine
        self._host = host
        self._restarts = restarts
        self._options = options
        self._board = Board()
        self._joints: dict[str, Joint] = {}
        self._here: dict[str, StageTotals] = {}
        self._processes: dict[str, list[KeptWorker]] = {}
        self._work: list[StageWork] = []
        self._tasks: anyio.abc.TaskGroup | None = None
        self._begun = self._seconds = 0.0
        self._stopped = False
        self._thread: int | None = None  # of the block

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise RuntimeError("this run was entered before: make another one")
        for node in self._nodes:
            if isinstance(node.stage.function, IteratorSource):
                node.stage.function.begin(node.name)
        self._begun = monotonic()
        self._thread = get_ident()
        launch = self._launcher()
        tasks = self._tasks = await anyio.create_task_group().__aenter__()
        for node in self._nodes:
            if node.takes_here and node.inputs:
                self._joints[node.name] = Joint(node.stage.queue * node.workers, len(node.givers))
        for node in self._nodes:
            if node.is_here:
                self._here[node.name] = StageTotals()
                tasks.start_soon(self._work_here, node)
            else:
                kept = [KeptWorker(node, self._board, launch, self._restarts) for _ in range(node.processes)]
                self._processes[node.name] = kept
                for each in kept:
                    tasks.start_soon(each.run)
        return self

    def _launcher(self) -> Launch:
        backend = current_backend()
        if self._client is not None:
            return lambda order: DaskActor(self._client, order, backend, self._options)
        return lambda order: LocalProcess(order, backend, self._host, self._options)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        try:
            return await self._tasks.__aexit__(exc_type, exc, tb)
        except BaseExceptionGroup as group:
            others = [each for each in _errors_in(group) if each is not exc]
            if not others:
                return False  # the block's own exception, as it is
            failure = next((each for each in others if isinstance(each, StageError)), others[0])
            if isinstance(exc, Exception) or not (isinstance(failure, StageError) or len(others) == 1):
                raise
            raise failure from failure.__cause__
        finally:
            self._seconds = monotonic() - self._begun
            for joint in self._joints.values():
                joint.abandon()

    def stop(self) -> None:
        """The sources produce no more. Their values go through all stages, and then the run ends.

        Raises:
            WrongThreadError: called from another thread than the one that entered the block.
        """
        if self._thread not in (None, get_ident()):
            raise WrongThreadError(
                "this Run belongs to the thread that entered its block; run the call in its event loop with "
                "loop.call_soon_threadsafe() or anyio.from_thread.run_sync()"
            )
        self._stopped = True
        for work in self._work:
            work.stop()
        for kept in self._processes.values():
            for each in kept:
                each.stop()

    def totals(self) -> Totals:
        """The numbers of this moment; those of other processes are up to a quarter of a second old.

        Raises:
            RuntimeError: the block has not begun.
        """
        if self._tasks is None:
            raise RuntimeError("this run has not begun: async with pipeline.start() as run:")
        totals = Totals(self._seconds or monotonic() - self._begun, {})
        for node in self._nodes:
            found = totals.stages[node.name] = StageTotals()
            if node.is_here:
                found.add(self._here[node.name])
            for each in self._processes.get(node.name, ()):
                found.add(each.totals())
        return totals

    def joined(self) -> dict[str, list[str]]:
        """The stages that give values to each stage, by their names."""
        return {node.name: [each.name for each in node.givers] for node in self._nodes if node.inputs}

    async def _work_here(self, node: Node) -> None:
        def began(work: StageWork) -> None:
            self._work.append(work)
            if self._stopped:
                work.stop()

        joints = {taker.name: self._joints[taker.name] for taker in node.takers if taker.takes_here}
        await at_work(
            node.order(),
            self._here[node.name],
            inlet=self._joints.get(node.name),
            joints=joints,
            places=self._board.places(node.name),
            listening=lambda stage, place, producer: self._board.listen(stage, node, place, producer),
            progress=self._board.progress,
            began=began,
            host=self._host,
            options=self._options,
        )
        self._board.leave(node, done=True)


def _errors_in(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """The errors of all tasks, the first one first."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _errors_in(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
