"""Debugging: what is open, in flight, queued and abandoned in this process, and where it was opened."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from ._ffi import is_loaded
from .cm.requests import RequestQueue
from .features import describe
from .resource import live_handles
from .transport.handle import EndpointHandle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cq.source.source import Source
    from .cq.submission import SubmissionQueue
    from .resource import Handle

__all__ = ["debug"]


def debug(file: TextIO | None = None) -> None:
    """Print the open objects as a tree: each with the place where it was opened, and its operations.

    Operations are listed in the order of posting, equal ones together, with their state: ``posted`` (the provider has
    it), ``queued`` (it waits for transmit credits), ``cancelling`` and ``abandoned`` (the caller was cancelled). If a
    program hangs, call this from a signal handler or another thread; it changes nothing.

    Args:
        file: the output; standard error by default.
    """
    if file is not None and not hasattr(file, "write"):
        raise TypeError(f"file must be a text file, with a method write(), not {file!r:.100}")
    print(*_lines(), sep="\n", file=sys.stderr if file is None else file)


def _lines() -> Iterator[str]:
    if not is_loaded():
        yield "aiofabric: libfabric is not loaded, so nothing is open"
        return
    handles = live_handles()
    yield f"aiofabric: {describe()}; {len(handles)} objects are open"
    shown: set[Handle] = set()
    for handle in handles:  # the oldest first, so parents before their children
        if handle not in shown:
            yield from _tree(handle, shown, "  ")
    for source in dict.fromkeys(handle.source for handle in handles if isinstance(handle, EndpointHandle)):
        yield from _source(source)


def _tree(handle: Handle, shown: set[Handle], indent: str) -> Iterator[str]:
    shown.add(handle)
    yield f"{indent}{handle.what}{_peer(handle)}, opened at {handle.opened_at}"
    deeper = indent + "  "
    for line in _holds(handle):
        yield f"{deeper}- {line}"
    for child in list(handle.children):
        if child not in shown:
            yield from _tree(child, shown, deeper)


def _peer(handle: Handle) -> str:
    peer = handle.peer_name if isinstance(handle, EndpointHandle) else None
    return "" if peer is None else f" with {peer}"


def _holds(handle: Handle) -> Iterator[str]:
    if isinstance(handle, RequestQueue):
        yield f"{len(handle.pending)} requests wait; {_words(handle.counts)}"
    elif isinstance(handle, EndpointHandle):
        if handle.gone is not None:
            yield "the peer is gone"
        if handle.notes is not None:
            yield from handle.notes()
        for queue in (*handle.routes, handle.rx):
            yield from _operations(queue)
        if (pool := handle.pool) is not None:
            found = pool.statistics()
            where = f"{found.posted} posted, {found.filled} filled, {found.lent} lent"
            yield f"pool of {found.count} x {found.size} bytes: {where}"


def _operations(queue: SubmissionQueue) -> Iterator[str]:
    where = "" if queue.name is None else f" with {queue.name}"
    transfers = (*list(queue.posted), *list(queue.waiting))
    alike = Counter(f"{each.state.value}: {each.what}{where}, {each.length} bytes" for each in transfers)
    for line, count in alike.items():
        yield line if count == 1 else f"{line}, {count} times"


def _source(source: Source) -> Iterator[str]:
    found = source.statistics()
    yield (
        f"  queue on {source.driver.name}, waiting {found.waiting.value}: {found.in_flight} in flight, "
        f"{found.queued} queued, {found.abandoned} abandoned, {found.quarantined} quarantined; "
        f"{found.completions} completions in {found.passes} passes, {found.wakeups} wake-ups"
    )


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
