"""Objects that the endpoints of one loop share: a fabric, a domain on it, and pairs of queues.

Connected endpoints share a completion queue and an event queue, so many connections need one progress engine and two
descriptors. All endpoints of a domain share one pair, with two exceptions. If the cost of a read depends on the number
of bound endpoints, at most 128 share it. If a completion queue can overrun, as many share it as it has entries for.

A listener shares only the fabric. Its event queue is its own, because a passive endpoint and its queue must be closed
together: otherwise a half-open client would be read from freed memory, in every version of the tcp provider.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi
from ...cm.queue import EventQueue
from ...cq.polling import Waiting
from ...cq.queue import CompletionQueue
from ...cq.reactor import Reactor
from ...cq.submission import most_posted
from ...domain import Domain
from ...errors import NotSupportedError
from ...fabric import Fabric
from ...features import Quirk, quirks
from ...flags import Caps
from ...resource import Handle
from ..handle import EndpointHandle
from .chosen import check_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...info import Info

__all__ = ["DomainQueues", "acquire_domain", "acquire_fabric", "acquire_queues", "entries_of", "open_once"]

# A read polls all endpoints of a queue, 60 ns each: at most 8 us. With half as many endpoints per queue, a round trip
# beside idle endpoints takes 44 us instead of 48, and 1000 busy endpoints are served 9 % faster. But 100 busy endpoints
# are served 14 % slower, and each connection takes 4 KiB more, because libfabric allocates 500 KiB for a queue.
_SWEPT_ENDPOINTS = 128
# Entries of a queue that can overrun: 1 MiB of 64 bytes. verbs offers 768 operations for each endpoint: 21 share it.
_ENTRIES = 16384


def _fabric_key(info: Info) -> Hashable:
    return ("fabric", info.fabric_attr.prov_name, info.fabric_attr.name)


@cache
def _numbers_of(kind: str) -> tuple[str, ...]:
    return tuple(name for name, field in ffi.typeof(f"struct fi_{kind}").fields if field.type.kind != "pointer")


def _key_of(attributes: Any) -> tuple[bytes]:
    """The authorization key: jobs with different keys must not share an object."""
    return (bytes(ffi.buffer(attributes.auth_key, attributes.auth_key_size)) if attributes.auth_key else b"",)


def opened_as(info: Info, *parts: str) -> Hashable:
    """A key of the values of ``info`` that matter for an object, without addresses: equal keys may share the object.

    Args:
        parts: the attribute structures that count; names and the domain attributes always count.
    """
    native = info.native
    structures = [getattr(native, part) for part in ("domain_attr", *parts)]
    said = [
        tuple(getattr(structure, name) for name in _numbers_of(part))
        for part, structure in zip(("domain_attr", *parts), structures, strict=True)
    ]
    said += [_key_of(structure) for structure in structures if hasattr(structure, "auth_key")]
    return (_fabric_key(info), info.domain_attr.name, native.ep_attr.type, native.caps, native.mode, *said)


def acquire_fabric(reactor: Reactor, info: Info) -> tuple[Fabric, Any]:
    """The loop's fabric for ``info``, and a function that releases it."""
    key = _fabric_key(info)
    fabric = reactor.acquire(key, lambda: Fabric(info))
    return fabric, lambda: reactor.release(key, Fabric.close)


def acquire_domain(reactor: Reactor, info: Info, domain: Domain | None) -> tuple[Domain, Callable[[], None]]:
    """The caller's domain, or the loop's domain for ``info``, and a function that releases it.

    Raises:
        ValueError: the caller's domain was opened without capabilities of ``info``.

        If the provider mixes up tagged messages between the endpoints of a domain, each endpoint has a domain of its
        own.
    """
    apart = Quirk.TAGGED_STRAYS in quirks(info) and Caps.TAGGED in info.caps
    if domain is not None:
        domain._handle.check_open()
        check_capabilities(info, domain)
        if apart and any(isinstance(child, EndpointHandle) for child in domain._handle.children):
            detail = (
                f"The provider {info.fabric_attr.prov_name} may deliver a tagged message to the wrong "
                "endpoint of a domain, and this domain already has an "
                "endpoint: open this one on another domain, or with caps= without FI_TAGGED"
            )
            raise NotSupportedError(constants.FI_EOPNOTSUPP, "fi_endpoint", detail=detail)
        return domain, lambda: None
    key: Hashable = ("domain", opened_as(info))
    if apart:
        key = (key, object())
    key = reactor.open_key(key, lambda shared: not shared.domain.closed)
    shared: _SharedDomain = reactor.acquire(key, lambda: _SharedDomain(reactor, info))
    return shared.domain, lambda: reactor.release(key, _SharedDomain.close)


