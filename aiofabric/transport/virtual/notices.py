"""Notices: release the memory of closed regions when no answer to a peer's read can refer to it any more.

The provider answers a read from the memory itself, behind all that it sends to the same peer (transport/readers.py). All
virtual connections to a peer share one native connection, which also answers the reads of connections that have ended.
So the memory is kept for the multiplexer and not for a connection: until an empty message to each peer, which no
connection takes, has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._ffi import ffi, lib
from ..readers import release_after
from .protocol import ID, KIND_CREDITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...address_vector import Peer
    from ...cq.operation import Operation
    from ..connectionless.handle import ConnectionlessHandle

__all__ = ["NOBODY", "Notices"]

NOBODY = ID
"""An id that no connection has: the receiver drops a message for it."""


class Notices:
    """Sends the notices of one multiplexer. ``peers`` returns those that may still be answered."""

    def __init__(self, handle: ConnectionlessHandle, peers: Callable[[], Iterable[Peer]]) -> None:
        self._handle = handle
        self._peers = peers

    def begin(self) -> None:
        """Send a notice to each peer, and then release the memory that is kept now."""
        handle = self._handle
        peers = list(self._peers())
        missing, count = 1 + len(peers), len(handle.kept)

        def left(_: Operation | None = None) -> None:
            nonlocal missing
            missing -= 1
            if not missing and not handle.closed:  # what a closed endpoint keeps goes with its native half
                # The endpoint may be its own peer. It answers itself over another native connection.
                release_after([handle], handle, count)

        for peer in peers:
            args = (handle.fid, ffi.NULL, 0, ffi.NULL, peer.native, NOBODY | KIND_CREDITS)
            try:
                handle.route_to(peer).submit("notice", lib.fi_tsend, args, None, 0).notify = left
            except OSError:  # the peer is gone, and its connection with it
                left()
        left()
