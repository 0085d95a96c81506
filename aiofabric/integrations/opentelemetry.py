"""OpenTelemetry: aiofabric's metrics, and spans around connecting and accepting (``pip install opentelemetry-api``).

    with instrument():          # or keep the returned object, and close it later
        ...

Metrics are observable: they are read when the exporter asks for them. Spans cover long and rare actions. Transfers have
none, because a span costs more than a message.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import Observation

from aiofabric.metrics import FAMILIES, read
from aiofabric.observe import span_hooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.metrics import CallbackOptions, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

__all__ = ["instrument"]


def instrument(
    *, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
) -> ExitStack:
    """Observe aiofabric from now on; closing the returned context manager ends it.

    Args:
        meter_provider: the provider for metrics; the global one by default.
        tracer_provider: the provider for spans; the global one by default.
    """
    meter = metrics.get_meter("aiofabric", meter_provider=meter_provider)
    watching = [True]
    for name, family in FAMILIES.items():
        create: Any = meter.create_observable_gauge if family.kind == "gauge" else meter.create_observable_counter
        create(f"aiofabric.{name}", [partial(_observe, watching, name)], description=family.help)
    hook = partial(_span, trace.get_tracer("aiofabric", tracer_provider=tracer_provider))
    span_hooks.append(hook)
    stack = ExitStack()
    stack.callback(watching.clear)  # OpenTelemetry cannot remove an instrument
    stack.callback(span_hooks.remove, hook)
    return stack


def _observe(watching: list[bool], name: str, _: CallbackOptions) -> Iterator[Observation]:
    if not watching:
        return
    label = FAMILIES[name].label
    for sample in read():
        if sample.name == name:
            yield Observation(sample.value, {label: sample.label} if label else {})


@contextmanager
def _span(tracer: Tracer, name: str, attributes: Mapping[str, object]) -> Iterator[None]:
    words = {f"aiofabric.{key}": str(value) for key, value in attributes.items()}
    kind = trace.SpanKind.CLIENT if name == "connect" else trace.SpanKind.SERVER
    with tracer.start_as_current_span(f"aiofabric.{name}", kind=kind, attributes=words):
        yield
