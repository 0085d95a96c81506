"""OpenTelemetry: aiofabric's metrics, and spans around connecting and accepting (``pip install opentelemetry-api``).

    with instrument():          # or keep the returned object, and close it later
        ...

Metrics are observable: they are read when the exporter asks for them. Spans cover long and rare actions. Transfers have
none, because a span costs more than a message. An item of a pipeline may carry the trace of its producer::

    await push.push(data, header=trace_header())  # the producer, in a span

    with item_span(item):  # the consumer: a span of the same trace
        ...
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import Observation

from aiofabric.metrics import FAMILIES, read
from aiofabric.observe import span_hooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.metrics import CallbackOptions, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from aiofabric.pipeline import Item

__all__ = ["TRACE_HEADER_SIZE", "instrument", "item_span", "trace_header"]

TRACE_HEADER_SIZE = 55
"""Bytes of a `trace_header`: those of W3C's ``traceparent``."""


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


def trace_header() -> bytes:
    """The current trace and span, for the header of an item; 55 bytes, or none outside of a span. A program may append
    its own bytes: they begin at `TRACE_HEADER_SIZE`.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "").encode()


@contextmanager
def item_span(
    item: Item, *, name: str = "aiofabric.item", tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """A span for the work on an item, in the trace of its producer; a new trace if its header has none.

    Args:
        item: of a `Pull` or `Subscribe`, in its scope.
        name: of the span.
        tracer_provider: the global one by default.
    """
    carrier = {"traceparent": item.header[:TRACE_HEADER_SIZE].decode("ascii", "replace")}
    attributes: Any = {
        "aiofabric.producer": item.producer.hex(),
        "aiofabric.number": item.number,
        "aiofabric.redelivered": item.redelivered,
    }
    tracer = trace.get_tracer("aiofabric", tracer_provider=tracer_provider)
    context, kind = propagate.extract(carrier), trace.SpanKind.CONSUMER
    with tracer.start_as_current_span(name, context, kind=kind, attributes=attributes) as span:
        yield span
