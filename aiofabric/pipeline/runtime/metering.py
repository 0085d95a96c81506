"""Metering: the numbers of all open ends of pipelines, for `aiofabric.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...observe import ended, samplers

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Counts", "meter", "meter_no_more"]


class Counts(NamedTuple):
    """The numbers of one end. It may be asked for them in any thread."""

    peers: int
    bytes: int
    items: int
    acknowledged: int = 0
    redelivered: int = 0
    lost: int = 0


class Metered(Protocol):
    """An end of a pipeline."""

    @property
    def kind(self) -> str: ...
    def counts(self) -> Counts: ...


_open: dict[Metered, None] = {}


def meter(end: Metered) -> None:
    """An end has opened."""
    _open[end] = None


def meter_no_more(end: Metered) -> None:
    """An end has closed: its counts stay."""
    if end in _open:
        del _open[end]
        counts = end.counts()
        ended.add(
            end.kind,
            pipeline_items=counts.items,
            pipeline_acknowledged=counts.acknowledged,
            pipeline_redelivered=counts.redelivered,
            pipeline_lost=counts.lost,
        )


def _sample() -> Iterator[tuple[str, str, int]]:
    for end in list(_open):
        for name, value in end.counts()._asdict().items():
            yield f"pipeline_{name}", end.kind, value


samplers.append(_sample)
