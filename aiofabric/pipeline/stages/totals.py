"""Totals: the numbers of a pipeline at work, and the error that ends one."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .tracebacks import traceback_of

__all__ = ["StageError", "StageTotals", "Totals"]


@dataclass(slots=True)
class StageTotals:
    """One stage. Values: ``taken`` by its workers; ``given`` to the next stages; ``skipped`` after an error;
    ``dead_letters``, which its ``on_error`` function got.

    ``busy``: seconds that its workers spent in its function, in all. ``restarts``: of its processes.
    """

    taken: int = 0
    given: int = 0
    skipped: int = 0
    dead_letters: int = 0
    restarts: int = 0
    busy: float = 0.0

    def add(self, other: StageTotals) -> None:
        """Add the numbers of another worker."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class Totals:
    """A whole pipeline: seconds since its start (until its end), and the numbers of each stage by its name."""

    seconds: float
    stages: dict[str, StageTotals]


class StageError(Exception):
    """A stage has failed, which ends the pipeline. ``stage``: its name. The function's own error is the cause; of a
    function in another process that is a copy, or None if pickle cannot copy it.
    """

    def __init__(self, stage: str, text: str, traceback: str = "") -> None:
        super().__init__(stage, text, traceback)
        self.stage = stage
        self.text = text
        self._traceback = traceback

    @property
    def traceback(self) -> str:
        """Where the function raised, as text, also if it did so in another process; "" if no function has raised."""
        return self._traceback or traceback_of(self.__cause__)

    def __str__(self) -> str:
        return f"the stage {self.stage!r} has failed: {self.text}"
