"""Where plain sockets are faster, so that a reader need not search the tables for it."""

from collections.abc import Iterator
from statistics import median

from .measures import COLUMNS, MEASURES, SIZES, gigabytes_a_second, human, microseconds, thousands_a_second
from .results import Results

PAIRS = (
    ("aiofabric on uvloop", "uvloop Protocol"),
    ("aiofabric on asyncio", "asyncio Protocol"),
    ("aiofabric on trio", "trio"),
    ("FabricStream on uvloop", "uvloop streams"),
    ("FabricStream on trio", "trio"),
    ("aiofabric transport", "uvloop Protocol"),
    ("aiofabric.aio streams", "uvloop streams"),
)
"""Pairs of an interface of aiofabric and the sockets that a program would use instead."""
MARGIN = 0.95
"""A speed above this fraction of the other counts as equal."""
_SWEPT = {"ping": ("round trip", microseconds), "flood": ("one way", gigabytes_a_second)}
_MORE_IS_FASTER = (thousands_a_second, gigabytes_a_second)


def slower(results: Results) -> Iterator[str]:
    """A sentence for each pair: the measures in which the first is slower, and its speed against the second's."""
    for ours, theirs in PAIRS:
        found = [f"{what} {speed:.2f}" for what, speed in _speeds(results, ours, theirs) if speed < MARGIN]
        if found:
            yield f"{ours} beside {theirs}: {', '.join(found)}."


def _speeds(results: Results, ours: str, theirs: str) -> Iterator[tuple[str, float]]:
    for name, column in COLUMNS.items():
        if column.unit in ("us", "k/s", "GB/s") and (ratio := results.ratio(ours, name, theirs, name)):
            yield column.title, ratio if column.value in _MORE_IS_FASTER else 1 / ratio
    for workload, (title, value) in _SWEPT.items():
        for size in SIZES:
            name = f"{workload}/{size}"
            rows = [results.samples.get(row, {}).get(name) for row in (ours, theirs)]
            if all(rows):
                mine, other = (
                    median(value(sample, MEASURES[name]) for sample in results.comparable(each))
                    for each in rows
                    if each
                )
                yield f"{title} of {human(size)}", mine / other if value in _MORE_IS_FASTER else other / mine
