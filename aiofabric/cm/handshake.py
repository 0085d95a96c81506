"""Handshake: the states of an endpoint from opened to connected, and from connected to gone.

    OPEN -> CONNECTING -> CONNECTED -> PEER_GONE -> CLOSED        any state -> CLOSED

FI_SHUTDOWN does not report whether the end was orderly. So the state PEER_GONE does not distinguish the two.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from .._core import refuse_pointers
from .._ffi import constants, ffi, lib
from ..address import Address
from ..errors import (
    FabricConnectionAbortedError,
    FabricConnectionRejectedError,
    FabricConnectionResetError,
    FabricError,
    FabricTimeoutError,
    InternalError,
    check,
    from_errno,
)
from ..features import Quirk, quirks
from .events import CONNECTED as CONNECTED_EVENT
from .events import SHUTDOWN, Event, EventError
from .preface import MAX_PARAM, Preface

if TYPE_CHECKING:
    from ..cq.loops.drivers import Waiter
    from ..cq.source.source import Source
    from ..info import Info
    from .queue import EventQueue

__all__ = [
    "CHECK_BOTH_SIDES",
    "DEVICE_REMOVED",
    "MOVES",
    "ConnectionState",
    "Handshake",
    "Stage",
    "check_param",
    "data_limit",
    "foreign",
    "name_of",
    "rejection",
]


# Codes by which tcp reports that the peer closed the socket before its answer was complete. 2.x reports FI_EIO. 1.17
# reports errno, which recv() does not set here (tcpx_conn_mgr.c): it is the last error of any call of this thread, such
# as ENOENT of an event loop's epoll_ctl. connect(2) returns none of these codes.
_CUT_OFF = frozenset(
    (
        constants.FI_EIO, constants.FI_EINPROGRESS, constants.FI_EAGAIN, errno.ENOENT, errno.EEXIST, errno.EINTR,
        errno.ENOTTY, errno.EALREADY, errno.ESRCH, errno.ECHILD, errno.ENOTDIR, errno.ESPIPE,
    )
)  # fmt: skip
DEVICE_REMOVED = "The device was removed from this host"
CHECK_BOTH_SIDES = "Check the port, and that both sides use aiofabric or libfabric with the same provider"


class ConnectionState(Enum):
    """The states of a connection."""

    OPEN = "open"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    PEER_GONE = "peer gone"
    CLOSED = "closed"


MOVES: dict[ConnectionState, frozenset[ConnectionState]] = {
    ConnectionState.OPEN: frozenset({ConnectionState.CONNECTING, ConnectionState.CLOSED}),
    ConnectionState.CONNECTING: frozenset(
        {ConnectionState.CONNECTED, ConnectionState.PEER_GONE, ConnectionState.CLOSED}
    ),
    ConnectionState.CONNECTED: frozenset({ConnectionState.PEER_GONE, ConnectionState.CLOSED}),
    ConnectionState.PEER_GONE: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}


def check_param(param: Any, limit: int) -> bytes:
    """Private data as bytes; raises if it is too long, because the providers only assert the size (or overflow)."""
    refuse_pointers(param)
    try:
        data = bytes(memoryview(param))  # bytes(number) would return that many zero bytes
    except TypeError:
        raise TypeError(f"param must be bytes, the private data for the other side, not {param!r}") from None
    if len(data) > limit:
        raise ValueError(f"private data has {len(data)} bytes; this provider carries at most {limit}")
    return data


def data_limit(fid: Any, info: Info) -> int:
    """Bytes of private data that an enabled endpoint, or a passive one, carries (FI_OPT_CM_DATA_SIZE)."""
    value, size = ffi.new("size_t *"), ffi.new("size_t *", ffi.sizeof("size_t"))
    if Quirk.OPTIONS_NEED_ENABLE in quirks(info):
        return MAX_PARAM
    fid = ffi.cast("struct fid *", fid)
    if lib.fi_getopt(fid, constants.FI_OPT_ENDPOINT, constants.FI_OPT_CM_DATA_SIZE, value, size):
        return MAX_PARAM
    return min(int(value[0]), MAX_PARAM)


def name_of(fid: Any, info: Info, call: Any) -> Address:
    """The address of an endpoint by ``fi_getname``, or of its peer by ``fi_getpeer``."""
    size = ffi.new("size_t *", 1024)  # ucx has names of that size
    room = ffi.new("char[]", 1024)
    target = ffi.cast("struct fid *", fid) if call is lib.fi_getname else fid
    check(call(target, room, size), "fi_getname" if call is lib.fi_getname else "fi_getpeer")
    return Address(info.addr_format, bytes(ffi.buffer(room, size[0])))


def rejection(param: bytes, peer: object, call: str) -> FabricError:
    """The error for a request that the listener rejected with ``param``."""
    error = FabricConnectionRejectedError(constants.FI_ECONNREFUSED, call, peer=peer)
    error.param = param
    error.detail = "The listener rejected the request" + (f", saying {_words(param)!r}" if param else "")
    return error


def _words(param: bytes) -> str | bytes:
    """The data as text if it is printable; otherwise as bytes."""
    text = param.decode(errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else param


def foreign(peer: object, call: str) -> FabricError:
    """The error for a peer that answered with another protocol than the provider's."""
    error = FabricConnectionAbortedError(constants.FI_ECONNABORTED, call, peer=peer)
    error.detail = "The server at this address uses another protocol, such as HTTP or that of another provider"
    error.cure = CHECK_BOTH_SIDES
    return error


