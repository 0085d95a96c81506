"""Metrics and spans as OpenTelemetry's own in-memory exporters receive them."""

from collections.abc import AsyncIterator, Iterator
from multiprocessing import resource_tracker
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

import aiofabric
from aiofabric.integrations.opentelemetry import TRACE_HEADER_SIZE, instrument, item_span, trace_header
from aiofabric.pipeline import Pipeline, Pull, Push
from tests.fixtures.providers import Pair


def values(reader: InMemoryMetricReader) -> dict[tuple[str, str], float]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (metric.name, str(next(iter((point.attributes or {}).values()), ""))): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


@pytest.mark.anyio
async def test_metrics_and_spans_while_instrumented(pair: Pair) -> None:
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    with instrument(meter_provider=MeterProvider([reader]), tracer_provider=tracers):
        async with pair():
            found = values(reader)
            assert found["aiofabric.endpoints", "tcp"] == 2
            assert found["aiofabric.listeners", ""] == 0
            assert found["aiofabric.accepted", ""] >= 1
        spans = {span.name: span for span in exporter.get_finished_spans()}
        assert set(spans) == {"aiofabric.connect", "aiofabric.accept"}
        connect = spans["aiofabric.connect"].attributes or {}
        assert connect["aiofabric.provider"] == "tcp"
        assert str(connect["aiofabric.peer"]).startswith("fi_sockaddr_in://127.0.0.1:")
    exporter.clear()
    async with pair():
        assert values(reader) == {}
    assert exporter.get_finished_spans() == ()


@pytest.mark.anyio
async def test_a_refused_connection_is_a_span_with_its_error() -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        nobody = listener.address
    with instrument(meter_provider=MeterProvider(), tracer_provider=tracers), pytest.raises(ConnectionRefusedError):
        await aiofabric.connect(nobody, provider="tcp")
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok
    assert span.events[0].name == "exception"


@pytest.mark.anyio
async def test_a_trace_goes_with_an_item() -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = tracers.get_tracer("test")
    async with Push(listen="127.0.0.1:0") as push, Pull(push.address) as pull:
        with tracer.start_as_current_span("producer") as producer:
            assert len(trace_header()) == TRACE_HEADER_SIZE
            await push.push(b"item", header=trace_header() + b"mine")
        await push.push(b"without a trace", header=trace_header() + b"mine")
        for _ in range(2):
            with await pull.pull() as item, item_span(item, name="work", tracer_provider=tracers):
                assert item.header.endswith(b"mine")
    assert trace_header() == b""
    _, work, other = exporter.get_finished_spans()
    assert work.parent is not None
    assert work.parent.span_id == producer.get_span_context().span_id
    assert work.context.trace_id == producer.get_span_context().trace_id
    assert (work.attributes or {})["aiofabric.number"] == 0
    assert other.parent is None


TRACER = TracerProvider().get_tracer("tests")
resource_tracker.ensure_running()  # it stays until the end of the program: before leaks are counted


def trace_here(value: object) -> tuple[object, int]:
    return value, get_current_span().get_span_context().trace_id


async def traces_here(given: tuple[object, int]) -> AsyncIterator[tuple[object, int, int]]:
    await anyio.lowlevel.checkpoint()
    yield *given, trace_here(None)[1]


def in_spans() -> Iterator[int]:
    """Each value is the trace in which it is given."""
    for _ in range(5):
        with TRACER.start_as_current_span("made") as span:
            yield span.get_span_context().trace_id


@pytest.mark.anyio
@pytest.mark.parametrize("workers", [None, 1, 3])
async def test_a_trace_goes_with_each_value_through_all_stages_and_processes(workers: int | None) -> None:
    stages = Pipeline(in_spans)
    options: dict[str, Any] = {} if workers is None else {"process": True, "workers": workers}
    stages = stages.map(trace_here, **options).flat_map(traces_here, process=workers is not None)
    found: list[Any] = []
    with anyio.fail_after(30):
        await stages.sink(found.append).run()
    assert len({trace for trace, *_ in found}) == 5
    assert [each for each in found if each != (each[0],) * 3] == []


@pytest.mark.anyio
async def test_the_trace_of_the_code_that_runs_a_pipeline_reaches_its_processes() -> None:
    found: list[Any] = []
    with anyio.fail_after(30), TRACER.start_as_current_span("run") as span:
        await Pipeline(range(3)).map(trace_here, process=True).map(trace_here).sink(found.append).run()
    own = span.get_span_context().trace_id
    assert found == [((number, own), own) for number in range(3)]
    assert trace_here(None) == (None, 0)