class _SharedDomain:
    def __init__(self, reactor: Reactor, info: Info) -> None:
        fabric, self._return_fabric = acquire_fabric(reactor, info)
        try:
            self.domain = Domain(info, fabric)
        except BaseException:
            self._return_fabric()
            raise

    def close(self) -> None:
        self.domain.close()
        self._return_fabric()


def entries_of(info: Info) -> int:
    """Entries of a completion queue that one endpoint may fill: its posted operations; 0 if no queue can overrun."""
    if Quirk.QUEUE_OVERRUNS not in quirks(info):
        return 0
    return most_posted(info.tx_attr.size) + most_posted(info.rx_attr.size)


class DomainQueues:
    """A completion queue, an event queue, and the source that polls both."""

    release: Callable[[], None]  # one for all users: one for each took 0.3 KiB per connection

    def __init__(self, reactor: Reactor, info: Info, domain: Domain | None, waiting: Waiting, busy_poll: float) -> None:
        with ExitStack() as opened:  # each object takes descriptors, and a later one may find none left
            self.domain, self._return_domain = acquire_domain(reactor, info, domain)
            opened.callback(self._return_domain)
            entries = entries_of(info)
            self.queue = opened.enter_context(CompletionQueue(self.domain, size=entries and max(_ENTRIES, entries)))
            self.events = opened.enter_context(EventQueue(self.domain.fabric, parent=self.domain._handle))
            self.source = reactor.attach(self.queue, waiting=waiting, busy_poll=busy_poll)
            opened.callback(self.source.close)
            self.source.attach_queue(self.events)
            opened.pop_all()
        if Quirk.UNEXPECTED_MESSAGE_SPINS in quirks(info):
            self.source.delays.may_stay_readable = self._may_stay_readable
        # The domain of a caller may close the queues: the source must leave the loop first.
        self._detach = _Detach(self)

    @property
    def closed(self) -> bool:
        """Whether a program closed the domain, which closes the queues."""
        return self.queue.closed

    def _may_stay_readable(self) -> bool:
        ours = (child for child in self.domain._handle.children if isinstance(child, EndpointHandle))
        return any(each.may_stay_readable for each in ours if each.source is self.source)

    def close(self) -> None:
        """Leave the loop, close the queues, then release the domain."""
        self._detach.close()
        self.queue.close()
        self.events.close()
        self._return_domain()


class _Detach(Handle):
    """The newest child of a domain, so it closes first, before any native object: takes the source off the loop."""

    __slots__ = ("_queues",)

    def __init__(self, queues: DomainQueues) -> None:
        super().__init__("DomainQueues", None, queues.domain._handle)
        self._queues = queues

    def release(self) -> None:
        self._queues.source.close()


def acquire_queues(
    reactor: Reactor,
    info: Info,
    domain: Domain | None,
    waiting: Waiting,
    busy_poll: float,
    *,
    alone: bool = False,
) -> tuple[DomainQueues, Any]:
    """Queues with room for one more endpoint (on the caller's ``domain``, if given), and a function that releases them.

    ``alone`` gives queues that are not shared.
    """
    if alone:
        queues = DomainQueues(reactor, info, domain, waiting, busy_poll)
        return queues, queues.close
    domain_key = opened_as(info) if domain is None else id(domain)
    room = _SWEPT_ENDPOINTS if Quirk.READ_SWEEPS_ENDPOINTS in quirks(info) else sys.maxsize
    if entries := entries_of(info):
        room = max(1, _ENTRIES // entries)
    shard = 0

    def key_of(shard: int) -> Hashable:
        key = ("queues", domain_key, waiting, busy_poll, entries, shard)
        return reactor.open_key(key, lambda queues: not queues.closed)

    while reactor.users_of(key := key_of(shard)) >= room:
        shard += 1

    def opened() -> DomainQueues:
        queues = DomainQueues(reactor, info, domain, waiting, busy_poll)
        queues.release = lambda: reactor.release(key, DomainQueues.close)
        return queues

    queues = reactor.acquire(key, opened)
    return queues, queues.release


def open_once(info: Info) -> None:
    """Open the queues of an endpoint, and close them again. Raises FabricError if that is impossible here."""
    _, release = acquire_queues(Reactor.current(), info, None, Waiting.ADAPTIVE, 0.0, alone=True)
    release()
