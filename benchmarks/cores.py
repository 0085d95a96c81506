"""Positions of the two cores: a sample counts only if the cores were as close to each other as they can be
(floor/cores.c).
"""

import math
import os
import subprocess
import time
from types import TracebackType
from typing import Self

from . import floor
from .measures import Measure
from .pair import Pair
from .results import FAR, nearest
from .workloads import Sample

NEAR = 120.0  # nanoseconds; behind one cache of the third level they are nearer than that
FOR_EACH = 0.5  # seconds to bring them together before a sample
IN_ALL = 15.0  # seconds in which a run does so: where it does not help, it costs no more
TRIES = 3  # samples made for one that counts


class Cores:
    """Measures and changes the distance of the cores. Does nothing without a C compiler, or with one core only."""

    def __init__(self) -> None:
        self.found: list[float] = []  # nanoseconds
        self.left = IN_ALL
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        cores = sorted(os.sched_getaffinity(0))
        try:
            floor.build()
        except floor.BuildError:
            return self
        if len(cores) > 1:
            command = [str(floor.CORES), str(cores[0]), str(cores[-1])]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.distance()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def distance(self, limit: float = math.inf, seconds: float = 0) -> float:
        """Nanoseconds from one to the other and back; at most ``limit`` if ``seconds`` suffice for that."""
        assert self.process
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{limit} {seconds}\n")
        self.process.stdin.flush()
        found = float(self.process.stdout.readline())
        self.found.append(found)
        return found

    @property
    def limit(self) -> float:
        """The distance that counts as near; if they never were near, the smallest one so far."""
        near = nearest(self.found)
        return near * FAR if near < NEAR else near / FAR

    def gather(self) -> float:
        """Bring them together, while there is time left for it."""
        start = time.monotonic()
        found = self.distance(self.limit, min(FOR_EACH, self.left))
        self.left = max(0.0, self.left - (time.monotonic() - start))
        return found

    def ask(self, pair: Pair, measure: Measure, seconds: float) -> Sample:
        """`Pair.ask`, again if they moved apart meanwhile; the sample says how far apart they were."""
        if self.process is None or measure.one_core or measure.once:
            return pair.ask(measure, seconds)
        for _ in range(TRIES):
            before = self.gather()
            sample = pair.ask(measure, seconds)
            sample["apart"] = max(before, self.distance())
            if sample["apart"] <= self.limit or not self.left:
                break
        return sample
