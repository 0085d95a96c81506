"""Endpoint: properties and statistics that endpoints of every kind have (man page: fi_endpoint)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cq.operation import ABANDONED
from ..resource import Resource
from ..settings import EndpointSettings

if TYPE_CHECKING:
    from ..info import Info
    from .handle import EndpointHandle
    from .interfaces import PoolStatistics

__all__ = ["Endpoint", "EndpointStatistics"]


@dataclass(frozen=True, slots=True)
class EndpointStatistics:
    """Operations and messages of an endpoint at this moment.

    ``sends`` and ``receives`` are posted operations. ``queued`` operations wait for transmit credits. ``abandoned``
    operations belong to callers that were cancelled: their buffers stay pinned until the provider completes them.
    ``pool`` is None for direct receives.
    """

    state: str
    sends: int
    receives: int
    queued: int
    abandoned: int
    injected: int
    pool: PoolStatistics | None


class Endpoint(Resource):
    """Sizes, state and statistics. Mixed into endpoints."""

    __slots__ = ()
    _handle: EndpointHandle
    info: Info

    @property
    def state(self) -> str:
        """``open`` or ``closed``; connected endpoints have more states."""
        return "closed" if self.closed else "open"

    @property
    def max_message_size(self) -> int:
        """Bytes of the longest message that the provider carries and the peer's receives take.

        The peer's receives limit it if the peer uses aiofabric and pools its receives (``recv_size``).
        """
        return self._handle.max_message

    @property
    def max_inject(self) -> int:
        """Bytes of the longest message that the provider copies at once, so that the send does not wait."""
        return self._handle.inject_size

    @property
    def recv_size(self) -> int | None:
        """Bytes of each pooled receive; None for direct receives."""
        pool = self._handle.pool
        return None if pool is None else pool.size

    @property
    def recv_count(self) -> int:
        """How many receives the pool keeps posted; 0 for direct receives."""
        pool = self._handle.pool
        return 0 if pool is None else pool.count

    @property
    def settings(self) -> EndpointSettings:
        """Options and default flags of the endpoint (fi_getopt, fi_setopt, fi_control)."""
        return EndpointSettings(self._handle, self.info)

    def statistics(self) -> EndpointStatistics:
        """Counts at this moment; see `EndpointStatistics`."""
        handle = self._handle
        routes = tuple(handle.routes)
        queues = (*routes, handle.rx)
        return EndpointStatistics(
            state=self.state,
            sends=sum(len(route.posted) for route in routes),
            receives=len(handle.rx.posted),
            queued=sum(len(queue.waiting) for queue in queues),
            abandoned=sum(t.state is ABANDONED for queue in queues for t in queue.posted),
            injected=sum(route.untracked for route in routes),
            pool=None if handle.pool is None else handle.pool.statistics(),
        )
