"""Traces: the OpenTelemetry trace of a value goes with it through the stages, if the program uses OpenTelemetry.

A value that a source gives has the trace and span that are current there: those of the source's own spans, or of the
code that runs the pipeline. The values that a stage makes of it have the same. A stage's function is called within that
span, in whatever process it is: the spans that the function begins are its children.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["TRACE_SIZE", "current_trace", "within"]

TRACE_SIZE: Final = 55
"""Bytes of W3C's ``traceparent``."""

_NOWHERE: AbstractContextManager[None] = nullcontext()


def current_trace() -> bytes:
    """The current trace and span, as W3C's ``traceparent``; empty outside of a span, or without OpenTelemetry."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:  # then nothing in this process has begun a span
        return b""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return b""
    return b"00-%032x-%016x-%02x" % (span.trace_id, span.span_id, span.trace_flags)


def within(trace: bytes) -> AbstractContextManager[None]:
    """Make the span of ``trace`` the current one in a block."""
    return _attached(trace) if trace else _NOWHERE


@contextmanager
def _attached(parent: bytes) -> Iterator[None]:
    try:
        from opentelemetry import context, trace
    except ImportError:  # this process has no use for it
        yield
        return
    _, trace_id, span_id, flags = parent.split(b"-")
    span = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))
    try:
        yield
    finally:
        context.detach(token)
