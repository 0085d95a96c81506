"""A live table of ends of pipelines, as they tell it: rates, credits, what is not acknowledged, what was dropped."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from aiofabric.cli.loop import run as run_loop
from aiofabric.cli.sentence import sentence
from aiofabric.cli.table import GAP, on_terminal, table, width
from aiofabric.cli.unsupported import UsageError, check_provider
from aiofabric.pipeline import watch
from aiofabric.pipeline.places import target_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import AsyncGenerator, Callable, Iterator

__all__ = ["configure", "run"]

_COUNTS = {"Push": "pushed", "Pull": "received", "Publish": "published", "Subscribe": "received"}
_PEERS = {"Push": "consumers", "Pull": "producers", "Publish": "subscribers", "Subscribe": "publishers"}
_HEADING = ["END", "PEERS", "ITEMS", "A SECOND", "NOT ACKED", "AGAIN", "LOST", "MEMORY", "OLDEST", "WAITING", "ADDRESS"]
_ALIGN = "<>>>>>>>>><"
_LESS_IMPORTANT = ("OLDEST", "MEMORY", "PEERS", "AGAIN", "LOST", "WAITING", "NOT ACKED")
"""Columns that a narrow terminal does not show; the first one is left out first."""


def configure(parser: ArgumentParser) -> None:
    """Describe the arguments."""
    ask = parser.add_argument
    ask("addresses", metavar="ADDRESS", nargs="+", help="HOST:PORT at which a Push, Pull, Publish or Subscribe listens")
    ask("-p", "--provider", metavar="NAME", help="provider, such as tcp; by default the first that has the address")
    ask("--json", action="store_true", help="print each report as a line of JSON, until Ctrl-C")
    ask("--once", action="store_true", help="print once, as it is done without a terminal, and end")


def run(options: Namespace) -> int:
    """Print until Ctrl-C, or until all ends have left."""
    for address in options.addresses:
        try:
            target_of(address)
        except ValueError as error:
            raise UsageError(str(error)) from error
    check_provider(options.provider)
    return run_loop(_run, options)


class _End:
    """One end: its latest report, and its rate."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.report: dict[str, Any] | None = None
        self.problem = "no connection yet"
        self.failed = False
        self._last: tuple[float, int] | None = None
        self.rate = 0.0

    def take(self, report: dict[str, Any]) -> None:
        self.report, self.problem = report, ""
        now, count = monotonic(), report[_COUNTS[report["end"]]]
        if self._last is not None:
            self.rate = (count - self._last[1]) / max(now - self._last[0], 1e-9)
        self._last = now, count

    def row(self) -> list[str]:
        report = self.report
        if report is None or self.problem:
            return ["-", *[""] * (len(_HEADING) - 2), f"{self.address}: {self.problem}"]
        peers = report[_PEERS[report["end"]]]
        not_acked = report.get("not_acknowledged", sum(each["not_acknowledged"] for each in peers))
        lost = report.get("lost", 0) + report.get("dropped", 0)
        memory = report.get("bytes_kept", report.get("lent_bytes", 0))
        oldest = report.get("oldest_seconds")
        waiting = report.get("waiting", 0) + report.get("queued", 0) + sum(each.get("queued", 0) for each in peers)
        numbers = (report[_COUNTS[report["end"]]], round(self.rate), not_acked, report.get("redelivered", 0), lost)
        return [
            report["end"],
            f"{len(peers)}",
            *(f"{number:,}" for number in numbers),
            f"{memory / 1e6:,.1f} MB",
            "" if oldest is None else f"{oldest:,.1f} s",
            f"{waiting:,}",
            self.address,
        ]


async def _run(options: Namespace) -> int:
    ends = [_End(address) for address in options.addresses]
    once = options.once or not (options.json or on_terminal())
    async with anyio.create_task_group() as tasks:
        if not (once or options.json):
            tasks.start_soon(_show, ends)
        async with anyio.create_task_group() as watching:
            for end in ends:
                watching.start_soon(_watch, end, options, once)
        tasks.cancel_scope.cancel()
    shown = [end for end in ends if not end.failed]  # stderr has the others
    if once and shown and not options.json:
        print(_table(shown))
    return int(any(end.problem and end.report is None for end in ends))


async def _watch(end: _End, options: Namespace, once: bool) -> None:
    left = 1 if options.json and once else 2 if once else sys.maxsize  # two reports have a rate
    async with aclosing(_reports(end, options)) as reports:
        async for report in reports:
            if options.json:
                print(json.dumps({"address": end.address, **report}), flush=True)
            left -= 1
            if not left:
                return
    if end.failed and (options.json or once):
        print(f"{end.address}: {end.problem}", file=sys.stderr)


async def _reports(end: _End, options: Namespace) -> AsyncGenerator[dict[str, Any]]:
    try:
        async with aclosing(watch(end.address, provider=options.provider)) as reported:
            async for report in reported:
                end.take(report)
                yield report
        end.problem = "it has left"
    except Exception as error:
        end.failed, end.problem = True, sentence(error)


def _table(ends: list[_End]) -> str:
    """As many columns as the terminal has room for: a row that is broken into two lines cannot be read."""
    rows = [end.row() for end in ends]
    heading, align = list(_HEADING), list(_ALIGN)
    room = width() - max((len(end.address) for end in ends), default=0)
    for name in _LESS_IMPORTANT:
        if sum(max(map(len, column)) + len(GAP) for column in zip(heading[:-1], *rows, strict=False)) <= room:
            break
        at = heading.index(name)
        for cells in (heading, align, *rows):
            del cells[at]
    return table(heading, rows, align="".join(align))


async def _show(ends: list[_End]) -> None:
    with _screen() as show:
        try:
            while True:
                show(_table(ends))
                await anyio.sleep(1)
        finally:
            show(_table(ends))  # the last reports, and why an end is not watched


@contextmanager
def _screen() -> Iterator[Callable[[str], None]]:
    """Print over what was printed before."""
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        yield print
        return
    with Live(auto_refresh=False) as live:
        yield lambda text: live.update(Text.from_ansi(text), refresh=True)