class Stage:
    """The state of one connection."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = ConnectionState.OPEN

    def move(self, state: ConnectionState) -> None:
        if state not in MOVES[self.state]:
            raise InternalError(f"connection: impossible move from {self.state.value} to {state.value}")
        self.state = state

    def end(self) -> None:
        """The endpoint is closed."""
        if self.state is not ConnectionState.CLOSED:
            self.move(ConnectionState.CLOSED)


class Handshake(Stage):
    """The connection states of one endpoint, changed by the events of its queue.

    ``gone`` is called once when a connected endpoint has lost its peer.
    """

    __slots__ = ("_error", "_events", "_fid", "_key", "_source", "_waiter", "gone", "limit", "loss", "param", "peer")

    def __init__(self, source: Source, events: EventQueue, fid: Any, peer: Address | None) -> None:
        super().__init__()
        self.peer = peer
        self.param = b""  # private data of the accepting side
        self._source = source
        self._events = events
        self._fid = fid
        self._error: BaseException | None = None
        self._waiter: Waiter | None = None
        self._key: int | None = None
        self.gone: Any = None
        self.limit: float | None = None  # seconds for an event that establishes the connection, or says that it failed
        self.loss = ""  # why the connection was lost, in words, if the provider has said it

    async def connect(self, address: Any, param: bytes) -> None:
        """fi_connect, until FI_CONNECTED. If this is interrupted, the caller must close the endpoint."""
        self._begin()
        data = ffi.from_buffer(param) if param else ffi.NULL
        check(lib.fi_connect(self._fid, address, data, len(param)), "fi_connect", peer=self.peer)
        await self._established()

    async def accept(self, param: bytes) -> None:
        """fi_accept, until FI_CONNECTED.

        The passive side gets FI_CONNECTED also if the peer has left meanwhile; then the state is PEER_GONE.
        """
        self._begin()
        data = ffi.from_buffer(param) if param else ffi.NULL
        check(lib.fi_accept(self._fid, data, len(param)), "fi_accept", peer=self.peer)
        await self._established()
        self._source.drain()
        self._events.drain()  # FI_SHUTDOWN may directly follow FI_CONNECTED
        self.param = b""  # 2.x's tcp reports this side's own data here, followed by 256 bytes of its stack

    def _begin(self) -> None:
        self.move(ConnectionState.CONNECTING)
        self._key = self._events.handle_events_of(self._fid, self)

    async def _established(self) -> None:
        self._source.touch_events()
        driver, forget = self._source.driver, None
        self._waiter = driver.create_waiter()
        if self.limit is not None:
            forget = driver.call_later(self.limit, self._give_up)
        self._source.interest += 1
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._source.interest -= 1
            if forget is not None:
                forget()
        if self._error is not None:
            raise self._error

    def _give_up(self) -> None:
        detail = f"The provider has not answered for {self.limit:g} seconds"
        self._forget()  # an event that comes later changes nothing
        self.wait_failed(FabricTimeoutError(constants.FI_ETIMEDOUT, "fi_connect", peer=self.peer, detail=detail))

    def event(self, event: Event) -> None:
        if event.kind == CONNECTED_EVENT:
            self.param = event.param
            self.move(ConnectionState.CONNECTED)
            self._wake()
        elif event.kind == SHUTDOWN and self.state in (ConnectionState.CONNECTING, ConnectionState.CONNECTED):
            connecting = self.state is ConnectionState.CONNECTING
            self.move(ConnectionState.PEER_GONE)
            if connecting:
                self._error = self.aborted("fi_connect")
            self._forget()  # the native endpoint closes next, and its address may be used again
            self._wake()
            if self.gone is not None:
                self.gone()

    def peer_ended(self) -> None:
        """The peer has ended the connection in order, by a message; or it does not answer (connected/heartbeat.py)."""
        if self.state is ConnectionState.CONNECTED:
            self.event(Event(SHUTDOWN, self._key or 0, b"", ffi.NULL))

    def event_error(self, error: EventError) -> None:
        if self.state is ConnectionState.CONNECTING:
            self.move(ConnectionState.PEER_GONE)
            self._error = self.refusal(error)
            self._wake()
        elif self.state is ConnectionState.CONNECTED:
            self.loss = DEVICE_REMOVED if error.errno == constants.FI_ENODEV else ""
            self.event(Event(SHUTDOWN, error.fid, b"", ffi.NULL))

    def wait_failed(self, error: FabricError) -> int:
        if self.state is not ConnectionState.CONNECTING:
            return 0
        self.move(ConnectionState.PEER_GONE)
        self._error = error
        self._wake()
        return 1

    def refusal(self, error: EventError) -> FabricError:
        if error.errno == constants.FI_ENOPROTOOPT:  # tcp read something that is not its header
            return foreign(self.peer, "fi_connect")
        if error.errno == constants.FI_ECONNREFUSED and error.param:
            return rejection(Preface.split(error.param)[0], self.peer, "fi_connect")
        exception = from_errno(
            constants.FI_ECONNRESET if error.errno in _CUT_OFF else error.errno,
            "fi_connect",
            provider_errno=error.provider_errno,
            provider_text=error.text,
            peer=self.peer,
        )
        if isinstance(exception, FabricConnectionResetError):
            exception.detail = (
                "The peer ended the handshake without an answer: its process ended, or it is not a listener"
            )
            exception.cure = CHECK_BOTH_SIDES
        return exception

    def aborted(self, call: str) -> FabricError:
        """The error for a peer that left before the connection was established."""
        detail = "The peer went away before the connection was established"
        return FabricConnectionAbortedError(constants.FI_ECONNABORTED, call, peer=self.peer, detail=detail)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._source.woke()
            self._waiter.set_result(None)

    def _forget(self) -> None:
        if self._key is not None:
            self._events.forget(self._key)
            self._key = None

    def end(self) -> None:
        """The endpoint is closed: no event comes any more, and no task waits for one."""
        self._forget()
        if self._error is None:
            self._error = ClosedResourceError("the endpoint was closed while it was connecting")
        if not self._source.driver.closed():
            self._wake()
        super().end()
