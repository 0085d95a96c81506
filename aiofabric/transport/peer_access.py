"""Peer access: the memory of a closed region stays exported while a peer's read or write may still use it.

The software providers answer a peer's read from the registered memory itself: the response is queued on the connection
and refers to that memory. They also receive a peer's write directly into it. ``fi_close`` of the region refuses later
requests, but does not wait for those under way. If the memory were freed then, the response would contain other data,
the connection would hang, or the write would change memory that has another use by now.

So each endpoint of the domain keeps the buffer exported until it has no response left, and no write that has begun:

- a connection over tcp: until its socket has room, and a progress call of the provider writes no more data. Or until a
  message has left that was posted after the region was closed: the provider sends responses first. If peers may
  write: also until the next message arrives, which comes behind the write, or nothing has arrived for a time. A
  connection on which nothing has arrived since the program read the key has no write under way;
- an endpoint that carries virtual connections: until each peer has answered (virtual/notices.py). An endpoint that is
  its own peer sends answers over another native connection than messages, so it also waits for its own operations;
- any other endpoint: until it is closed.

Within a process, shm copies large reads and writes in pieces, with the registration itself. rxd never answers a request
for a closed region, and all that comes behind it waits: also the operations of other connections between the two
processes. There, the region itself stays open until no transfer of the process reaches it, and with rxd also for the
time that a peer's request may be on its way (`after_transfers`).
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..cm.workarounds.provider_sockets import bytes_written, data_arrived, seconds_without_data
from ..cq.operation import State
from ..cq.submission import Transfer
from ..regions import Arrivals, MemoryOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..cq.loops.drivers import Driver
    from ..cq.source.source import Source
    from ..regions import RegionHandle
    from ..resource import Handle

__all__ = [
    "RegionMemory",
    "after_transfers",
    "arrivals",
    "keep_for_peers",
    "operations_of",
    "operations_of_process",
    "poll_again",
    "release_after",
]

_CHECK = 0.005  # seconds between two checks of transfers under way
_ON_ITS_WAY = 30.0
"""Seconds until a peer's request arrives at the latest. rxd carries 64 MiB, which may come first, in 5.5 s."""
_OF_MESSAGES = ("fi_send", "fi_tsend", "fi_recv", "fi_trecv")
_DELAYS = (0.001, 0.005, 0.02, 0.05, 0.2)  # seconds between two checks of a socket
_SILENT = 30.0
"""Seconds without data after which no write is assumed to be under way: a peer whose loop is blocked writes no more."""
_READS_MOST = 64  # of a queue that never becomes empty
_COUNTED_MOST = 64  # endpoints whose arrivals are counted: one takes 2 us
_CLOCK = 0.01  # seconds: the longest tick in which the kernel counts


class RegionMemory(NamedTuple):
    """The memory of a closed region that an endpoint keeps."""

    memory: Any
    before: Arrivals | None
    """The arrivals when a peer may have learned the key of a region that peers may write; None: of any other."""
    messages: int
    """How many messages the endpoint had received when the region was closed; -1: not counted yet, because a pass was
    reading the queue. A message that it reads later may have come before the write."""
    transmits: int
    """How many operations had been posted. When more have completed, no response is left that uses the memory."""

    @property
    def writable(self) -> bool:
        """Whether peers could write into it."""
        return self.before is not None


class ServesMemory(Protocol):
    """An endpoint whose peers access memory of this process."""

    kept: list[RegionMemory]
    native_open: bool
    source: Source

    @property
    def messages_arrived(self) -> int: ...
    @property
    def transmits_posted(self) -> int: ...
    @property
    def transmits_completed(self) -> int: ...
    @property
    def socket(self) -> int: ...
    def wait_until_quiet(self) -> None: ...


def arrivals(domain: MemoryOwner) -> Arrivals:
    """Count the data that has arrived at the endpoints of a domain so far."""
    endpoints = list(_endpoints_of(domain))
    counted = {each: data_arrived(each.socket) for each in endpoints} if len(endpoints) <= _COUNTED_MOST else {}
    return Arrivals(monotonic(), {endpoint: count for endpoint, count in counted.items() if count is not None})


def keep_for_peers(domain: MemoryOwner, closed: Sequence[tuple[Any, Arrivals | None]]) -> None:
    """Keep memory for every endpoint that may still send from it or receive into it.

    Args:
        closed: the memory of each region that was just closed; and what had arrived when a peer may have learned its
            key, if peers may write, otherwise None.
    """
    endpoints = list(_endpoints_of(domain))
    # In a pass the provider makes no progress. Reading the sockets would take 15 us for each, and tell nothing.
    written = [(each, None if each.source.draining else bytes_written(each.socket)) for each in endpoints]
    _progress(endpoints)
    for endpoint, mark in written:
        _release_what_was_sent(endpoint)
        messages = -1 if endpoint.source.draining else endpoint.messages_arrived
        sends = mark is None or bytes_written(endpoint.socket) != mark
        others = len(endpoint.kept)
        for memory, before in closed:
            kept = RegionMemory(memory, before, messages, endpoint.transmits_posted)
            if sends or _may_be_written(endpoint, kept):
                endpoint.kept.append(kept)
        if endpoint.kept and not others:
            endpoint.wait_until_quiet()


def _release_what_was_sent(endpoint: ServesMemory) -> None:
    """A connection that always sends is never quiet: release what its later messages show to be unused."""
    if endpoint.socket < 0:
        return
    done, kept = endpoint.transmits_completed, endpoint.kept
    count = 0
    while count < len(kept) and kept[count].transmits < done and not _may_be_written(endpoint, kept[count]):
        count += 1
    del kept[:count]


