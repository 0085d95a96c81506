"""ConnectionlessHandle: the object that the reactor and the parents hold of a connectionless endpoint."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from ...address_vector import Peer
from ...features import Quirk, require
from ...flags import Caps
from ..failures import removed
from ..messages.overflow import behind, has_overflow
from ..messages.prefix import PrefixRoute, prefix_of
from ..messages.undelivered import asked_for
from ..route import Route
from . import shm_same_process
from .shm_absent_peer import AbsentRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...address_vector import AddressVector
    from ...cm.queue import EventQueue
    from ...cq.submission import SubmissionQueue, Transfer

__all__ = ["ConnectionlessHandle"]

_READS = 1024
"""rxm handles one message in each read of its queue, and most give no completion."""
_READS_OF_BATCHES = 4
"""Over tcp it handles 32."""
_LARGE_MESSAGES = 0.5
"""Seconds that a close waits for large messages whose memory rxm reads at that time."""


class ConnectionlessHandle(shm_same_process.LingeringHandle):
    """A handle with an address vector, and a route for each peer that was sent to."""

    __slots__ = ("enabled", "events", "group_names", "groups", "kept_numbers", "leaving", "send_notices")

    def __init__(self, vector: AddressVector, *args: Any, **options: Any) -> None:
        self.enabled = False  # rxm's queue crashes before that
        self.leaving: list[Route] = []  # routes of removed peers, while the provider holds operations for them
        super().__init__(vector, *args, **options)
        vector.users.add(self)
        self.overflow = behind() if has_overflow(self) else None
        self.send_notices: Callable[[], None] | None = None  # of an endpoint that carries connections
        self.events: EventQueue | None = None
        self.groups = 0  # joined so far
        self.group_names: set[object] = set()  # hosts of multicast groups that it has joined
        # numbers of peers that the provider reads for open groups, and for claims
        self.kept_numbers: Counter[int] = Counter()

    def open_for_use(self) -> None:
        self.enabled = True
        super().open_for_use()

    def wait_until_quiet(self) -> None:
        if self.send_notices is not None:
            self.send_notices()

    @property
    def routes(self) -> Iterable[Route]:
        return self.by_peer.values()

    def route_to(self, peer: Peer | None) -> Route:
        route = self.by_peer.get(peer)  # type: ignore[arg-type]
        if route is None:
            if not isinstance(peer, Peer):
                raise _no_peer(self.what, peer)
            self.vector.check(peer)
            kind = PrefixRoute if prefix_of(self.info) else Route
            if shm_same_process.reads_ours(self, peer.address):
                kind = shm_same_process.SameProcessRoute
            if self.vector.absent is not None and not self.vector.absent.settle(peer.native):
                kind = AbsentRoute
            route = self.by_peer[peer] = kind(self, peer.native, peer.address)
            if Quirk.CLOSED_LOCAL_PEER_CRASHES in self.known and shm_same_process.is_closed(peer.address):
                route.close_off(partial(shm_same_process.closed, peer.address))
        return route

    def forget(self, peer: Peer) -> None:
        """End transfers with ``peer``; its number may be used again after the last one."""
        self._handle_arrived()
        self.vector.remove(peer)
        if Quirk.CLOSED_LOCAL_PEER_CRASHES in self.known:
            shm_same_process.sweep()

    @property
    def _closes_early(self) -> bool:
        """Whether the provider closes a connection before it handles what has arrived, so that we must do it."""
        return Quirk.CLOSE_POSTS_RECEIVES in self.known and self._reads

    @property
    def _reads(self) -> bool:
        """Whether the queue can be read."""
        return self.enabled and not self.source.driver.closed()

    def _handle_arrived(self) -> None:
        """Let the provider handle all messages that have arrived, before it closes a connection."""
        if self._closes_early:
            for _ in range(_READS):
                self.source.drain()
        elif Quirk.CONNECTING_CRASHES in self.known and self._reads and self.source.completions:
            # Only an endpoint that has been used: a read may accept a client, whose socket rxm leaves open then.
            for _ in range(_READS_OF_BATCHES):
                self.source.drain()

    def _end_receives(self) -> None:
        """Cancel the receives, so that the provider reads no large message over a connection that it closes.

        Those that it cannot cancel have such a message, which it is reading.
        """
        if not self._closes_early:
            return
        for queue in self._receive_queues:
            for receive in queue.posted:
                self.cancel(receive.slot.pointer)
        end = time.monotonic() + _LARGE_MESSAGES
        while any(queue.posted for queue in self._receive_queues) and time.monotonic() < end:
            self.source.drain()

    def peer_removed(self, peer: Peer) -> None:
        error = partial(removed, peer)
        route = self.by_peer.pop(peer, None)
        if route is not None:
            route.close_off(error)  # a batch that holds the route posts no more
            route.fail_waiting(error)
            self.leaving.append(route)
        for queue in self._receive_queues:
            # tcp of 2.x reads the peer of a receive that it gets, and would crash.
            queue.fail_waiting(error, lambda receive: _is_directed(receive, peer.native))
            for receive in [receive for receive in queue.posted if _is_directed(receive, peer.native)]:
                if receive in queue.owner.recalled:
                    queue.owner.recalled[receive] = error
                else:
                    queue.owner.recall(receive, error)

    def keep_numbers(self, *numbers: int) -> None:
        """The provider needs these numbers until `release_numbers` is called, also if their peers are removed."""
        self.kept_numbers.update(numbers)

    def release_numbers(self, *numbers: int) -> None:
        self.kept_numbers -= Counter(numbers)

    def numbers_in_use(self) -> set[int]:
        self.leaving = [queue for queue in self.leaving if queue.posted]
        of_aliases = [queue for queue in self.orphans if isinstance(queue, Route) and queue.posted]
        receives = (receive for queue in self._receive_queues for receive in (*queue.posted, *queue.waiting))
        asked = {asked_for(receive)[0] for receive in receives}
        return {*self.kept_numbers, *asked, *(queue.peer for queue in (*self.leaving, *of_aliases))}

    @property
    def _receive_queues(self) -> list[SubmissionQueue]:
        """The queue of this endpoint, and those of closed aliases."""
        return [self.rx, *(queue for queue in self.orphans if queue.receives)]

    def receive_from(self, peer: Peer) -> int:
        require(Caps.DIRECTED_RECV, self.info)
        self.vector.check(peer)
        if self.vector.absent is not None:
            self.vector.absent.check_receivable(peer.native)
        return peer.native

    @property
    def submission_queues(self) -> tuple[SubmissionQueue, ...]:
        return (*super().submission_queues, *self.leaving)

    def release(self) -> None:
        self._end_receives()
        self._handle_arrived()
        self.source.close()
        if self.lingered:
            self._close_native()
        else:
            super().release()


def _is_directed(receive: Transfer, number: int) -> bool:
    """Whether this is a receive of messages from this peer. A peek ends without them, and a claim has its message."""
    return receive.what != "fi_trecvmsg" and asked_for(receive)[0] == number


def _no_peer(what: str, given: object) -> TypeError:
    missing = f"a {what} may have many peers" if given is None else f"{given!r} is no Peer"
    return TypeError(f"{missing}: name the peer with to=, as add_peer() and Message.source return it")
