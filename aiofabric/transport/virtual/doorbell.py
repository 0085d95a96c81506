"""Bell: sleep for virtual connections whose provider wakes nobody (shm).

Such a queue has to be looked at, and looking costs a timer. But each connection has a line, a socket that does wake:
so a side that has seen nothing for a while tells every peer over the line that it sleeps and how many messages it
has, and stops looking. A peer that has sent more than that, or sends later, rings. Told before and counted, no
message can fall between the two.

Only where the provider keeps what it was given in the memory of one host: one that sends over a network by itself
(rxd) needs our looks to send lost packets again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from .protocol import FrameKind

if TYPE_CHECKING:
    from collections.abc import Sized

    from ...cq.source import Source
    from .oob_socket import Line

__all__ = ["Bell"]

_COUNT = struct.Struct("!Q")


class _Sending(Protocol):
    sent: int

    @property
    def posted(self) -> Sized: ...
    @property
    def waiting(self) -> Sized: ...


class Sleeper(Protocol):
    """What a doorbell asks of its connection."""

    line: Line | None
    received: int
    source: Source

    @property
    def tx(self) -> _Sending | None: ...


class Bell:
    """One end of one connection: whether the peer sleeps, and whether it believes that we do."""

    __slots__ = ("link", "peer_sleeps", "told")

    def __init__(self, link: Sleeper) -> None:
        self.link = link
        self.peer_sleeps = False
        self.told = False

    def ring(self) -> None:
        """Something is on its way to a peer that sleeps."""
        line = self.link.line
        if line is not None and line.send(FrameKind.RING):
            self.peer_sleeps = False

    def tell(self) -> bool:
        """We are going to sleep. False: the peer cannot be told."""
        link = self.link
        if not self.told and link.line is not None:
            self.told = link.line.send(FrameKind.ASLEEP, _COUNT.pack(link.received))
        return self.told or link.line is None or link.line.closed

    def heard(self, kind: int, body: bytes) -> None:
        """A frame of the peer's: it sleeps, or it rings."""
        tx = self.link.tx
        if kind == FrameKind.RING:
            self.told = False
            self.link.source.wake()
        elif len(body) == _COUNT.size and tx is not None:
            self.peer_sleeps = True
            if tx.sent > _COUNT.unpack(body)[0] or tx.posted or tx.waiting:
                self.ring()
