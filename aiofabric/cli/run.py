"""Run a pipeline of stages. Ctrl-C ends it in order: the sources stop, and what they gave is finished. A second
Ctrl-C ends it at once.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from aiofabric.cli.load import load
from aiofabric.cli.loop import run as run_loop
from aiofabric.cli.sentence import reason
from aiofabric.cli.signals import handled_signals
from aiofabric.cli.table import on_terminal, table
from aiofabric.cli.unsupported import UsageError, check_provider
from aiofabric.pipeline import Pipeline, StageError
from aiofabric.starting import INTERRUPTED

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator

    from aiofabric.pipeline import Run, Totals

__all__ = ["configure", "run"]

_AGAIN = 0.2
"""Seconds between two looks at the totals."""


def configure(parser: ArgumentParser) -> None:
    """Describe the arguments."""
    ask = parser.add_argument
    ask(
        "pipeline",
        metavar="module:pipeline",
        help="an aiofabric.pipeline.Pipeline; the working directory is searched first",
    )
    ask(
        "--workers",
        metavar="STAGE=N",
        action="append",
        default=[],
        help="workers of a stage, instead of those in the graph",
    )
    ask("--processes", action="store_true", help="every stage works in processes of its own")
    ask("--restarts", metavar="N", type=int, default=3, help="times that a worker may be started again (%(default)s)")
    ask("-p", "--provider", metavar="NAME", help="provider that joins processes, such as shm")
    ask("--draw", choices=("mermaid", "svg"), help="print the graph, and do not run it")


def run(options: Namespace) -> int:
    """Run the pipeline to its end, or until Ctrl-C."""
    if not all(options.pipeline.partition(":")):
        raise UsageError(f"{options.pipeline!r} is not of the form module:pipeline")
    check_provider(options.provider)
    workers = dict(map(_workers, options.workers))
    sys.path.insert(0, "")
    pipeline = _load(options.pipeline)
    try:
        if options.draw is not None:
            print(pipeline.draw(options.draw, processes=options.processes, workers=workers), end="")
            return 0
        started = pipeline.start(
            processes=options.processes, workers=workers, restarts=options.restarts, provider=options.provider
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        return run_loop(_run, started)
    except Exception as error:
        failure = reason(error)
        if isinstance(failure, StageError) and (traceback := failure.traceback):
            print(traceback, file=sys.stderr)  # its author needs the line
        raise


def _workers(text: str) -> tuple[str, int]:
    stage, _, count = text.rpartition("=")
    if not stage or not count.isdecimal():
        raise UsageError(f"--workers {text}: not of the form STAGE=N")
    return stage, int(count)


def _load(name: str) -> Pipeline:
    pipeline = load(name)
    if not isinstance(pipeline, Pipeline):
        raise ValueError(f"{name} is of type {type(pipeline).__name__}, not an aiofabric.pipeline.Pipeline")
    return pipeline


async def _run(started: Run) -> int:
    async with anyio.create_task_group() as tasks:
        with handled_signals(started.stop, tasks.cancel_scope.cancel) as came:
            async with started:
                tasks.start_soon(_show, started)
            tasks.cancel_scope.cancel()
    totals = started.totals()
    print(_summary(totals))
    if came.count > 1:
        waiting = _unfinished(started, totals)
        print(f"not finished: about {waiting:,} that waited between stages, and those in a function", file=sys.stderr)
    return INTERRUPTED if came.count else 0


def _summary(totals: Totals) -> str:
    heading = ["STAGE", "TAKEN", "GIVEN", "A SECOND", "SKIPPED", "DEAD LETTERS", "RESTARTS", "BUSY s"]
    rows = [
        [
            name,
            f"{stage.taken:,}",
            f"{stage.given:,}",
            f"{stage.taken / totals.seconds:,.0f}",
            *(f"{each:,}" for each in (stage.skipped, stage.dead_letters, stage.restarts)),
            f"{stage.busy:.2f}",
        ]
        for name, stage in totals.stages.items()
    ]
    return table(heading, rows, align="<>>>>>>>") + f"\n{totals.seconds:.2f} s"


def _unfinished(started: Run, totals: Totals) -> int:
    """Values that a stage had given and no stage had taken."""
    return sum(
        max(0, sum(totals.stages[giver].given for giver in givers) - totals.stages[name].taken)
        for name, givers in started.joined().items()
    )


async def _show(started: Run) -> None:
    """Bars on a terminal."""
    if not on_terminal():
        return
    with _bars() as show:
        while True:
            show(started.totals())
            await anyio.sleep(_AGAIN)


@contextmanager
def _bars() -> Iterator[Callable[[Totals], None]]:
    try:
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:  # the summary tells the same
        yield lambda _: None
        return
    bars: dict[str, Any] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, transient=True) as progress:

        def show(totals: Totals) -> None:
            most = max((stage.taken for stage in totals.stages.values()), default=0)
            for name, stage in totals.stages.items():
                if name not in bars:
                    bars[name] = progress.add_task(name, rate="")
                rate = f"{stage.taken / totals.seconds:,.0f}/s"
                progress.update(bars[name], completed=stage.taken, total=most or 1, rate=rate)

        yield show
