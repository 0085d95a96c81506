"""Notices: release the memory of closed regions when no read and no write of a peer can use it any more.

The provider answers a read from the memory itself, behind all that it sends to the same peer, and receives a write into
it (transport/peer_access.py). All virtual connections to a peer share one native connection, which also carries the
reads and writes of connections that have ended. So the memory is kept for the multiplexer and not for a connection,
until each peer is done with it:

- A peer with a connection answers a ping. The ping leaves behind the answers to the peer's reads, and the pong comes
  behind its writes.
- A peer without one gets a notice that is for no connection. It has left behind the answers to reads. If peers may
  write into the memory, the notice asks for an answer, which comes behind the writes. It says where the answer goes:
  messages of virtual connections do not name their sender. It is sent again, with growing delays, because a peer that
  closes its endpoint meanwhile never answers.
- A peer that has ended refuses the notice for ever, over rxm, which reports no error (rxm_connect). The native
  connection has ended then, and the writes with it: the peer is removed after a while.
- A peer that neither answers nor refuses, because it was stopped, for example, is removed after `_LATE` seconds.

Removing a peer does not end its writes: rxm keeps the native connection of a removed address.

FI_DELIVERY_COMPLETE would not replace the pong: over rxm, a small message completes before it has arrived. With rxd, an
answer may overtake a write, so there the memory is kept for a fixed time.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from ..._ffi import constants
from ...cq.operation import FINISHED, QUEUED
from ...features import Quirk
from ..peer_access import release_after
from .protocol import KIND, KIND_CREDITS, KIND_PING, KIND_PONG, NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...address_vector import Peer
    from ...cq.operation import Operation
    from ...cq.submission import Transfer
    from ..connectionless.handle import ConnectionlessHandle

__all__ = ["Notices"]

_LATE: Final = 30.0
"""Seconds for which memory is kept if nothing tells that it is not used. rxd carries 64 MiB over loopback in 5.5 s."""

_REFUSED_MOST: Final = 2.0
"""Seconds until a peer that has no connection, and takes no notice, is removed."""

_DELAYS: Final = (0.05, 0.25, 1.0, 2.0)
"""Seconds between two notices. A loop that runs answers the first one within a millisecond."""

_TOKEN: Final = 8  # bytes that name a notice in its answer; no other peer can guess them


class CarriedConnection(Protocol):
    """A connection to a peer."""

    def ask(self, answered: Callable[[bool], None]) -> None:
        """Send a ping. Call ``answered`` at the pong, or with False when the connection ends before."""


class PeerOwner(Protocol):
    """The peers of a multiplexer that may have reads and writes under way."""

    def reachable(self) -> Mapping[Peer, CarriedConnection | None]:
        """The peers, each with one of its connections, if it has any."""

    def find(self, raw: bytes) -> Peer | None:
        """The peer with a raw address."""

    def lose(self, peer: Peer) -> None:
        """Remove a peer that has no connection any more."""

    @property
    def raw_address(self) -> bytes:
        """The address of this side, as its peers know it."""


class Notices:
    """Sends the notices of one multiplexer."""

    def __init__(self, handle: ConnectionlessHandle, peers: PeerOwner) -> None:
        self.handle = handle
        self.peers = peers
        self.asked: dict[bytes, _Notice] = {}
        """The notices that wait for an answer, by their token."""

    def begin(self) -> None:
        """Wait for each peer, and then release the memory that is kept now."""
        handle = self.handle
        if Quirk.ACKNOWLEDGEMENTS_OVERTAKE in handle.known:
            release = partial(release_after, handle, len(handle.kept))
            handle.source.driver.call_later(_LATE, release)
            return
        peers = self.peers.reachable()
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
        if self.over:
            return
        peers = self.peers.reachable()
        connection = peers.get(peer)
        if connection is not None:

            def answered(yes: bool) -> None:
                done() if yes else self._wait_for(peer, done, writable)

            connection.ask(answered)
        elif peer in peers:
            _Notice(self, peer, writable, done, partial(self._wait_for, peer, done, writable)).send()
        else:  # it was removed
            done()

    @property
    def over(self) -> bool:
        """Whether the endpoint is closed: what it kept is released then, and no peer is waited for."""
        return self.handle.closed or self.handle.source.driver.closed()

    def arrived(self, body: bytes, tag: int) -> None:
        """A message that is for no connection: a notice that wants an answer, or the answer."""
        token, raw = body[:_TOKEN], body[_TOKEN:]
        if tag & KIND == KIND_PONG and token in self.asked:
            self.asked[token].end()
        elif tag & KIND == KIND_PING:
            self.handle.source.driver.call_soon(partial(self._answer, token, raw))

    def _answer(self, token: bytes, raw: bytes) -> None:
        peer = None if self.over else self.peers.find(raw)
        if peer is not None:  # any other sender has had no connection
            with suppress(OSError):  # if it is not sent now, the next notice is answered
                self.handle.route_to(peer).inject(token, NOBODY | KIND_PONG)


class _Notice:
    """Tells a peer without a connection, as often as needed, and waits until nothing of it is under way.

    Calls ``done`` then, or ``connected`` if the peer has a connection again.
    """

    def __init__(
        self, notices: Notices, peer: Peer, writable: bool, done: Callable[[], None], connected: Callable[[], None]
    ) -> None:
        self._notices = notices
        self._peer = peer
        self._writable = writable
        self._done = done
        self._connected = connected
        self._token = secrets.token_bytes(_TOKEN)
        self._until = monotonic() + _LATE
        self._sent = 0.0
        self._step = 0
        self._ended = False
        self._transfer: Transfer | None = None
        if writable:
            notices.asked[self._token] = self

    def end(self) -> None:
        """Nothing of the peer is under way any more."""
        if not self._ended:
            self._stop()
            self._done()

    def _stop(self) -> None:
        self._ended = True
        self._notices.asked.pop(self._token, None)

    def send(self) -> None:
        notices = self._notices
        body, kind = (self._token + notices.peers.raw_address, KIND_PING) if self._writable else (b"", KIND_CREDITS)
        self._sent = monotonic()
        try:
            route = notices.handle.route_to(self._peer)
            if route.reads_first:
                route.reads_first = True  # again: the peer may have ended since the last call
            self._transfer = route.post(body, NOBODY | kind, flags=constants.FI_DELIVERY_COMPLETE)
        except OSError:  # the peer is gone, and its connection with it
            self.end()
            return
        self._transfer.notify = self._left
        self._look_later()

    def _left(self, notice: Operation) -> None:
        # If the notice failed, the connection has ended.
        if not self._writable or (notice.error is not None and self._is_released()):
            self.end()

    def _is_released(self) -> bool:
        """Whether the peer is known, and has no connection."""
        return self._notices.peers.reachable().get(self._peer, self) is None

    def _look_later(self) -> None:
        if not self._ended:
            delay = _DELAYS[min(self._step, len(_DELAYS) - 1)]
            self._step += 1
            self._notices.handle.source.driver.call_later(delay, self._look)

    def _look(self) -> None:
        if self._ended or self._notices.over:
            return
        transfer, now = self._transfer, monotonic()
        if self._notices.peers.reachable().get(self._peer) is not None:
            self._stop()
            self._connected()
        elif now > self._until or self._refused(now):
            self._notices.peers.lose(self._peer)
            self.end()
        elif self._is_released() and transfer is not None and transfer.state is FINISHED:
            self.send()
        else:
            self._look_later()

    def _refused(self, now: float) -> bool:
        """Whether the native connection has ended: nothing else that could fill it is posted, and it takes nothing."""
        transfer = self._transfer
        if transfer is None or transfer.state is not QUEUED or now < self._sent + _REFUSED_MOST:
            return False
        return not self._is_released() or not self._notices.handle.route_to(self._peer).posted
