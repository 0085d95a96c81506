"""Door: what libfabric does not see to when strangers connect to a port of the kernel's TCP.

tcp and net, in every version, read what a new client says with a recv that blocks (tcpx_conn_mgr.c, xnet_cm.c:
rx_cm_data): a header, and then the private data that it promises. Whoever sends the one without the other stops the
process for as long as he likes. If that recv does not block, the connection is forgotten (2.x) or read for ever (1.17).
And whoever says nothing holds a descriptor for ever; there is no limit.

But the sockets are the kernel's, and ours to find. So new connections are looked at before the provider reads them: an
honest client's first words are one segment, and whoever sent a part of them is shut down, which the provider
understands. So is who says nothing. What slips through, in the microseconds between our look and the provider's, does
not block: what a socket accepts inherits its SO_RCVTIMEO.

Connectionless endpoints over TCP (rxm; tcp and net of FI_EP_RDM) accept while messages move, too often to look before.
There the kernel keeps whoever says nothing, for the longest time it can (TCP_DEFER_ACCEPT), and half a request does
not block.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .._ffi import clear_errno
from .queue import EventQueue
from .sockets import next_descriptor, tcp_socket, tcp_sockets

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..address import Address
    from ..cq.drivers import Driver
    from ..cq.source import Source
    from ..fabric import Fabric

__all__ = ["PATIENCE", "SILENT_MOST", "Door", "GuardedQueue", "guard", "out_of_descriptors"]

PATIENCE = 5.0  # seconds that a new connection may say nothing
SILENT_MOST = 256  # connections that have not said anything yet

# The smallest positive timeout is two jiffies (8 ms), of which a flood makes seconds; net/core/sock.c takes a
# negative one for none, and says so in the kernel's log ten times at most.
_HURRY = struct.pack("@ll", -1, 0)  # struct timeval
_HEADER_SIZE = 32  # struct ofi_ctrl_hdr (ofi_proto.h): version, type, length of the private data, ...
_LENGTH = struct.Struct("!2xH")
_DATA_MOST = 256  # the provider itself refuses more
_JUDGED_MOST = 1 << 14  # strangers whose end is still seen to: those of a flood, for some seconds
_RECEIVED = struct.Struct("@Q"), 128  # tcpi_bytes_received, since Linux 4.1
_SENT = struct.Struct("@I"), 156  # tcpi_data_segs_out, since 4.6
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

    who: Any  # host and port
    descriptor: int
    inode: int  # of the socket: the number may be another's meanwhile
    since: float
    cut: bool = False  # off by us


class Door:
    """Cuts off who connects to a port and says half a word, or nothing for `PATIENCE` seconds.

    When `SILENT_MOST` say nothing at once, the longest silent one makes room. ``on_cut`` is called for each.
    ``forgets``: whether the provider forgets whom its own read finds in the midst of a request.
    """

    def __init__(self, address: Address, driver: Driver, on_cut: Callable[[], object], *, forgets: bool) -> None:
        self._port = address.port
        self._driver = driver
        self._on_cut = on_cut
        self._forgets = forgets
        self._listening = _hurry(address.port)
        self._talking = select.epoll()  # forgets by itself what the provider closes
        for descriptor in self._listening:
            self._talking.register(descriptor, select.EPOLLIN)
        self._silent: dict[int, _Stranger] = {}  # by descriptor; the longest silent one first
        self._judged: dict[Any, _Stranger] = {}  # by who; spoke or left, or was cut off; the first one first
        self._cancel: Callable[[], None] | None = None
        self._next: int | None = None  # what is accepted now gets this number, if nothing else is opened or closed
        self._missed = False

    def before(self) -> None:
        """The provider is about to read and to accept."""
        self._next = None
        for descriptor, _ in self._talking.poll(0):
            if descriptor in self._listening:
                self._next = next_descriptor()
                if self._next is None:
                    self._miss()  # and yet it accepts one if it first closes who has left
            else:
                self._judge(descriptor)
        clear_errno()  # 1.17 takes an end for "try again" if errno says so from before

    def after(self) -> None:
        """It accepts at most one connection at a time, mostly under the lowest number that was free."""
        if self._next is None:
            return
        if (sock := tcp_socket(self._next, self._port)) is None:
            self._miss()  # somebody who left made a lower one free, or another thread took this one
        else:
            self._welcome(sock)
            sock.detach()

    def _miss(self) -> None:
        """Who comes now comes unseen, and is looked for."""
        self._missed = True
        self._wait(PATIENCE)

    def _welcome(self, sock: socket.socket) -> None:
        with suppress(OSError):
            descriptor = sock.fileno()
            stranger = _Stranger(sock.getpeername()[:2], descriptor, os.fstat(descriptor).st_ino, monotonic())
            self._forget(descriptor)  # who had this number before
            if len(self._silent) >= SILENT_MOST:
                self._dismiss(next(iter(self._silent)))
            self._talking.register(sock, select.EPOLLIN)
            self._silent[descriptor] = stranger
            self._wait(PATIENCE)

    def _wait(self, seconds: float) -> None:
        if self._cancel is None:
            self._cancel = self._driver.call_later(seconds, self._late)

    def spoke(self, address: Address | None) -> int | None:
        """Who comes from there is a request, under this descriptor if that is known."""
        who = (None, None) if address is None else ((address.host or "").partition("%")[0], address.port)
        if (judged := self._judged.pop(who, None)) is not None:
            return judged.descriptor
        for stranger in list(self._silent.values()):
            if stranger.who == who:  # net reads it whenever one of its queues is asked, not `before` alone
                self._forget(stranger.descriptor)
                return stranger.descriptor
        self._judged.clear()  # it is one of them, perhaps, and none that is a request may be cut off
        return None

    def _judge(self, descriptor: int) -> None:
        """Somebody whom we watch has spoken, or left."""
        stranger = self._forget(descriptor)  # a request, or the end: the provider's
        if stranger is None or (sock := self._socket_of(stranger)) is None:
            return
        words = b""
        with suppress(OSError):
            words = sock.recv(_HEADER_SIZE + _DATA_MOST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        self._linger(stranger, sock, cut=bool(words) and not _whole(words))
        sock.detach()

    def _late(self) -> None:
        self._cancel = None
        if self._missed:
            with suppress(OSError):  # the whole system is out of descriptors: later
                self._sweep()
        late = monotonic() - PATIENCE + 0.01
        for stranger in list(self._judged.values()):
            if stranger.since > late:
                break
            self._end(stranger)
        for stranger in list(self._silent.values()):
            if stranger.since > late:
                break
            self._dismiss(stranger.descriptor)
        waiting = [stranger.since for each in (self._silent, self._judged) for stranger in each.values()]
        if waiting or self._missed:
            now = monotonic()
            self._wait(PATIENCE - (now - min(waiting, default=now)))

    def _sweep(self) -> None:
        """Look for those who slipped in unseen and have said less than a request."""
        for sock in tcp_sockets(self._port):
            with suppress(OSError):
                known = self._silent.get(sock.fileno())
                if (known is None or known.inode != os.fstat(sock.fileno()).st_ino) and _received(sock) < _HEADER_SIZE:
                    self._welcome(sock)
        self._missed = False

    def _dismiss(self, descriptor: int) -> None:
        """Cut off who has said nothing so far, and not who said it while the provider was looking."""
        stranger = self._forget(descriptor)
        if stranger is None or (sock := self._socket_of(stranger)) is None:
            return
        self._linger(stranger, sock, cut=_received(sock) < _HEADER_SIZE)
        sock.detach()

    def _linger(self, stranger: _Stranger, sock: socket.socket, *, cut: bool) -> None:
        """It is the provider's to close it, or to make a request of it; see to it that one of them happens."""
        self._judged[stranger.who] = stranger._replace(since=monotonic(), cut=cut)
        if len(self._judged) > _JUDGED_MOST:
            del self._judged[next(iter(self._judged))]
        self._wait(PATIENCE)
        if cut:
            with suppress(OSError):  # it has left
                sock.shutdown(socket.SHUT_RDWR)
            self._on_cut()

    def _end(self, stranger: _Stranger) -> None:
        """Neither has happened: its words came while the provider was reading, which may have forgotten it.

        A provider that still knows it closes it when it is cut off.
        """
        del self._judged[stranger.who]
        if (sock := self._socket_of(stranger)) is None:
            return
        if not stranger.cut:
            self._linger(stranger, sock, cut=True)
        elif self._forgets:
            sock.close()
            return
        sock.detach()

    def _socket_of(self, stranger: _Stranger) -> socket.socket | None:
        """To be detached after use; None when it is closed, or answered: then it is a connection."""
        sock = tcp_socket(stranger.descriptor, self._port)
        if sock is None or (os.fstat(stranger.descriptor).st_ino == stranger.inode and not _answered(sock)):
            return sock
        sock.detach()
        return None

    def _forget(self, descriptor: int) -> _Stranger | None:
        with suppress(OSError):
            self._talking.unregister(descriptor)
        return self._silent.pop(descriptor, None)

    def close(self) -> None:
        """Look no more. After the close of the listener: it has forgotten those who were no request yet."""
        for stranger in (*self._silent.values(), *self._judged.values()):
            if (sock := self._socket_of(stranger)) is not None:
                sock.close()
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


def _whole(words: bytes) -> bool:
    if len(words) < _HEADER_SIZE:
        return False
    promised: int = _LENGTH.unpack_from(words)[0]
    return len(words) >= _HEADER_SIZE + min(promised, _DATA_MOST)


def _received(sock: socket.socket) -> int:
    """Bytes that have come so far, read or not."""
    return _counted(sock, *_RECEIVED)


def _answered(sock: socket.socket) -> bool:
    """Whether we have sent anything."""
    return _counted(sock, *_SENT) > 0


def _counted(sock: socket.socket, what: struct.Struct, at: int) -> int:
    """A count of struct tcp_info (linux/tcp.h); 0 where the kernel does not say."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + what.size)
    return int(what.unpack_from(info, at)[0]) if len(info) >= at + what.size else 0


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
