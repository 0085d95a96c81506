"""ConnectionRoute: the route of a virtual connection, with its window of messages in flight."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, lib
from ...cq.operation import POSTED
from ...errors import FabricError, check
from ..handle import EndpointHandle
from ..route import Route
from ..workarounds.shm_same_process import INLINE
from .protocol import CREDITS, DIRECT, KIND, KIND_CREDITS, POOL, SEQUENCE

if TYPE_CHECKING:
    from ...cq.submission import Transfer
    from .doorbell import Doorbell
    from .protocol import Hello

__all__ = ["WINDOW_MOST", "ConnectionRoute", "SendingHandle"]

_EAGAIN = constants.FI_EAGAIN
WINDOW_MOST = 127  # below half of 256, a count modulo 256 is unambiguous


class SendingHandle(EndpointHandle):
    """The parts of its connection that a route needs."""

    __slots__ = ("announced", "doorbell", "peer", "taken")
    announced: int
    doorbell: Doorbell
    peer: Any
    taken: int

    @abstractmethod
    def unreachable(self, code: int) -> bool:
        """Whether this error code shows that the peer is lost."""


class ConnectionRoute(Route):
    """The route of a virtual connection: the peer's fi_addr, and the tags of its messages."""

    __slots__ = ("base", "connection", "notices", "owes", "room", "sent", "taken", "window")
    direct = False

    def __init__(self, connection: SendingHandle, peer: int, hello: Hello, name: object, *, near: bool) -> None:
        super().__init__(connection, peer, name)
        self.connection = connection
        self.base = hello.connection | (hello.pool << POOL if hello.room else DIRECT)
        self.notices = hello.connection | hello.pool << POOL
        self.room = hello.room
        self.window = min(hello.credits, WINDOW_MOST)
        self.sent = 0
        self.taken = 0  # how many of the sent messages the peer's program has taken
        self.owes = False
        if near:
            self.inject_size = min(self.inject_size, INLINE)
        if hello.room:
            self.inject_size = min(self.inject_size, hello.room)

    def _stamp(self) -> int:
        connection = self.connection
        if not self.room:
            return self.base
        connection.announced = connection.taken
        return self.base | (connection.taken & 255) << CREDITS | (self.sent & 255) << SEQUENCE

    def _inject(self, data: bytes, tag: int | None) -> bool:
        if self.sent - self.taken >= self.window:
            return False
        tag = self._stamp()
        self.sent += 1  # before the call: after Ctrl-C in it, the peer has the message
        rc = lib.fi_tinject(self.handle.fid, data, len(data), self.peer, tag)
        if rc == 0:
            if self.connection.doorbell.peer_sleeps:
                self.connection.doorbell.ring()
            return True
        self.sent -= 1
        if rc != -_EAGAIN:
            if self.connection.unreachable(-rc):
                raise (self.connection.gone or self.connection.lost_peer)()
            check(rc, "fi_tinject", peer=self.name)
        return False

    def post(self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int = 0) -> Transfer:
        return super().post(data, 0, remote_data, flags)

    def _try(self, transfer: Transfer) -> bool:
        if not transfer.what.startswith("fi_tsend"):
            posted = super()._try(transfer)
            if self.connection.doorbell.peer_sleeps:
                self.connection.doorbell.ring()
            return posted
        if self.sent - self.taken >= self.window:
            return False
        assert transfer.post is not None
        function, args = transfer.post
        if transfer.what == "fi_tsendmsg":
            args[1].tag = args[1].tag & KIND | self._stamp()
        else:
            transfer.post = function, (*args[:-2], args[-2] & KIND | self._stamp(), args[-1])
        try:
            posted = super()._try(transfer)
        except FabricError as error:
            if self.connection.unreachable(error.errno or 0):
                raise (self.connection.gone or self.connection.lost_peer)() from error
            raise
        finally:
            self.sent += transfer.state is POSTED  # also after Ctrl-C: the provider has it
        if self.connection.doorbell.peer_sleeps:
            self.connection.doorbell.ring()
        return posted

    def granted(self, count: int) -> None:
        """The peer has taken ``count`` messages in all, modulo 256."""
        newly = (count - self.taken) & 255
        if 0 < newly <= min(WINDOW_MOST, self.sent - self.taken):
            self.taken += newly
            if self.waiting:
                self.source.touch()

    def announce(self) -> None:
        """Send the peer the number of messages taken, if no message to it carries the number."""
        connection = self.connection
        tag = self.notices | KIND_CREDITS | (connection.taken & 255) << CREDITS
        rc = lib.fi_tinject(self.handle.fid, b"", 0, self.peer, tag)
        self.owes = rc == -_EAGAIN
        if rc == 0:
            connection.announced = connection.taken
        elif self.owes:
            self.refused = True
            self.source.enqueue(self)
            self.source.touch()
        elif not connection.unreachable(-rc):
            check(rc, "fi_tinject", peer=self.name)

    def retry(self) -> int:
        moved = super().retry()
        if self.owes and self.connection.live:  # after the end, the multiplexer may be closed, too
            self.announce()
            moved += not self.owes
        return moved
