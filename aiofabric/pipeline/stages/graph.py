"""Stages: the nodes of a pipeline's graph, as the program described them."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from io import BytesIO, StringIO
from types import MethodType
from typing import Any, Final, Literal

from ...arguments import check_count, check_type

__all__ = ["Input", "IteratorSource", "Kind", "OnError", "Stage", "named", "stages_of"]

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


_CONTAINERS: Final = (list, set, dict, deque, bytearray, array, BytesIO, StringIO)


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

    def check_process(self, name: str) -> None:
        """Raise ValueError if the stage would fill a container of this process in another one."""
        functions: list[Any] = [self.on_error] + [self.function] * (self.kind == Kind.SINK)
        for each in functions:
            function = getattr(each, "func", each)  # of a partial
            owner = getattr(function, "__self__", None)
            own_class = type(owner).__module__ not in ("builtins", "collections", "array", "_io")
            if isinstance(owner, _CONTAINERS) and not (own_class and isinstance(function, MethodType)):
                kind = type(owner).__name__
                raise ValueError(
                    f"the stage {name!r} would call {function.__name__} of a {kind} in another process, which has a "
                    f"copy of it: the {kind} of this process would stay as it is. Keep this stage in this process, "
                    "or pass a function that stores the value elsewhere"
                )


class IteratorSource:
    """A source that can be read once, such as a generator object."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._begun = False

    def __call__(self) -> Any:
        return self._iterator

    def begin(self, name: str) -> None:
        """Raise RuntimeError if a run has begun to read it."""
        if self._begun:
            raise RuntimeError(
                f"the source {name!r} is an iterator, which an earlier run has read: pass a function that makes it, "
                "or a list"
            )
        self._begun = True


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
