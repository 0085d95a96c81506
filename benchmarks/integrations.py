"""``python -m benchmarks.integrations``: HTTP, grpclib and Dask over a fabric, and over kernel sockets.

Each program is the same over both; two processes, or those of a Dask cluster. The contenders take turns; the table has
the medians of the rounds, and the ratio to sockets in brackets: above 1 the fabric is faster.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from statistics import median
from typing import Any

from . import cluster, web
from .results import machine

CONTENDERS = {"sockets": "", "fabric, tcp": "tcp", "fabric, shm": "shm"}
"""The provider of each; none: kernel sockets."""
WORKS: dict[str, Any] = {**dict.fromkeys(web.WORKS, web), **dict.fromkeys(cluster.WORKS, cluster)}
LONGEST = 120  # seconds of one run


def run(work: str, provider: str, share: int) -> float:
    """The rate of one run, in processes of its own. ``share``: all of the work, or this fraction of it."""
    command = [sys.executable, "-m", "benchmarks.integrations", "--side", work, provider, str(share)]
    if WORKS[work] is cluster:
        return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LONGEST).stdout)
    with subprocess.Popen([*command, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        try:
            asked = subprocess.run([*command, port], stdout=subprocess.PIPE, check=True, timeout=LONGEST)
        finally:
            server.terminate()
    return float(asked.stdout)


def table(rounds: int, share: int, works: list[str]) -> None:
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"\n{'':40}" + "".join(f"{title:>16}" for title in CONTENDERS))
    for work in works:
        found: dict[str, list[float]] = {title: [] for title in CONTENDERS}
        for _ in range(rounds):
            for title, provider in CONTENDERS.items():
                found[title].append(run(work, provider, share))
        rates = [median(each) for each in found.values()]
        ratios = ["", *(f" ({rate / rates[0]:.2f})" for rate in rates[1:])]
        cells = (f"{rate:.4g}{ratio}" for rate, ratio in zip(rates, ratios, strict=True))
        print(f"{work + ', ' + WORKS[work].WORKS[work].unit:40}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integrations", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of a twentieth of the work")
    parser.add_argument("--only", action="append", choices=WORKS, help="this row; may be given several times")
    parser.add_argument("--side", nargs="+", metavar="SIDE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        works = options.only or list(WORKS)
        table(1, 20, works) if options.quick else table(options.rounds, 1, works)
        return
    work, provider, share, *side = options.side
    WORKS[work].side(work, provider, int(share), *side)


if __name__ == "__main__":
    main()
