"""Statistics of pipelines: plain numbers of one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "LinkStatistics",
    "PublishStatistics",
    "PullStatistics",
    "PushStatistics",
    "SubscribeStatistics",
    "SubscriberStatistics",
]


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """One connection: the peer's ``id`` and address, and the items on it that are not acknowledged."""

    id: bytes
    address: str
    not_acknowledged: int


@dataclass(frozen=True, slots=True)
class PushStatistics:
    """A producer. Items: ``pushed``, ``acknowledged``, ``redelivered`` (each time), ``lost`` (at most once).

    ``not_acknowledged`` and ``bytes_kept``: what the producer keeps now. ``pool_bytes``: the memory of its pool, taken
    or kept for reuse. ``oldest_seconds``: since the item was sent that waits longest for its acknowledgement; 0 if none
    does. ``waiting``: calls of `push` that wait.
    """

    pushed: int
    acknowledged: int
    redelivered: int
    lost: int
    not_acknowledged: int
    bytes_kept: int
    pool_bytes: int
    oldest_seconds: float
    waiting: int
    consumers: tuple[LinkStatistics, ...]


@dataclass(frozen=True, slots=True)
class PullStatistics:
    """A consumer. ``received`` and ``acknowledged`` items; ``queued``: items that no task has pulled.

    ``lent_bytes``: memory of items whose scope has not ended. ``ended``: producers that have no more items.
    """

    received: int
    acknowledged: int
    redelivered: int
    queued: int
    lent_bytes: int
    ended: int
    producers: tuple[LinkStatistics, ...]


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """A subscriber, as its publisher sees it: ``id``, address, ``topics``, and the policy ``when_slow`` that is used.

    Publications: ``queued``, those that wait for its room; ``not_acknowledged``, those that were sent and not taken;
    ``dropped``, those that it will never get.
    """

    id: bytes
    address: str
    topics: tuple[str, ...]
    when_slow: str
    queued: int
    not_acknowledged: int
    dropped: int


@dataclass(frozen=True, slots=True)
class PublishStatistics:
    """A publisher. ``dropped``: publications that a subscriber did not get, counted for each subscriber.

    ``waiting``: calls of `publish` that a slow subscriber holds.
    """

    published: int
    dropped: int
    waiting: int
    subscribers: tuple[SubscriberStatistics, ...]


@dataclass(frozen=True, slots=True)
class SubscribeStatistics:
    """A subscriber. ``received`` publications; ``dropped``: those that the publishers have dropped for it, as far as
    they have told; ``queued``: those that no task has pulled.

    ``lent_bytes``: memory of publications whose scope has not ended. ``ended``: publishers that have no more.
    """

    received: int
    dropped: int
    queued: int
    lent_bytes: int
    ended: int
    publishers: tuple[LinkStatistics, ...]
