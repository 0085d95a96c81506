"""Stages: the nodes of a pipeline's graph, as the program described them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from ...arguments import check_count, check_type

__all__ = ["Input", "Kind", "OnError", "Stage", "named", "stages_of"]

_QUEUE: Final = 32
"""Values that may wait in front of a stage, for each of its workers."""

OnError = Literal["fail", "skip"] | Callable[[Any, Exception], Awaitable[object] | object]


class Kind(Enum):
    """The use of a stage for its function."""

    SOURCE = "source"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    BATCH = "batch"
    WINDOW = "window"
    ROUTE = "route"
    SINK = "sink"


@dataclass(frozen=True, eq=False)
class Input:
    """Where values come from: a stage, or one branch of a stage that routes (its place among the branches)."""

    stage: Stage
    branch: int = 0


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage. ``function`` is called with each value; of a source, once, without arguments.

    ``keys``: of the branches, if it routes. ``size``, ``step`` and ``seconds``: of batches and windows.
    """

    kind: Kind
    name: str
    function: Any = None
    inputs: tuple[Input, ...] = ()
    workers: int = 1
    ordered: bool = True
    on_error: OnError = "fail"
    process: bool = False
    queue: int = _QUEUE
    size: int = 0
    step: int = 0
    seconds: float | None = None
    keys: tuple[Any, ...] = ()

    def check(self) -> None:
        """Raise TypeError or ValueError for options that no stage has."""
        for name in ("ordered", "process"):
            check_type(name, getattr(self, name), bool)
        check_count("queue", self.queue, 32)
        if self.on_error not in ("fail", "skip") and not callable(self.on_error):
            raise ValueError(f"on_error must be 'fail', 'skip' or a function, not {self.on_error!r:.100}")
        self.check_workers(self.workers)

    def check_workers(self, workers: int) -> None:
        """Raise TypeError or ValueError unless the stage can have so many workers."""
        check_count("workers", workers, 16)
        if workers > 1 and self.kind in (Kind.SOURCE, Kind.BATCH, Kind.WINDOW, Kind.ROUTE):
            raise ValueError(f"the stage {self.name!r} has one worker: a {self.kind.value} cannot be shared")


def stages_of(ends: tuple[Input, ...]) -> list[Stage]:
    """All stages that lead to these, each once, every stage behind those that it gets values from."""
    found: dict[Stage, None] = {}

    def visit(stage: Stage) -> None:
        if stage not in found:
            for each in stage.inputs:
                visit(each.stage)
            found[stage] = None

    for end in ends:
        visit(end.stage)
    return list(found)


def named(stages: list[Stage]) -> dict[Stage, str]:
    """A name for each stage, which no other one has: stages of the same name are numbered."""
    counts = Counter(stage.name for stage in stages)
    taken = {name for name, count in counts.items() if count == 1}
    numbers: Counter[str] = Counter()
    names = {}
    for stage in stages:
        name = stage.name
        while counts[stage.name] > 1 and (name == stage.name or name in taken):
            numbers[stage.name] += 1
            name = f"{stage.name}-{numbers[stage.name]}"
        taken.add(name)
        names[stage] = name
    return names
