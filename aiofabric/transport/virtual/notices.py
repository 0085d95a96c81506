"""Notices: release the memory of closed regions when no read and no write of a peer can use it any more.

The provider answers a read from the memory itself, behind all that it sends to the same peer, and receives a write into
it (transport/peer_access.py). All virtual connections to a peer share one native connection, which also carries the
reads and writes of connections that have ended. So the memory is kept for the multiplexer and not for a connection,
until each peer is done with it:

- A peer with a connection answers a ping. The ping leaves behind the answers to the peer's reads, and the pong comes
  behind its writes.
- A peer without one gets an empty message that no connection takes. It has left behind the answers to reads. If peers
  may write into the memory, the peer is then removed from the address vector: the provider closes what it still has
  open to this peer, and the writes end.
- A peer that has ended refuses that message for ever, over rxm, which reports no error (rxm_connect). It is removed
  after a while.

FI_DELIVERY_COMPLETE would not replace the pong: over rxm, a small message completes before it has arrived. With rxd, an
answer may overtake a write, so there the memory is kept for a fixed time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ..._ffi import constants
from ...cq.operation import QUEUED
from ...features import Quirk
from ..peer_access import release_after
from .protocol import ID, KIND_CREDITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...address_vector import Peer
    from ...cq.operation import Operation
    from ...cq.submission import Transfer
    from ..connectionless.handle import ConnectionlessHandle

__all__ = ["NOBODY", "Notices"]

NOBODY = ID
"""An id that no connection has: the receiver drops a message for it."""


_LATE: Final = 30.0
"""Seconds for which memory is kept without notices. rxd carries 64 MiB over loopback in 5.5 s."""

_REFUSED_MOST: Final = 2.0
"""Seconds until a peer that has no connection, and takes no notice, is removed."""


class CarriedConnection(Protocol):
    """A connection to a peer."""

    def ask(self, answered: Callable[[bool], None]) -> None:
        """Send a ping. Call ``answered`` at the pong, or with False when the connection ends before."""


class PeerOwner(Protocol):
    """The peers of a multiplexer that may have reads and writes under way."""

    def reachable(self) -> Mapping[Peer, CarriedConnection | None]:
        """The peers, each with one of its connections, if it has any."""

    def lose(self, peer: Peer) -> bool:
        """Remove a peer that has no connection any more; False if it has one."""


class Notices:
    """Sends the notices of one multiplexer."""

    def __init__(self, handle: ConnectionlessHandle, peers: PeerOwner) -> None:
        self._handle = handle
        self._peers = peers

    def begin(self) -> None:
        """Wait for each peer, and then release the memory that is kept now."""
        handle = self._handle
        if Quirk.ACKNOWLEDGEMENTS_OVERTAKE in handle.known:
            release = partial(release_after, handle, len(handle.kept))
            handle.source.driver.call_later(_LATE, release)
            return
        peers = self._peers.reachable()
        missing, count = 1 + len(peers), len(handle.kept)
        writable = any(kept.writable for kept in handle.kept)

        def done() -> None:
            nonlocal missing
            missing -= 1
            if not missing and not handle.closed:  # what a closed endpoint keeps goes with its native half
                # The endpoint may be its own peer. It answers itself over another native connection.
                release_after(handle, count)

        for peer in peers:
            self._wait_for(peer, done, writable)
        done()

    def _wait_for(self, peer: Peer, done: Callable[[], None], writable: bool) -> None:
        """Call ``done`` when the peer's reads, and its writes if there may be any, have ended."""
        if self._over():
            return
        peers = self._peers.reachable()
        connection = peers.get(peer)
        if connection is not None:

            def answered(yes: bool) -> None:
                done() if yes else self._wait_for(peer, done, writable)

            connection.ask(answered)
        elif peer in peers:
            self._notify(peer, done, writable)
        else:  # it was removed
            done()

    def _notify(self, peer: Peer, done: Callable[[], None], writable: bool) -> None:
        def left(_: Operation | None = None) -> None:
            if writable and not self._over() and not self._peers.lose(peer):
                self._wait_for(peer, done, writable)  # it has a connection again
            else:
                done()

        try:
            route = self._handle.route_to(peer)
            notice = route.post(b"", NOBODY | KIND_CREDITS, flags=constants.FI_DELIVERY_COMPLETE)
        except OSError:  # the peer is gone, and its connection with it
            left()
            return
        notice.notify = left
        self._watch(peer, notice)

    def _watch(self, peer: Peer, notice: Transfer) -> None:
        """Remove the peer if the provider refuses the notice for too long; the notice then fails."""
        if notice.state is QUEUED:
            self._handle.source.driver.call_later(_REFUSED_MOST, partial(self._still_refused, peer, notice))

    def _still_refused(self, peer: Peer, notice: Transfer) -> None:
        if not self._over() and notice.state is QUEUED and not self._peers.lose(peer):
            self._watch(peer, notice)  # it has a connection again, which is slow, or ends soon

    def _over(self) -> bool:
        return self._handle.closed or self._handle.source.driver.closed()
