"""Door: what libfabric does not see to when strangers connect to a port of the kernel's TCP.

tcp and net, in every version, read what a new client says with a recv that blocks (tcpx_conn_mgr.c, xnet_cm.c:
rx_cm_data): a header, and then the private data that it promises. Whoever sends the one without the other stops the
process for as long as he likes. If that recv does not block, the connection is forgotten (2.x) or read for ever (1.17).
And whoever says nothing holds a descriptor for ever; there is no limit.

But the sockets are the kernel's, and ours to find. So new connections are looked at before the provider reads them: an
honest client's first words are one segment, and whoever sent a part of them is shut down, which the provider
understands. So is who says nothing. What slips through, in the microseconds between our look and the provider's, does
not block: what a socket accepts inherits its SO_RCVTIMEO. Whom the provider forgets because of that we close.

Connectionless endpoints over TCP (rxm; tcp and net of FI_EP_RDM) accept while messages move, too often to look before.
There the kernel keeps whoever says nothing, for the longest time it can (TCP_DEFER_ACCEPT), and half a request does
not block.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .._ffi import clear_errno
from ..features import Quirk, quirks
from .queue import EventQueue
from .sockets import bytes_received, next_descriptor, place_of, segments_sent, tcp_socket, tcp_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..address import Address
    from ..cq.source import Source
    from ..fabric import Fabric
    from .listener import PassiveHandle

__all__ = ["PATIENCE", "SILENT_MOST", "Door", "GuardedQueue", "guard", "out_of_descriptors"]

PATIENCE = 5.0  # seconds that a new connection may say nothing
SILENT_MOST = 256  # connections that have not said anything yet

# The smallest positive timeout is two jiffies (8 ms), of which a flood makes seconds; net/core/sock.c takes a
# negative one for none, and says so in the kernel's log ten times at most.
_HURRY = struct.pack("@ll", -1, 0)  # struct timeval
_HEADER_SIZE = 32  # struct ofi_ctrl_hdr (ofi_proto.h): version, type, length of the private data, ...
_LENGTH = struct.Struct("!2xH")
_DATA_MOST = 256  # the provider itself refuses more
_EVERYWHERE = ("0.0.0.0", "::")
_TICK = 0.01  # seconds that a timer may be early
_HOURS = 3600 * 4


def guard(source: Source, address: Address) -> None:
    """See to the port of a connectionless endpoint, where it has one."""
    knocks = select.poll()
    listening = _hurry(address.port)
    for descriptor in listening:
        sock = socket.socket(fileno=descriptor)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _HOURS)
        knocks.register(sock.detach(), select.POLLIN)
    if listening:
        # 2.x's rxm accepts one in 10 ms. Until then the queue's descriptor is readable, to no avail.
        source.starved = lambda: bool(knocks.poll(0))


def out_of_descriptors() -> bool:
    """Whether this process cannot open one more: a listening socket then stays readable and nobody can accept."""
    return next_descriptor() is None


class _Stranger(NamedTuple):
    """Somebody who has connected, and is no request yet."""

    place: Any  # host and port
    descriptor: int
    inode: int  # of the socket: the number may be another's meanwhile
    since: float
    cut: bool = False  # off by us


class Door:
    """Cuts off who connects to a listener's port and says half a word, or nothing for `PATIENCE` seconds.

    When `SILENT_MOST` say nothing at once, the longest silent one makes room. Whoever has spoken, left or been cut off
    is the provider's, which makes a request of him or closes him. If neither has happened `PATIENCE` seconds later, he
    is cut off; if he is still there after as long again, the provider has forgotten him, and he is closed here.
    """

    def __init__(self, listener: PassiveHandle) -> None:
        self._listener = listener
        self._port = port = listener.address().port
        self._driver = listener.source.driver
        self._forgets = Quirk.FORGETS_HALF_REQUESTS in quirks(listener.info)
        self._listening = _hurry(port)
        self._talking = select.epoll()  # forgets by itself what the provider closes
        for descriptor in self._listening:
            self._talking.register(descriptor, select.EPOLLIN)
        # By descriptor, of which there are so many and no more; the first one first.
        self._silent: dict[int, _Stranger] = {}
        self._judged: dict[int, _Stranger] = {}
        self._places: dict[Any, int] = {}  # descriptors of both, by place
        self._cancel: Callable[[], None] | None = None
        self._knocked = False  # somebody is there to be accepted
        self._free: list[int] = []  # and gets one of these numbers
        self._missed: float | None = None  # since when some came unseen

    # -- around each read of the queue

    def before(self) -> None:
        """The provider is about to read and to accept."""
        self._knocked, self._free = False, []
        for descriptor, _ in self._talking.poll(0):
            if descriptor not in self._listening:
                self._judge(descriptor)
                self._free.append(descriptor)  # closed by the provider, perhaps, before it accepts
                continue
            self._knocked = True
            if (number := next_descriptor()) is not None:
                self._free.append(number)
        clear_errno()  # 1.17 takes an end for "try again" if errno says so from before

    def after(self) -> None:
        """It accepts at most one connection at a time."""
        if self._knocked and not any(map(self._welcome, self._free)):
            self._missed = self._missed or monotonic()
            self._arm()

    def spoke(self, address: Address | None) -> int | None:
        """Who comes from there is a request, under this descriptor if that is known."""
        descriptor = None if address is None else self._places.get(place_of(address))
        if descriptor is not None:
            self._forget(descriptor)
        return descriptor

    # -- strangers

    def _welcome(self, descriptor: int) -> bool:
        """Watch who has got this number, unless he is known."""
        with tcp_socket(descriptor, self._port) as sock, suppress(OSError):
            if sock is None:
                return False
            place, inode = sock.getpeername()[:2], os.fstat(descriptor).st_ino
            known = self._silent.get(descriptor) or self._judged.get(descriptor)
            if known is not None and known.inode == inode:
                return False
            self._forget(descriptor)  # who had this number before
            if len(self._silent) >= SILENT_MOST:
                self._dismiss(next(iter(self._silent)))
            self._talking.register(descriptor, select.EPOLLIN)
            self._silent[descriptor] = _Stranger(place, descriptor, inode, monotonic())
            self._places[place] = descriptor
            self._arm()
            return True
        return False

    def _judge(self, descriptor: int) -> None:
        """Somebody whom we watch has spoken, or left."""
        stranger = self._forget(descriptor)
        if stranger is not None:
            with self._socket_of(stranger) as sock:
                if sock is not None:
                    self._hand_over(stranger, sock, cut=_is_half(sock))

    def _dismiss(self, descriptor: int) -> None:
        """Cut off who has said nothing so far, and not who said it while the provider was looking."""
        stranger = self._forget(descriptor)
        if stranger is not None:
            with self._socket_of(stranger) as sock:
                if sock is not None:
                    self._hand_over(stranger, sock, cut=bytes_received(sock) < _HEADER_SIZE)

    def _hand_over(self, stranger: _Stranger, sock: socket.socket, *, cut: bool) -> None:
        """It is for the provider to close it, or to make a request of it."""
        if cut:
            with suppress(OSError):  # it has left
                sock.shutdown(socket.SHUT_RDWR)
                self._listener.cut_off()
        self._judged[stranger.descriptor] = stranger._replace(since=monotonic(), cut=cut)
        self._places[stranger.place] = stranger.descriptor
        self._arm()

    def _end(self, stranger: _Stranger) -> None:
        """The provider has neither closed it nor made a request of it."""
        self._forget(stranger.descriptor)
        with self._socket_of(stranger) as sock:
            if sock is None:
                return
            if not stranger.cut:
                self._hand_over(stranger, sock, cut=True)
                return
        if self._forgets:
            os.close(stranger.descriptor)

    @contextmanager
    def _socket_of(self, stranger: _Stranger) -> Iterator[socket.socket | None]:
        """None when it is closed, or is a connection or a request after all."""
        with tcp_socket(stranger.descriptor, self._port) as sock:
            if sock is None or os.fstat(stranger.descriptor).st_ino != stranger.inode or self._served(sock):
                yield None
            else:
                yield sock

    def _served(self, sock: socket.socket) -> bool:
        """Whether we have answered, or somebody still has to."""
        if segments_sent(sock):
            return True
        with suppress(OSError):
            asking = {place_of(request.address) for request in self._listener.unanswered if request.address}
            return sock.getpeername()[:2] in asking
        return False

    def _forget(self, descriptor: int) -> _Stranger | None:
        with suppress(OSError):
            self._talking.unregister(descriptor)
        stranger = self._silent.pop(descriptor, None) or self._judged.pop(descriptor, None)
        if stranger is not None and self._places.get(stranger.place) == descriptor:
            del self._places[stranger.place]
        return stranger

    # -- time

    def _arm(self) -> None:
        if self._cancel is None:
            first = [next(iter(each.values())).since for each in (self._silent, self._judged) if each]
            if self._missed is not None:
                first.append(self._missed)
            if first:
                self._cancel = self._driver.call_later(max(min(first) + PATIENCE - monotonic(), _TICK), self._late)

    def _late(self) -> None:
        try:
            self._listener.settle()  # a loop that stood still may not have read yet who is a request
            late = monotonic() - PATIENCE + _TICK
            if self._missed is not None and self._missed <= late:
                self._missed = monotonic()
                with suppress(OSError):  # the whole system is out of descriptors: later
                    self._sweep()
            while self._silent and next(iter(self._silent.values())).since <= late:
                self._dismiss(next(iter(self._silent)))
            while self._judged and (first := next(iter(self._judged.values()))).since <= late:
                self._end(first)
        finally:
            self._cancel = None
            self._arm()

    def _sweep(self) -> None:
        """Look for those who slipped in unseen."""
        host = self._listener.address().host
        for sock in tcp_sockets(self._port):
            ours = host in _EVERYWHERE or sock.getsockname()[0] == host  # not another listener's
            if ours and sock.fileno() not in self._listening and not self._served(sock):
                self._welcome(sock.fileno())
        self._missed = None

    def close(self) -> None:
        """Look no more. After the close of the listener: it has forgotten those who were no request yet."""
        for stranger in (*self._silent.values(), *self._judged.values()):
            with self._socket_of(stranger) as sock:
                left = sock is not None
            if left:
                os.close(stranger.descriptor)
        self._silent.clear()
        self._judged.clear()
        self._missed = None
        self._talking.close()
        if self._cancel is not None and not self._driver.closed():
            self._cancel()


class GuardedQueue(EventQueue):
    """An event queue whose provider accepts connections while it is asked; ``door`` is told."""

    __slots__ = ("door",)

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.door: Door | None = None

    def quiet(self) -> bool:
        if self.door is None:
            return super().quiet()
        self.door.before()
        try:
            return super().quiet()
        finally:
            self.door.after()

    def read(self) -> int:
        if self.door is None:
            return super().read()
        self.door.before()
        try:
            return super().read()
        finally:
            self.door.after()


def _is_half(sock: socket.socket) -> bool:
    """Whether what there is to read is the beginning of a request, and not all of it."""
    with suppress(OSError):
        words = sock.recv(_HEADER_SIZE + _DATA_MOST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return bool(words) and not _whole(words)
    return False


def _whole(words: bytes) -> bool:
    if len(words) < _HEADER_SIZE:
        return False
    promised: int = _LENGTH.unpack_from(words)[0]
    return len(words) >= _HEADER_SIZE + min(promised, _DATA_MOST)


def _hurry(port: int | None) -> list[int]:
    """Let no read block the provider that accepts at this port; return the descriptors that it (soon) listens with."""
    without_peer = []
    for sock in tcp_sockets(port):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _HURRY)
        try:
            sock.getpeername()
        except OSError:
            without_peer.append(sock.fileno())
    return without_peer
