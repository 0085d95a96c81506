"""Readers: memory of a closed region stays exported while a response to a peer's read may still refer to it.

The software providers answer a peer's read from the registered memory itself: the response is queued on the connection
and refers to that memory. ``fi_close`` of the region refuses later reads, but does not wait for queued responses. If
the memory were freed then, the response would contain other data, or the connection would hang.

So each endpoint of the domain keeps the buffer exported until the endpoint has no response left:

- a connection over tcp: until its socket has room, and a progress call of the provider writes no more data;
- an endpoint that carries virtual connections: until a message to each peer was delivered (virtual/notices.py).
  An endpoint that is its own peer sends answers over another native connection than messages, so it also waits for
  its own reads;
- any other endpoint: until it is closed.

Within a process, shm copies large reads and writes in pieces, with the registration itself. rxd never answers a request
for a closed region, and all that comes behind it waits. There, the region itself stays open until no transfer of the
process reaches it (`after_transfers`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..cm.workarounds.provider_sockets import bytes_written
from ..cq.operation import State
from ..cq.submission import Transfer
from ..regions import MemoryOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..cq.loops.drivers import Driver
    from ..cq.source.source import Source
    from ..resource import Handle

__all__ = [
    "after_transfers",
    "keep_for_readers",
    "operations_of",
    "operations_of_process",
    "poll_again",
    "release_after",
]

_CHECK = 0.005  # seconds between two checks of transfers under way
_OF_MESSAGES = ("fi_send", "fi_tsend", "fi_recv", "fi_trecv")
_DELAYS = (0.001, 0.005, 0.02, 0.05)  # seconds between two checks of a socket without room


class ServesMemory(Protocol):
    """An endpoint whose peers read memory of this process."""

    kept: list[Any]
    native_open: bool
    source: Source

    @property
    def socket(self) -> int: ...
    def wait_until_quiet(self) -> None: ...


def keep_for_readers(domain: MemoryOwner, memory: Any) -> None:
    """Keep ``memory``, whose region was just closed, for every endpoint that may still send from it."""
    endpoints = list(_endpoints_of(domain))
    before = [(endpoint, bytes_written(endpoint.socket)) for endpoint in endpoints]
    _progress(endpoints)
    for endpoint, mark in before:
        if mark is None or endpoint.source.draining or bytes_written(endpoint.socket) != mark:
            endpoint.kept.append(memory)
            if len(endpoint.kept) == 1:
                endpoint.wait_until_quiet()


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
            source.drain()


def poll_again(endpoint: ServesMemory, step: int = 0) -> None:
    """Release the memory kept for an endpoint with a socket, now or as soon as it has nothing left to send."""
    if not endpoint.kept or not endpoint.native_open or endpoint.source.driver.closed():
        return
    if endpoint.socket < 0:
        return  # the memory is kept until the endpoint is closed
    before = bytes_written(endpoint.socket)
    _progress([endpoint])
    if before is not None and not endpoint.source.draining and bytes_written(endpoint.socket) == before:
        endpoint.kept.clear()
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


def after_transfers(domain: MemoryOwner, key: int, action: Callable[[], None]) -> bool:
    """Call ``action`` when no transfer of this process reaches the region with ``key``; False if none does now.

    A task that does not know yet that the region was closed may start another transfer meanwhile.
    """
    endpoints = list(_endpoints_of(domain))
    sources = {endpoint.source for endpoint in endpoints}

    def under_way() -> Iterable[Any]:
        for source in sources:
            yield from operations_of(source)
        for others in operations_of_process:
            yield from others()

    def none_reaches() -> bool:
        return not any(isinstance(each, Transfer) and _reaches(each, key) for each in under_way())

    if not endpoints or endpoints[0].source.driver.closed() or none_reaches():
        return False
    _after(none_reaches, endpoints[0].source.driver, action)
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


MemoryOwner.keep_for_readers = keep_for_readers
MemoryOwner.after_transfers = after_transfers
