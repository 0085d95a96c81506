"""The results of a run: samples by row and measure, and everything that was missing or failed."""

import json
import os
import platform
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from .measures import COLUMNS, MEASURES
from .workloads import Sample

FAR = 2.0  # times as far apart as the cores are when they are near (cores.py)
PACKAGES = ("aiofabric", "uvloop", "trio", "anyio", "pyzmq", "grpcio", "ucxx-cu12")


@dataclass
class Results:
    rounds: int
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    took: float = 0.0  # seconds

    def add(self, row: str, measure: str, sample: Sample) -> None:
        self.samples.setdefault(row, {}).setdefault(measure, []).append(sample)

    def value(self, row: str, column: str) -> float | None:
        """The median of a column over the rounds, or None where it was not measured."""
        measured = self.samples.get(row, {})
        wanted = COLUMNS[column]
        for name in wanted.measures:
            if name in measured:
                value = median(wanted.value(sample, MEASURES[name]) for sample in self.comparable(measured[name]))
                return None if value != value else value  # NaN: the contender cannot tell
        return None

    def comparable(self, samples: list[Sample]) -> list[Sample]:
        """Those with the cores near to each other; all, where there are none."""
        limit = FAR * nearest(self.distances())
        return [sample for sample in samples if sample.get("apart", 0.0) <= limit] or samples

    def distances(self) -> list[float]:
        """Nanoseconds between the cores, for each sample of which that is known."""
        measured = (sample for row in self.samples.values() for samples in row.values() for sample in samples)
        return [sample["apart"] for sample in measured if "apart" in sample]

    def ratio(self, row: str, column: str, to_row: str, to_column: str) -> float | None:
        value, base = self.value(row, column), self.value(to_row, to_column)
        return value / base if value is not None and base else None

    def save(self, path: Path) -> None:
        """Write everything as JSON: the machine, the medians, each sample."""
        medians = {
            row: {column: self.value(row, column) for column in COLUMNS if self.value(row, column) is not None}
            for row in self.samples
        }
        document = {
            "machine": machine(),
            "rounds": self.rounds,
            "seconds": round(self.took, 1),
            "medians": medians,
            "units": {name: f"{column.title}, {column.unit}" for name, column in COLUMNS.items()},
            "absent": self.absent,
            "failed": self.failed,
            "samples": self.samples,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")


def nearest(distances: list[float]) -> float:
    """How near to each other the cores are when they are near: for a tenth of the time, and not for a moment."""
    return sorted(distances)[len(distances) // 10] if distances else 0.0


def machine() -> dict[str, Any]:
    """The circumstances on which the numbers depend."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libfabric": libfabric(),
        **{name: version for name in PACKAGES if (version := installed(name))},
    }


def libfabric() -> str:
    """The one that aiofabric loads; the floor in C has the system's."""
    try:
        import aiofabric
    except ImportError:
        return "unknown"
    return str(aiofabric.library_version())


def installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
