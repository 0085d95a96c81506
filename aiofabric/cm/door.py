"""Door: what libfabric does not see to when strangers connect to a port of the kernel's TCP.

tcp and net, in every version, read what a new client says with a recv that blocks (tcpx_conn_mgr.c, xnet_cm.c:
rx_cm_data): a header, and then the private data that it promises. Whoever sends the one without the other stops the
process for as long as he likes. If that recv does not block, the connection is forgotten (2.x) or read for ever (1.17).
And whoever says nothing holds a descriptor for ever; there is no limit.

But the sockets are the kernel's, and ours to find. So new connections are looked at before the provider reads them: an
honest client's first words are one segment, and whoever sent a part of them is shut down, which the provider
understands. So is who says nothing. What slips through, in the microseconds between our look and the provider's, does
not block: what a socket accepts inherits its SO_RCVTIMEO.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from .._ffi import ffi
from .queue import EventQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..address import Address
    from ..cq.drivers import Driver
    from ..fabric import Fabric

__all__ = ["PATIENCE", "SILENT_MOST", "Door", "GuardedQueue", "hurry", "out_of_descriptors"]

PATIENCE = 5.0  # seconds that a new connection may say nothing
SILENT_MOST = 256  # connections that have not said anything yet

_INTERNET = (socket.AF_INET, socket.AF_INET6)
# The smallest positive timeout is two jiffies (8 ms), of which a flood makes seconds; net/core/sock.c takes a
# negative one for none, and says so in the kernel's log ten times at most.
_HURRY = struct.pack("@ll", -1, 0)  # struct timeval
_HEADER_SIZE = 32  # struct ofi_ctrl_hdr (ofi_proto.h): version, type, length of the private data, ...
_LENGTH = struct.Struct("!2xH")
_DATA_MOST = 256  # the provider itself refuses more


def hurry(address: Address | None) -> None:
    """Let no read block the provider that accepts at this address."""
    if address is None or address.port is None:
        return
    for name in os.listdir("/proc/self/fd"):
        if (sock := _tcp_socket(int(name), address.port)) is not None:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _HURRY)
            finally:
                sock.detach()


def out_of_descriptors() -> bool:
    """Whether this process cannot open one more: a listening socket then stays readable and nobody can accept."""
    return _next_descriptor() is None


class Door:
    """Cuts off who connects to a port and says half a word, or nothing for `PATIENCE` seconds.

    When `SILENT_MOST` say nothing at once, the longest silent one makes room. ``on_cut`` is called for each.
    """

    def __init__(self, port: int | None, driver: Driver, on_cut: Callable[[], object]) -> None:
        self._port = port
        self._driver = driver
        self._on_cut = on_cut
        self._talking = select.epoll()  # forgets by itself what the provider closes
        self._silent: dict[int, tuple[Any, float]] = {}  # descriptor -> who, since when; the longest silent one first
        self._cancel: Callable[[], None] | None = None
        self._next: int | None = None

    def before(self) -> None:
        """The provider is about to read and to accept."""
        if self._silent:
            for descriptor, _ in self._talking.poll(0):
                self._judge(descriptor)
        self._next = _next_descriptor()
        ffi.errno = 0  # 1.17 takes an end for "try again" if errno says so from before

    def after(self) -> None:
        """It accepts at most one connection at a time, under the lowest number that is free."""
        if self._next is None or (sock := _tcp_socket(self._next, self._port)) is None:
            return
        with suppress(OSError):
            who = sock.getpeername()
            if len(self._silent) >= SILENT_MOST:
                self._cut(next(iter(self._silent)))
            self._talking.register(self._next, select.EPOLLIN)
            self._silent[self._next] = who, monotonic()
            if self._cancel is None:
                self._cancel = self._driver.call_later(PATIENCE, self._late)
        sock.detach()

    def _judge(self, descriptor: int) -> None:
        if (sock := _tcp_socket(descriptor, self._port)) is None:
            self._forget(descriptor)
            return
        try:
            words = sock.recv(_HEADER_SIZE + _DATA_MOST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        finally:
            sock.detach()
        if words and not _whole(words):
            self._cut(descriptor)
        else:  # a request, or the end: the provider's
            self._forget(descriptor)

    def _late(self) -> None:
        self._cancel = None
        now = monotonic()
        while self._silent:
            descriptor, (_, since) = next(iter(self._silent.items()))
            if now - since < PATIENCE - 0.01:
                self._cancel = self._driver.call_later(PATIENCE - (now - since), self._late)
                return
            self._cut(descriptor)

    def _cut(self, descriptor: int, *, close: bool = False) -> None:
        who, _ = self._forget(descriptor)
        if (sock := _tcp_socket(descriptor, self._port)) is None:
            return
        with suppress(OSError):
            if sock.getpeername() == who:  # and not somebody who came after it had left by itself
                sock.shutdown(socket.SHUT_RDWR)
                self._on_cut()
                if close:
                    sock.close()
                    return
        sock.detach()

    def _forget(self, descriptor: int) -> tuple[Any, float]:
        with suppress(OSError):
            self._talking.unregister(descriptor)
        return self._silent.pop(descriptor, (None, 0.0))

    def close(self) -> None:
        """Look no more. After the close of the listener: it has forgotten those who had not said anything yet."""
        for descriptor in list(self._silent):
            self._cut(descriptor, close=True)
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


def _next_descriptor() -> int | None:
    """The number that the next descriptor will get; None when there is none left."""
    try:
        number = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    os.close(number)
    return number


def _tcp_socket(descriptor: int, port: int | None) -> socket.socket | None:
    """The TCP socket with this local port that a descriptor is; to be detached after use."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        return None
    with suppress(OSError):
        if sock.family in _INTERNET and sock.type == socket.SOCK_STREAM and sock.getsockname()[1] == port:
            return sock
    sock.detach()
    return None
