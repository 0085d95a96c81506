"""Statistics of pipelines: plain numbers of one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LinkStatistics", "PullStatistics", "PushStatistics"]


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """One connection: the peer's ``id`` and address, and the items on it that are not acknowledged."""

    id: bytes
    address: str
    not_acknowledged: int


@dataclass(frozen=True, slots=True)
class PushStatistics:
    """A producer. Items: ``pushed``, ``acknowledged``, ``redelivered`` (each time), ``lost`` (at most once).

    ``not_acknowledged`` and ``bytes_kept``: what the producer keeps now. ``waiting``: calls of `push` that wait.
    """

    pushed: int
    acknowledged: int
    redelivered: int
    lost: int
    not_acknowledged: int
    bytes_kept: int
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
