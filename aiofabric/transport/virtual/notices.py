"""Notices: release the memory of closed regions when no answer to a peer's read can refer to it any more.

The provider answers a read from the memory itself, behind all that it sends to the same peer (transport/readers.py). A
write that has begun goes on. All virtual connections to a peer share one native connection, which also carries the
reads and writes of connections that have ended. So the memory is kept for the multiplexer and not for a connection:
until an empty message to each peer, which no connection takes, was delivered (FI_DELIVERY_COMPLETE). It has left behind
the answers to reads, and its acknowledgement has come behind the writes. With rxd, an acknowledgement may overtake a
write, so there the memory is kept for a fixed time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..._ffi import constants
from ...features import Quirk
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


_LATE: Final = 30.0
"""Seconds for which memory is kept without notices. rxd carries 64 MiB over loopback in 5.5 s."""


class Notices:
    """Sends the notices of one multiplexer. ``peers`` returns those that may still be answered."""

    def __init__(self, handle: ConnectionlessHandle, peers: Callable[[], Iterable[Peer]]) -> None:
        self._handle = handle
        self._peers = peers

    def begin(self) -> None:
        """Send a notice to each peer, and then release the memory that is kept now."""
        handle = self._handle
        if Quirk.ACKNOWLEDGEMENTS_OVERTAKE in handle.known:
            release = partial(release_after, handle, len(handle.kept))
            handle.source.driver.call_later(_LATE, release)
            return
        peers = list(self._peers())
        missing, count = 1 + len(peers), len(handle.kept)

        def left(_: Operation | None = None) -> None:
            nonlocal missing
            missing -= 1
            if not missing and not handle.closed:  # what a closed endpoint keeps goes with its native half
                # The endpoint may be its own peer. It answers itself over another native connection.
                release_after(handle, count)

        for peer in peers:
            try:
                route = handle.route_to(peer)
                route.post(b"", NOBODY | KIND_CREDITS, flags=constants.FI_DELIVERY_COMPLETE).notify = left
            except OSError:  # the peer is gone, and its connection with it
                left()
        left()
