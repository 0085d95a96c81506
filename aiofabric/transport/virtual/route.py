"""ConnectionRoute: the route of a virtual connection, with its window of messages in flight; and the check of it.

The handshake of a connection runs over TCP. The fabric may still be separated: the devices are in different networks,
the authorization keys differ, or a firewall blocks the provider. Then the first message would wait for ever. So the
client sends a ping over the fabric, and waits for the pong, before the connection counts as open there (`check_path`).

The listener's side does not wait: a client that never sends a ping would delay the program's next accept. If the client
gives up, it closes the OOB socket, so the accepted endpoint ends at once.

Providers that stay within their host (shm, sm2) are not checked. They reach each other if the names of their memory
exist, which `Multiplexer.acquire_peer` checks. Also, shm of 1.17 crashes the listener's process if the client closes
before its first message was read, as a cancelled `connect` does. rxd is not checked, either: its ping may wait behind
what an earlier connection left.
"""

from __future__ import annotations

import errno
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from ..._ffi import constants, lib
from ...cq.operation import POSTED
from ...errors import FabricConnectionAbortedError, FabricError, FabricTimeoutError, UnreachableError, check
from ..connectionless.shm_same_process import INLINE
from ..handle import EndpointHandle
from ..route import Route
from .protocol import CREDITS, DIRECT, KIND, KIND_CREDITS, KIND_PING, POOL, SEQUENCE

if TYPE_CHECKING:
    from ...address import Address
    from ...cq.loops.drivers import Waiter
    from ...cq.submission import Transfer
    from ...remote_region import RemoteRegion
    from .doorbell import Doorbell
    from .protocol import Hello

__all__ = ["WINDOW_MOST", "ConnectionRoute", "SendingHandle", "check_path"]

_EAGAIN = constants.FI_EAGAIN
WINDOW_MOST = 127  # below half of 256, a count modulo 256 is unambiguous
_LIMIT = 10.0
"""Seconds that the pong may take. The peer sends it when its loop runs."""
_SHORT_LIMIT = 0.1
"""The same, if nothing depends on the pong."""
_LATE = -1


class SendingHandle(EndpointHandle):
    """The parts of its connection that a route needs."""

    __slots__ = ("announced", "doorbell", "last", "peer", "pong", "received", "taken")
    announced: int
    doorbell: Doorbell
    last: int | None
    peer: Any
    pong: Waiter | None
    received: int
    taken: int
    tx: ConnectionRoute | None

    @abstractmethod
    def unreachable(self, code: int) -> bool:
        """Whether this error code shows that the peer is lost."""


class ConnectionRoute(Route):
    """The route of a virtual connection: the peer's fi_addr, and the tags of its messages."""

    __slots__ = ("base", "connection", "notices", "owes", "room", "sent", "taken", "untold", "window")
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
        self.untold: tuple[int, ...] = ()  # pings and pongs that the provider has refused
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

    def post(
        self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int | None = None
    ) -> Transfer:
        transfer = super().post(data, 0, remote_data, flags)
        self._resume_polling()
        return transfer

    def post_rma(
        self, what: str, pins: Any, remote: RemoteRegion, remote_data: int | None, flags: int | None
    ) -> Transfer:
        transfer = super().post_rma(what, pins, remote, remote_data, flags)
        self._resume_polling()
        return transfer

    def _resume_polling(self) -> None:
        """An operation is under way, and perhaps no task waits for it: this side does not sleep meanwhile."""
        if self.source.polls:
            self.source.touch()

    def _try(self, transfer: Transfer) -> bool:
        if not transfer.what.startswith("fi_tsend"):
            posted = super()._try(transfer)
            self.accessed()
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

    def accessed(self) -> None:
        self.connection.doorbell.accessed()

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

    def tell(self, kind: int) -> None:
        """Send a ping or a pong: an empty message that carries the number of messages taken, too."""
        self._say(kind)
        if self.untold:
            self.source.touch()

    def _say(self, kind: int) -> None:
        tag = self.notices | kind | (self.connection.taken & 255) << CREDITS
        rc = lib.fi_tinject(self.handle.fid, b"", 0, self.peer, tag)
        if rc == -_EAGAIN:  # rxm is connecting, for example; it is tried again with growing delays, so without a touch
            self.untold += (kind,)
            self.refused = True
            self.source.enqueue(self)
        elif rc == 0:
            self.accessed()  # it is not counted either, and a peer that sleeps must answer it
        elif not self.connection.unreachable(-rc):
            check(rc, "fi_tinject", peer=self.name)

    def retry(self) -> int:
        moved = super().retry()
        if self.untold and self.connection.live:
            untold, self.untold = self.untold, ()
            for kind in untold:
                self._say(kind)
            moved += len(untold) - len(self.untold)
        if self.owes and self.connection.live:  # after the end, the multiplexer may be closed, too
            self.announce()
            moved += not self.owes
        return moved


