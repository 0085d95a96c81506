"""Half-open clients: connections to a listening port that send an incomplete request, or nothing.

tcp and net, in every version, read the first bytes of a new client with a recv that blocks (tcpx_conn_mgr.c, xnet_cm.c:
rx_cm_data). They read a header, and then the private data whose length the header names. A client that sends only the
header blocks the whole process until it sends the rest or disconnects. If that recv does not block, the provider
forgets the connection (2.x) or reads it again and again (1.17). A client that sends nothing holds a descriptor for
ever, without a limit on their number.

So new connections are examined before the provider reads them. A correct client sends its request in one segment. A
connection with only a part of a request is shut down, which the provider handles correctly; so is one that sends
nothing in time. Data may still arrive some microseconds later, between this examination and the provider's read. Then
the recv does not block, because accepted sockets inherit SO_RCVTIMEO from the listening one. A connection that the
provider forgets because of that is closed here.

Connectionless endpoints over TCP (rxm; tcp and net with FI_EP_RDM) accept connections while messages move, too often to
examine clients each time. For these endpoints, the kernel delays the accept of a client that has sent nothing
(TCP_DEFER_ACCEPT), and an incomplete request does not block.

Only sockets that are proved to be the provider's are touched: see `provider_sockets`.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..._ffi import clear_errno
from ...address import Address
from ...features import Quirk, quirks
from ...workarounds import is_on
from ..foreign_clients import ForeignClients
from ..queue import EventQueue
from .provider_sockets import (
    Mark,
    OwnSocket,
    bytes_received,
    host_and_port,
    next_descriptor,
    open_descriptors,
    peer_of,
    segments_sent,
    tcp_socket,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...cq.source.source import Source
    from ...fabric import Fabric
    from ...info import Info
    from ..requests import ConnectionRequest
    from .borrowed_socket import BorrowedSocket

__all__ = ["SILENT_MOST", "TIMEOUT", "GuardedQueue", "HalfOpenClients", "defer_silent_clients", "out_of_descriptors"]

TIMEOUT = 5.0
"""Seconds that a new connection may send nothing."""

SILENT_MOST = 256
"""Connections that may have sent nothing yet; a further one replaces the oldest."""

# The smallest positive timeout is two jiffies (8 ms), so many clients would add up to seconds. The kernel takes a
# negative one as "do not wait", and logs that at most ten times (net/core/sock.c).
_DO_NOT_WAIT = struct.pack("@ll", -1, 0)  # struct timeval
_VERSION = b"\3"  # TCPX_CTRL_HDR_VERSION, the first byte of a request
_HEADER_SIZE = 32  # struct ofi_ctrl_hdr (ofi_proto.h): version, type, length of the private data, ...
_LENGTH = struct.Struct("!2xH")
_DATA_MOST = 256  # the provider itself refuses more
_TICK = 0.01  # seconds that a timer may be early
_SEARCH = 0.2  # seconds from an accepted connection that was not found until all descriptors are examined
_SHARE = 10  # the search takes at most one part in this many of the time
_HOURS = 3600 * 4


def defer_silent_clients(source: Source, listening: list[OwnSocket]) -> None:
    """Make the kernel hold back clients that send nothing, at the port of a connectionless endpoint."""
    if not is_on("half_open_clients"):
        return
    incoming = select.poll()
    for each in listening:
        if (sock := each.verified()) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _DO_NOT_WAIT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _HOURS)
            incoming.register(sock, select.POLLIN)
    if listening:
        # 2.x's rxm accepts one connection in 10 ms. Until then the queue's descriptor is readable without an event.
        source.delays.may_stay_readable = lambda: bool(incoming.poll(0))


def out_of_descriptors() -> bool:
    """Whether this process can open no more descriptors: a listening socket then stays readable and accepts nothing."""
    return next_descriptor() is None


_T = TypeVar("_T")


class WatchedListener(Protocol):
    """A passive endpoint whose clients are examined."""

    info: Info
    source: Source

    @property
    def unanswered(self) -> Iterable[ConnectionRequest]: ...
    def cut_off(self) -> None: ...
    def read_events(self) -> None: ...


class _Client(NamedTuple):
    """A connection that the provider has accepted, and that is not yet a request."""

    peer: Any  # host and port
    socket: OwnSocket
    since: float
    shut_down: bool = False  # by this module


class HalfOpenClients:
    """Closes connections to a listener's port that send an incomplete request, or nothing within `TIMEOUT` seconds.

    A client is silent at first. When it sends data, leaves or is shut down, the provider makes a request of it or
    closes it. If neither has happened `TIMEOUT` seconds later, it is shut down. If it still exists `TIMEOUT` seconds
    after that, the provider has forgotten it, and it is closed here.

    Args:
        listener: the passive endpoint.
        listening: its sockets, before it listens.
    """

    def __init__(self, listener: WatchedListener, listening: list[OwnSocket]) -> None:
        self._listener = listener
        self._driver = listener.source.driver
        self._forgets = Quirk.FORGETS_HALF_REQUESTS in quirks(listener.info)
        self._mark = Mark()
        self._listening = {each.descriptor for each in listening}
        self._readable = select.epoll()  # the kernel removes sockets that the provider closes
        for each in listening:
            if (sock := each.verified()) is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _DO_NOT_WAIT)
                self._mark.put(sock)
                self._readable.register(sock, select.EPOLLIN)
        # Keyed by descriptor, so the number of descriptors bounds them; the oldest first.
        self._silent: dict[int, _Client] = {}
        self.handed_over: dict[int, _Client] = {}
        self._by_peer: dict[Any, int] = {}  # descriptors of both
        self._cancel: Callable[[], None] | None = None
        self._incoming = False  # the provider is about to accept
        self._free: list[int] = []  # descriptors that the accepted connection may get
        self.missed: float | None = None  # time since when an accepted connection was not found
        self._pause = _SEARCH
        self._foreign = ForeignClients()

    # -- around each read of the event queue

    def before_read(self) -> None:
        """Examine new data: the provider reads and accepts next."""
        self._incoming, self._free = False, []
        for descriptor, _ in self._readable.poll(0):
            if descriptor not in self._listening:
                self._examine(descriptor)
                self._free.append(descriptor)  # the provider may close it before it accepts
                continue
            self._incoming = True
            if (number := next_descriptor()) is not None:
                self._free.append(number)
        clear_errno()  # 1.17 takes the end of a connection for "try again" if an earlier call left that errno

    def after_read(self) -> None:
        """Find the connection that the provider accepted; it accepts at most one."""
        if self._incoming and not any(map(self._watch, self._free)):
            if self.missed is None:
                self.missed = monotonic()
                self._disarm()  # the timer may be later than the search
            self._arm()

    def became_request(self, address: Address | None) -> int | None:
        """The client at this address has become a request; return its descriptor, if known."""
        descriptor = None if address is None else self._by_peer.get(host_and_port(address))
        if descriptor is not None:
            self._forget(descriptor)
        return descriptor

    # -- one client

    def _accepted(self, descriptor: int) -> BorrowedSocket | None:
        """The socket, if the listening socket of this listener accepted it."""
        sock = tcp_socket(descriptor)
        return sock if sock is not None and descriptor not in self._listening and self._mark.on(sock) else None

    def _watch(self, descriptor: int) -> bool:
        """Watch the connection with this descriptor, unless it is watched already or is not this listener's."""
        sock = self._accepted(descriptor)
        if sock is None:
            return False
        with suppress(OSError):
            peer, own = peer_of(sock), OwnSocket(descriptor, os.fstat(descriptor).st_ino)
            known = self._silent.get(descriptor) or self.handed_over.get(descriptor)
            if known is not None and known.socket == own:
                return False
            self._forget(descriptor)  # the earlier connection with this descriptor
            if len(self._silent) >= SILENT_MOST:
                self._time_out(next(iter(self._silent)))
            self._readable.register(descriptor, select.EPOLLIN)
            self._silent[descriptor] = _Client(peer, own, monotonic())
            self._by_peer[peer] = descriptor
            self._arm()
            return True
        return False

    def _examine(self, descriptor: int) -> None:
        """A watched client has sent something, or has left."""
        client = self._forget(descriptor)
        if client is not None and (sock := self._half_open(client)) is not None:
            data = _pending(sock)
            if not data.startswith(_VERSION[: len(data)]):
                self._foreign.refused(Address.from_ip(*client.peer), data)
            self._hand_over(client, sock, shut_down=bool(data) and not is_request(data))

    def _time_out(self, descriptor: int) -> None:
        """Shut down a silent client, unless it sent its request while the provider was reading."""
        client = self._forget(descriptor)
        if client is not None and (sock := self._half_open(client)) is not None:
            self._hand_over(client, sock, shut_down=bytes_received(sock) < _HEADER_SIZE)

    def _hand_over(self, client: _Client, sock: BorrowedSocket, *, shut_down: bool) -> None:
        """Leave it to the provider to close the client, or to make a request of it."""
        if shut_down:
            with suppress(OSError):  # the client has left
                sock.shutdown(socket.SHUT_RDWR)
                self._listener.cut_off()
        descriptor = client.socket.descriptor
        self.handed_over[descriptor] = client._replace(since=monotonic(), shut_down=shut_down)
        self._by_peer[client.peer] = descriptor

    def _overdue(self, client: _Client) -> None:
        """The provider has neither closed the client nor made a request of it."""
        self._forget(client.socket.descriptor)
        sock = self._half_open(client)
        if sock is None:
            return
        if not client.shut_down:
            self._hand_over(client, sock, shut_down=True)
        elif self._forgets:
            _close(sock)

    def _half_open(self, client: _Client) -> BorrowedSocket | None:
        """The client's socket; None if it is closed, or is a request or a connection by now."""
        sock = client.socket.verified()
        return None if sock is None or self._is_in_use(sock) else sock

    def _is_in_use(self, sock: BorrowedSocket) -> bool:
        """Whether this side has answered the client, or the program still has to."""
        if segments_sent(sock):
            return True
        with suppress(OSError):
            requests = {host_and_port(request.address) for request in self._listener.unanswered if request.address}
            return peer_of(sock) in requests
        return False

    def _forget(self, descriptor: int) -> _Client | None:
        with suppress(OSError):
            self._readable.unregister(descriptor)
        client = self._silent.pop(descriptor, None) or self.handed_over.pop(descriptor, None)
        if client is not None and self._by_peer.get(client.peer) == descriptor:
            del self._by_peer[client.peer]
        return client

    # -- time

    def _arm(self) -> None:
        if self._cancel is None:
            due = [next(iter(each.values())).since + TIMEOUT for each in (self._silent, self.handed_over) if each]
            if self.missed is not None:
                due.append(self.missed + self._pause)
            if due:
                self._cancel = self._driver.call_later(max(min(due) - monotonic(), _TICK), self._late)

    def _disarm(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _late(self) -> None:
        try:
            self._listener.read_events()  # a loop that was blocked may not have read requests yet
            late = monotonic() - TIMEOUT + _TICK
            if self.missed is not None and self.missed + self._pause <= monotonic() + _TICK:
                self.missed = monotonic()
                with suppress(OSError):  # the whole system is out of descriptors: try later
                    self._search()
            while self._silent and next(iter(self._silent.values())).since <= late:
                self._time_out(next(iter(self._silent)))
            while self.handed_over and (first := next(iter(self.handed_over.values()))).since <= late:
                self._overdue(first)
        finally:
            self._cancel = None
            self._arm()

    def _search(self) -> None:
        """Watch accepted connections that were not found when they were accepted."""
        begun = monotonic()
        for descriptor in open_descriptors():
            sock = self._accepted(descriptor)
            if sock is not None and not self._is_in_use(sock):
                self._watch(descriptor)
        self.missed = None
        self._pause = max(_SEARCH, _SHARE * (monotonic() - begun))

    def close(self) -> None:
        """Stop. Call after the close of the listener, which forgets clients that are not requests yet."""
        for client in (*self._silent.values(), *self.handed_over.values()):
            if (sock := self._half_open(client)) is not None:
                _close(sock)
        with suppress(OSError):  # clients that were not found; without a complete header none of them is a request
            for descriptor in open_descriptors():
                sock = self._accepted(descriptor)
                if sock is not None and not segments_sent(sock) and bytes_received(sock) < _HEADER_SIZE:
                    _close(sock)
        self._silent.clear()
        self.handed_over.clear()
        self.missed = None
        self._readable.close()
        self._disarm()


class GuardedQueue(EventQueue):
    """An event queue whose provider accepts connections while it is read; ``half_open`` runs before and after."""

    __slots__ = ("half_open",)

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.half_open: HalfOpenClients | None = None

    def quiet(self) -> bool:
        return self._guarded(super().quiet)

    def read(self) -> int:
        return self._guarded(super().read)

    def _guarded(self, call: Callable[[], _T]) -> _T:
        if self.half_open is None:
            return call()
        self.half_open.before_read()
        try:
            return call()
        finally:
            if self.half_open is not None:
                self.half_open.after_read()


def _close(sock: BorrowedSocket) -> None:
    """Close a client whose socket the provider no longer uses: no other code closes the descriptor."""
    os.close(sock.fileno())


def _pending(sock: BorrowedSocket) -> bytes:
    """The data that has arrived and was not read, as far as a request may be long."""
    with suppress(OSError):
        return sock.peek(_HEADER_SIZE + _DATA_MOST)
    return b""


def is_request(data: bytes) -> bool:
    if len(data) < _HEADER_SIZE:
        return False
    promised: int = _LENGTH.unpack_from(data)[0]
    return len(data) >= _HEADER_SIZE + min(promised, _DATA_MOST)
