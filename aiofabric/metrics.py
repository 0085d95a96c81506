"""Metrics: the values of all open objects of this process, and the totals since the process began.

`read` adds up the statistics of every endpoint, listener and queue, and the counts of closed ones. It may be called
from any thread, and changes nothing. `aiofabric.integrations.prometheus` and `aiofabric.integrations.opentelemetry`
export the samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from .cm.requests import RequestQueue
from .cq.operation import ABANDONED
from .observe import ended, samplers
from .resource import live_handles
from .transport.handle import EndpointHandle

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator

    from .cq.source.source import Source

__all__ = ["FAMILIES", "Family", "Sample", "read"]

Kind: TypeAlias = Literal["gauge", "counter"]


class Family(NamedTuple):
    """A metric: its kind (a counter only grows), its meaning, and the name of its one label."""

    kind: Kind
    help: str
    label: str


class Sample(NamedTuple):
    """One value of one metric of `FAMILIES`."""

    name: str
    label: str
    value: int


FAMILIES: dict[str, Family] = {
    "endpoints": Family("gauge", "Open endpoints.", "provider"),
    "sends": Family("gauge", "Sends and other outgoing operations that the provider has.", "provider"),
    "receives": Family("gauge", "Receives and other incoming operations of callers that the provider has.", "provider"),
    "queued": Family("gauge", "Operations that wait for transmit credits.", "provider"),
    "abandoned": Family("gauge", "Operations of cancelled callers that the provider has not completed.", "provider"),
    "waiting_messages": Family("gauge", "Received messages that were not taken yet.", "provider"),
    "messages": Family("counter", "Messages received into pools.", "provider"),
    "bytes": Family("counter", "Bytes received into pools.", "provider"),
    "listeners": Family("gauge", "Open listeners.", ""),
    "pending": Family("gauge", "Connection requests that wait to be accepted or rejected.", ""),
    "requests": Family("counter", "Connection requests.", ""),
    "accepted": Family("counter", "Connection requests that were accepted.", ""),
    "rejected": Family("counter", "Connection requests that were rejected, overflowed ones included.", ""),
    "overflowed": Family("counter", "Connection requests that found the backlog full.", ""),
    "cut_off": Family("counter", "Clients that were disconnected before they sent a complete request.", ""),
    "passes": Family("counter", "Passes of the reactor over a queue.", "waiting"),
    "completions": Family("counter", "Completions read from queues.", "waiting"),
    "errors": Family("counter", "Failed operations read from queues.", "waiting"),
    "stale": Family("counter", "Completions that belonged to no known operation.", "waiting"),
    "wakeups": Family("counter", "Times that a queue's descriptor woke the loop.", "waiting"),
    "empty_wakeups": Family("counter", "Wake-ups that found nothing to read.", "waiting"),
    "pipeline_peers": Family("gauge", "Connections of ends of pipelines.", "end"),
    "pipeline_bytes": Family("gauge", "Memory of items: kept by producers, or lent by consumers.", "end"),
    "pipeline_items": Family("counter", "Items that were pushed, received or published.", "end"),
    "pipeline_acknowledged": Family(
        "counter", "Items that were acknowledged; publications count for each subscriber.", "end"
    ),
    "pipeline_redelivered": Family("counter", "Items that were delivered again.", "end"),
    "pipeline_lost": Family("counter", "Items that were lost, and publications that were dropped.", "end"),
}
"""Every metric, by name. The label ``waiting`` is the queue's waiting strategy: adaptive, fd or poll; ``end`` is Push,
Pull, Publish or Subscribe.

:meta hide-value:
"""


def read() -> list[Sample]:
    """The values of all metrics now, in the order of `FAMILIES`."""
    counts = ended.read()
    counts.update({(name, ""): 0 for name, family in FAMILIES.items() if not family.label})
    sources: dict[Source, None] = {}
    for handle in live_handles():
        if isinstance(handle, EndpointHandle):
            sources[handle.source] = None
            _add(counts, handle.info.fabric_attr.prov_name, _endpoint(handle))
        elif isinstance(handle, RequestQueue):
            sources[handle.source] = None
            _add(counts, "", [("listeners", 1), ("pending", len(handle.pending)), *handle.counts.items()])
    for sampler in list(samplers):
        for name, label, value in sampler():
            counts[name, label] += value
    for source in sources:
        if not source.closed:
            found = source.statistics()
            names = ("passes", "completions", "errors", "stale", "wakeups", "empty_wakeups")
            _add(counts, found.waiting.value, ((name, getattr(found, name)) for name in names))
    order = {name: place for place, name in enumerate(FAMILIES)}
    return [Sample(*key, counts[key]) for key in sorted(counts, key=lambda key: (order[key[0]], key[1]))]


def _endpoint(handle: EndpointHandle) -> Iterator[tuple[str, int]]:
    routes = list(handle.routes)
    queues = [*routes, handle.rx]
    yield "endpoints", 1
    yield "sends", sum(len(route.posted) for route in routes)
    yield "receives", len(handle.rx.posted)
    yield "queued", sum(len(queue.waiting) for queue in queues)
    yield "abandoned", sum(transfer.state is ABANDONED for queue in queues for transfer in list(queue.posted))
    if (pool := handle.pool) is not None:
        yield "waiting_messages", len(pool.inbox)
        yield "messages", pool.messages
        yield "bytes", pool.bytes


def _add(counts: Counter[tuple[str, str]], label: str, found: Iterable[tuple[str, int]]) -> None:
    for name, count in found:
        counts[name, label] += count