async def check_path(connection: SendingHandle, peer: Address | None, *, required: bool = True) -> None:
    """Send a ping, and wait for the pong. Cancelling leaves the connection to the caller, which closes it.

    Args:
        peer: the address of the OOB socket's other end, for errors.
        required: whether a missing pong is an error. Within a host there is always a path, and the ping only makes the
            providers of both sides know each other; then this waits for 0.1 s at most.

    Raises:
        FabricTimeoutError: no pong came.
        UnreachableError: the provider cannot reach the peer.
        FabricConnectionAbortedError: the peer has ended and sent nothing before.
        ClosedResourceError: the endpoint was closed meanwhile.
    """
    connection.source.drain()  # the ping makes rxm's connection: see `SubmissionQueue.reads_first`
    code = await _answered(connection, peer, _LIMIT if required else _SHORT_LIMIT) if connection.live else None
    if code and required:
        raise _separated(connection, peer, code)
    if code is None:  # the connection has ended
        if connection.gone is None:
            raise ClosedResourceError("the endpoint was closed while it was connecting")
        if required and connection.last is None and not connection.received:
            detail = "The peer went away before it answered over the fabric"
            raise FabricConnectionAbortedError(errno.ECONNABORTED, "connect", peer=peer, detail=detail)


async def _answered(connection: SendingHandle, peer: Address | None, limit: float) -> int | None:
    """Send a ping and wait: 0 for the pong, an error code, `_LATE`, or None if the connection ended."""
    source = connection.source
    waiter = connection.pong = source.driver.create_waiter()
    connection.gone_waiters += (waiter,)

    def late() -> None:
        if not waiter.done():
            waiter.set_result(_LATE)

    source.interest += 1
    cancel = source.driver.call_later(limit, late)
    try:
        assert connection.tx is not None
        try:
            connection.tx.tell(KIND_PING)
        except FabricError as error:
            raise _separated(connection, peer, error.errno or 0) from error
        source.touch()
        code: int | None = await waiter
    finally:
        cancel()
        source.interest -= 1
        connection.pong = None
        connection.gone_waiters = tuple(each for each in connection.gone_waiters if each is not waiter)
    return code


def _separated(connection: SendingHandle, peer: Address | None, code: int) -> FabricError:
    """The error of a client that reaches the listener over TCP only."""
    info, fabric = connection.info, connection.peer.address
    over = f"the provider {info.fabric_attr.prov_name} from the device {info.domain_attr.name} to {fabric}"
    if code == _LATE:
        detail = f"TCP reaches the listener, but no message did within {_LIMIT:g} seconds over {over}"
        error: FabricError = FabricTimeoutError(errno.ETIMEDOUT, "connect", peer=peer, detail=detail)
    else:
        detail = f"TCP reaches the listener, but no message does over {over}"
        error = UnreachableError(code, "connect", peer=peer, detail=detail)
    error.cure = (
        "Check that both devices are in one network, with the same authorization key, and that no firewall blocks the "
        "provider. interface= chooses another device, provider= another provider"
    )
    return error
