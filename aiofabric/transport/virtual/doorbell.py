"""Doorbell: sleep for virtual connections whose provider signals no file descriptor (shm).

The queue of such a provider has to be polled, and polling needs a timer. But each connection has an OOB socket, which
does wake the loop. Before a side stops polling (cq/source/delays.py), it sends every peer the number of messages that
it has received, over the OOB socket. A peer that has sent more messages, or sends one later, rings the doorbell. Any
other peer answers, and this side polls until all have. So no message is missed, and none waits for a peer whose program
sends a message, and then computes without a return to its loop: such a peer does not answer.

This is used only if the provider keeps sent data in the memory of one host. A provider that sends over a network by
itself (rxd) needs regular polls to send lost packets again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from .protocol import FrameKind

if TYPE_CHECKING:
    from collections.abc import Sized

    from ...cq.source.source import Source
    from .oob_socket import OobSocket

__all__ = ["Doorbell"]

_COUNT = struct.Struct("!Q")


class _Sending(Protocol):
    sent: int

    @property
    def posted(self) -> Sized: ...
    @property
    def waiting(self) -> Sized: ...


class Sleeper(Protocol):
    """The parts of its connection that a doorbell needs."""

    oob_socket: OobSocket | None
    received: int
    source: Source

    @property
    def tx(self) -> _Sending | None: ...


class Doorbell:
    """One end of one connection: whether the peer sleeps, and whether the peer was told that this side sleeps."""

    __slots__ = ("announced", "connection", "peer_sleeps", "peer_will_ring", "uncounted")

    def __init__(self, connection: Sleeper) -> None:
        self.connection = connection
        self.peer_sleeps = False
        self.announced = False
        self.peer_will_ring = False  # the peer has answered the announcement: it will ring
        self.uncounted = False  # the peer may not have seen an access of its memory, and no number tells of it

    def accessed(self) -> None:
        """An access of the peer's memory was posted. A small one may be complete before the peer applies it."""
        if self.peer_sleeps:
            self.ring()
        else:  # or the peer has told that it sleeps, and its frame was not read yet
            self.uncounted = True

    def ring(self) -> None:
        """Wake a sleeping peer, to which a message was sent."""
        oob_socket = self.connection.oob_socket
        if oob_socket is not None and oob_socket.send(FrameKind.RING):
            self.peer_sleeps = False

    def announce_sleep(self) -> bool:
        """Tell the peer that this side stops polling. False: the peer has not answered yet, or cannot be told."""
        connection = self.connection
        if not self.announced and connection.oob_socket is not None:
            self.announced = connection.oob_socket.send(FrameKind.ASLEEP, _COUNT.pack(connection.received))
            self.peer_will_ring = False
        return self.peer_will_ring or connection.oob_socket is None or connection.oob_socket.closed

    def frame_received(self, kind: int, body: bytes) -> None:
        """Handle a frame of the peer: ASLEEP, WILL_RING or RING."""
        connection = self.connection
        tx = connection.tx
        if kind == FrameKind.RING:
            self.announced = self.peer_will_ring = False
            connection.source.wake()
        elif kind == FrameKind.WILL_RING:
            self.peer_will_ring = self.announced
            connection.source.touch()
        elif len(body) == _COUNT.size and tx is not None:
            self.peer_sleeps = True
            if self.uncounted or tx.sent > _COUNT.unpack(body)[0] or tx.posted or tx.waiting:
                self.uncounted = False
                self.ring()
            elif connection.oob_socket is not None:
                connection.oob_socket.send(FrameKind.WILL_RING)
