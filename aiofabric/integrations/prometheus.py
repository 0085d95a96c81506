"""Prometheus: aiofabric's metrics in a registry of prometheus_client (``pip install prometheus-client``).

    prometheus_client.REGISTRY.register(FabricCollector())

The values are read when Prometheus asks for them; between two readings there is no cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aiofabric.metrics import FAMILIES, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

__all__ = ["FabricCollector"]

_KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


class FabricCollector(Collector):
    """All metrics of `aiofabric.metrics.FAMILIES`, as ``aiofabric_…``; names of counters end in ``_total``."""

    def describe(self) -> Iterator[Metric]:
        """The names without values, so that registering opens nothing."""
        return iter(self._families().values())

    def collect(self) -> Iterator[Metric]:
        """The values now."""
        families = self._families()
        for sample in read():
            families[sample.name].add_metric([sample.label] if FAMILIES[sample.name].label else [], sample.value)
        return iter(families.values())

    @staticmethod
    def _families() -> dict[str, GaugeMetricFamily | CounterMetricFamily]:
        return {
            name: _KINDS[family.kind](f"aiofabric_{name}", family.help, labels=[family.label] if family.label else [])
            for name, family in FAMILIES.items()
        }
