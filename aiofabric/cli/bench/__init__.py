"""A quick measurement of speed: two processes over loopback, aiofabric compared with plain asyncio sockets.

All installed loops are measured. For careful measurements, see the benchmarks of the project.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from aiofabric.cli.bench.progress import Progress
from aiofabric.cli.bench.race import race
from aiofabric.cli.bench.work import WORKS
from aiofabric.cli.table import table
from aiofabric.cli.unsupported import check_provider

__all__ = ["configure", "run"]

_LOOPS = ("asyncio", "uvloop")
NEXT = """
Next: -p shm measures within this host; aiofabric pingpong measures between two hosts; in a clone, make bench compares
with other libraries and with C."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("-p", "--provider", metavar="NAME", default="tcp", help="provider (%(default)s)")
    parser.add_argument(
        "-t", "--time", metavar="SECONDS", type=_seconds, default=0.5, help="time for each number (%(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Measure, and print the table."""
    check_provider(options.provider)
    loops = [loop for loop in _LOOPS if find_spec(loop)]
    transports = {"asyncio sockets": "", f"aiofabric {options.provider}": options.provider}
    rows = []
    figures: dict[str, list[list[float]]] = {loop: [] for loop in loops}
    with Progress(len(loops) * len(transports) * len(WORKS)) as progress:
        for loop in loops:
            for name, provider in transports.items():
                cells = []
                figures[loop].append([])
                for work, result in race(loop, provider, options.time):
                    progress.step(f"{name} on {loop}")
                    cells.append(work.words(result))
                    figures[loop][-1].append(work.speed(result))
                rows.append((loop, name, *cells))
    print(table(("LOOP", "TRANSPORT", *(work.title for work in WORKS)), rows, align="<<" + ">" * len(WORKS)))
    for loop, (sockets, fabric) in figures.items():
        ratios = ", ".join(f"{ours / theirs:.1f}" for ours, theirs in zip(fabric, sockets, strict=True))
        print(f"{loop}: {options.provider} is {ratios} times as fast as sockets.")
    print(NEXT)
    return 0


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) <= 60:
        raise argparse.ArgumentTypeError(f"the time must be more than 0 and at most 60 seconds, not {text}")
    return seconds


_seconds.__name__ = "number of seconds"
