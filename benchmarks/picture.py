"""A diagram of latency and bandwidth against message size, for aiofabric and its peers."""

from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from .measures import MEASURES, SIZES, Column, gigabytes_a_second, human, microseconds
from .results import Results

PANELS = (
    ("ping", Column("Round trip", "µs", (), microseconds)),
    ("flood", Column("One way", "GB/s", (), gigabytes_a_second)),
)


def style(row: str) -> dict[str, object]:
    """Ours stand out, the floor is black, the peers stay in the background."""
    if row.startswith("C"):
        return {"color": "black", "linestyle": "--" if "spin" in row else ":", "linewidth": 1.5}
    if "aiofabric" in row or row.startswith("Fabric"):
        return {"linewidth": 2.8, "marker": "o", "markersize": 4, "zorder": 5}
    return {"linewidth": 1.2, "alpha": 0.85}


def draw(results: Results, path: Path) -> None:
    """Write the picture; the name's ending chooses the format."""
    figure = Figure(figsize=(6.5, 12), layout="constrained")  # one above the other, for the width of a phone
    axes = figure.subplots(2, 1)
    for axis, (workload, column) in zip(axes, PANELS, strict=True):
        for row, measured in results.samples.items():
            points = [
                (size, median(column.value(sample, MEASURES[name]) for sample in results.comparable(measured[name])))
                for size in SIZES
                if (name := f"{workload}/{size}") in measured
            ]
            if points:
                axis.plot(*zip(*points, strict=True), label=row, **style(row))
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(SIZES, [human(size) for size in SIZES], rotation=30)
        axis.set_xlabel("message")
        axis.set_ylabel(column.unit)
        axis.set_title(f"{column.title}, {column.unit}")
        axis.grid(alpha=0.3, which="both")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path)
