"""Observe: the log, spans and totals of aiofabric that a program can watch.

Nothing here runs for a transfer. Statistics are collected only when they are read. The counts of closed objects are
kept in `ended`, so that totals never shrink. `aiofabric.metrics` adds both up, and `aiofabric.integrations` exports
them to Prometheus and OpenTelemetry.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Totals", "ended", "samplers", "span", "span_hooks"]

_log = logging.getLogger("aiofabric")


class _Errors(logging.Handler):
    """Prints errors to stderr, and nothing else, until the program sets up logging.

    An error is an exception that no task gets, such as that of an RPC handler. asyncio reports such exceptions so,
    too.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.root.handlers and _log.handlers == [self] and logging.lastResort is not None:
            logging.lastResort.handle(record)


_log.addHandler(_Errors(logging.ERROR))

SpanHook: TypeAlias = "Callable[[str, Mapping[str, object]], AbstractContextManager[object]]"

span_hooks: list[SpanHook] = []
"""Functions that get the name and attributes of every `span`; the context manager they return encloses the span."""


def span(name: str, **attributes: object) -> AbstractContextManager[object]:
    """Enclose an action that is long and rare enough to be watched: connecting, accepting. Never a transfer."""
    if not span_hooks:
        return nullcontext()
    stack = ExitStack()
    for hook in span_hooks:
        stack.enter_context(hook(name, attributes))
    return stack


class Totals:
    """Counters by (name, label); usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counter[tuple[str, str]]()

    def add(self, label: str, **counts: int) -> None:
        """Add to the counts of ``label``."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name, label] += count

    def read(self) -> Counter[tuple[str, str]]:
        """A copy of all counts."""
        with self._lock:
            return self._counts.copy()


ended = Totals()
"""Counts of endpoints, queues, listeners and ends of pipelines that are closed.

:meta hide-value:
"""

samplers: list[Callable[[], Iterable[tuple[str, str, int]]]] = []
"""Functions of the layers above: the name, label and value of further metrics, for all objects that are open.

:meta hide-value:
"""