def _may_be_written(endpoint: ServesMemory, kept: RegionMemory) -> bool:
    """Whether a peer's write that began before the region was closed may still be under way."""
    before = kept.before
    if before is None or -1 < kept.messages < endpoint.messages_arrived:
        return False
    if endpoint in before.bytes and data_arrived(endpoint.socket) == before.bytes[endpoint]:
        return False
    silent = seconds_without_data(endpoint.socket)
    return silent is None or silent < min(monotonic() - before.time + _CLOCK, _SILENT)


def _endpoints_of(parent: Handle) -> Iterable[Any]:
    for child in parent.children:
        if isinstance(child, MemoryOwner):
            if child.serves_memory and getattr(child, "native_open", False):
                yield child
            yield from _endpoints_of(child)


def _progress(endpoints: Iterable[ServesMemory]) -> None:
    """Let the provider write as much as the sockets have room for."""
    for source in {endpoint.source: None for endpoint in endpoints}:
        if not (source.draining or source.closed or source.driver.closed()):
            for _ in range(_READS_MOST):
                if not source.drain():  # the queue is empty: no message before a write is left in it
                    break


def poll_again(endpoint: ServesMemory, step: int = 0) -> None:
    """Release the memory kept for an endpoint with a socket, now or as soon as nothing under way uses it."""
    if not endpoint.kept or not endpoint.native_open or endpoint.source.driver.closed():
        return
    if endpoint.socket < 0:
        return  # the memory is kept until the endpoint is closed
    before = bytes_written(endpoint.socket)
    _progress([endpoint])
    _release_what_was_sent(endpoint)
    if before is not None and not endpoint.source.draining and bytes_written(endpoint.socket) == before:
        endpoint.kept[:] = [
            kept if kept.messages >= 0 else kept._replace(messages=endpoint.messages_arrived)
            for kept in endpoint.kept
            if _may_be_written(endpoint, kept)
        ]
        if not endpoint.kept:
            return
    delay = _DELAYS[min(step, len(_DELAYS) - 1)]
    endpoint.source.driver.call_later(delay, partial(poll_again, endpoint, step + 1))


def release_after(endpoint: ServesMemory, count: int) -> None:
    """Release the first ``count`` of what ``endpoint`` keeps after its own transfers that are under way now."""
    under_way = [each for each in dict(endpoint.source.operations).values() if isinstance(each, Transfer)]
    transfers = [each for each in under_way if not each.what.startswith(_OF_MESSAGES)]

    def release() -> None:
        if endpoint.native_open:
            del endpoint.kept[:count]
            if endpoint.kept:
                endpoint.wait_until_quiet()

    _after(lambda: all(each.state is State.FINISHED for each in transfers), endpoint.source.driver, release)


operations_of_process: list[Callable[[], Iterable[Any]]] = []
"""Each returns operations of endpoints that reach each other's memory, whatever domain they are in."""


def after_transfers(domain: MemoryOwner, region: RegionHandle, action: Callable[[], None]) -> bool:
    """Call ``action`` when no transfer needs the registration of ``region`` any more; False if none does now.

    A task that does not know yet that the region was closed may start another transfer meanwhile.
    """
    endpoints = list(_endpoints_of(domain))
    sources = {endpoint.source for endpoint in endpoints}
    until = monotonic() + _ON_ITS_WAY if region.shown and domain.refused_requests_block else 0.0

    def under_way() -> Iterable[Any]:
        for source in sources:
            yield from operations_of(source)
        for others in operations_of_process:
            yield from others()

    def needed() -> bool:
        if any(isinstance(each, Transfer) and _reaches(each, region.key) for each in under_way()):
            return True
        return monotonic() < until and any(True for _ in _endpoints_of(domain))

    if not endpoints or endpoints[0].source.driver.closed() or not needed():
        return False

    def check() -> None:
        if check in waiting and not needed():
            del waiting[check]
            action()

    def check_later() -> None:
        check()
        if check in waiting and not driver.closed():
            driver.call_later(max(_CHECK, until - monotonic()), check_later)

    driver, waiting = endpoints[0].source.driver, domain.regions.waiting
    waiting[check] = None
    driver.call_later(_CHECK, check_later)
    return True


def operations_of(source: Source) -> Iterable[Any]:
    """The operations of a source that are posted or queued."""
    yield from dict(source.operations).values()
    for queue in list(source.queued):
        yield from list(queue.waiting)


def _reaches(transfer: Transfer, key: int) -> bool:
    """Whether a read, write or atomic may access the region with ``key``."""
    if transfer.what.startswith(_OF_MESSAGES):
        return False
    if transfer.post is None:  # of a closed endpoint, which the provider still uses
        return True
    _, arguments = transfer.post
    message = arguments[1]
    if not hasattr(message, "rma_iov_count"):  # fi_read, fi_write and their forms for lists and remote data
        return key in arguments
    return any(message.rma_iov[at].key == key for at in range(message.rma_iov_count))


def _after(ended: Callable[[], bool], driver: Driver, action: Callable[[], None]) -> None:
    """Call ``action`` when ``ended`` is true: at once, or from the loop."""
    if ended():
        action()
    elif not driver.closed():
        driver.call_later(_CHECK, partial(_after, ended, driver, action))


MemoryOwner.arrivals = arrivals
MemoryOwner.keep_for_peers = keep_for_peers
MemoryOwner.after_transfers = after_transfers
