"""``python -m benchmarks``: run the roster in interleaved rounds and print the table."""

import argparse
import fnmatch
import signal
import sys
import time
from pathlib import Path

from . import bars
from .cores import Cores
from .measures import MEASURES
from .pair import ContenderFailed, Pair
from .report import insert, render
from .results import Results
from .roster import ROWS, Row

SECONDS, QUICK_SECONDS = 0.11, 0.05  # of one ordinary measure; many short rounds see through noise best


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that all is well")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="rows, e.g. 'uvloop*'; repeatable")
    parser.add_argument("--measure", metavar="PATTERN", action="append", help="measures, e.g. 'ping'; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="sweep sizes and draw (png, svg)")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="put the table into this page (docs/performance.md), and its bars beside it",
    )
    parser.add_argument("--list", action="store_true", help="name the rows and what they measure")
    return parser.parse_args()


def matches(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run(row: Row, measures: list[str], seconds: float, results: Results, cores: Cores) -> None:
    """One round of one row."""
    try:
        with Pair(row) as pair:
            for name in measures:
                for _ in range(MEASURES[name].repeat):
                    results.add(row.name, name, cores.ask(pair, MEASURES[name], seconds))
    except ContenderFailed as error:
        results.failed[row.name] = str(error)


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the pairs end with us
    rows = [row for row in ROWS if matches(row.name, options.only)]
    if options.list:
        for row in rows:
            print(f"{row.name:28}{' '.join(row.measures)}")
        return
    results = Results(rounds=1 if options.quick else options.rounds)
    results.absent = {row.name: reason for row in rows if (reason := row.absent())}
    rows = [row for row in rows if row.name not in results.absent]
    start = time.monotonic()
    with Cores() as cores:
        for turn in range(results.rounds):
            for row in rows:
                progress(f"round {turn + 1} of {results.rounds}: {row.name}")
                measures = [
                    name
                    for name in (*row.measures, *(row.sweep if options.picture else ()))
                    if matches(name, options.measure) and not (turn and MEASURES[name].once)
                ]
                if measures and row.name not in results.failed:
                    run(row, measures, QUICK_SECONDS if options.quick else SECONDS, results, cores)
    progress("")
    results.took = time.monotonic() - start
    print(render(results))
    if options.json:
        results.save(options.json)
    if options.page:
        insert(results, options.page)
        bars.draw(options.page, options.page.with_name("round-trips.svg"))
    if options.picture:
        from .picture import draw  # matplotlib is only needed for this

        draw(results, options.picture)


if __name__ == "__main__":
    main()
