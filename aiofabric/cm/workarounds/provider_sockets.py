"""The kernel's sockets that a provider over TCP has opened in this process. A socket is used only with proof that the
provider opened it.

tcp of 2.2 and later names the socket of a connection (FI_GET_FD). All others have to be found. The proof that a socket
is the provider's:

- A listening socket: its descriptor did not exist before the call that opened the endpoint. It is a TCP socket without
  a peer, and its local address is the endpoint's (fi_getname).
- The socket of a connection: libfabric names it, or its descriptor was free before the call. It is a TCP socket, and
  both its addresses are the connection's. The kernel gives the same pair of addresses to no other socket.
- A client that a listener accepted and that is not yet a request: it has the mark of that listener. A mark is a send
  timeout (SO_SNDTIMEO) that no other socket has. The kernel copies it from the listening socket to the sockets that it
  accepts. It has no other effect, since the provider does not wait in a send.

A descriptor may be reused for another file, so a socket that was found earlier must still have the same inode.

The descriptors belong to the provider: `borrowed_socket` never closes one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import secrets
import socket
import struct
import termios
from array import array
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ..._ffi import CData, constants, ffi, lib
from ...features import Feature
from ...info import library_version
from .borrowed_socket import BorrowedSocket

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...address import Address

__all__ = [
    "Mark",
    "OwnSocket",
    "are_free",
    "bytes_received",
    "bytes_written",
    "connected_socket",
    "data_arrived",
    "descriptor_of",
    "host_and_port",
    "is_at",
    "listening_sockets",
    "next_descriptor",
    "open_descriptors",
    "peer_of",
    "seconds_without_data",
    "segments_sent",
    "tcp_socket",
]

_INTERNET = (socket.AF_INET, socket.AF_INET6)
# Fields of struct tcp_info (linux/tcp.h), and their offsets.
_LAST_DATA_RECV = struct.Struct("@I"), 52  # milliseconds ago
_BYTES_RECEIVED = struct.Struct("@Q"), 128  # since Linux 4.1
_DATA_SEGS_OUT = struct.Struct("@I"), 156  # since 4.6


class Mark:
    """A send timeout of some weeks that only the sockets of one listener have."""

    _TIMEVAL = struct.Struct("@ll")
    _seconds = count((2 << 20) + secrets.randbelow(1 << 20))

    def __init__(self) -> None:
        self._value = self._TIMEVAL.pack(next(self._seconds), 0)

    def put(self, sock: BorrowedSocket) -> None:
        """Mark a listening socket, and so all sockets that it accepts from now on."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, self._value)

    def on(self, sock: BorrowedSocket) -> bool:
        """Whether the socket has this mark."""
        with suppress(OSError):
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, len(self._value)) == self._value
        return False


class OwnSocket(NamedTuple):
    """A socket with proof that it is the provider's."""

    descriptor: int
    inode: int

    def verified(self) -> BorrowedSocket | None:
        """The socket; None if the descriptor is closed, or is another file by now."""
        with suppress(OSError):
            if os.fstat(self.descriptor).st_ino == self.inode:
                return tcp_socket(self.descriptor)
        return None


def next_descriptor() -> int | None:
    """The number of the next descriptor, which is free now; None if no descriptor is left."""
    try:
        number = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    os.close(number)
    return number


def are_free(count: int) -> bool:
    """Whether this process can open ``count`` more descriptors."""
    taken = []
    try:
        for _ in range(count):
            taken.append(os.open("/", os.O_PATH | os.O_CLOEXEC))  # noqa: PERF401 - the list is needed if one fails
    except OSError:
        return False
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return True


def open_descriptors() -> frozenset[int]:
    """The open descriptors of this process."""
    numbers: Iterable[int]
    try:
        numbers = map(int, os.listdir("/proc/self/fd"))
    except OSError as error:
        if error.errno != errno.EMFILE:  # no descriptor is left for the directory
            raise
        numbers = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return frozenset(filter(_is_open, numbers))  # without the directory's descriptor, which is closed by now


def _is_open(descriptor: int) -> bool:
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
        return True
    return False


def tcp_socket(descriptor: int) -> BorrowedSocket | None:
    """The TCP socket behind a descriptor, also one of the program; None if it is not a TCP socket."""
    with suppress(OSError):  # closed, not a socket, or -1
        sock = BorrowedSocket(descriptor)
        kind = sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        protocol = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
        if (kind, protocol) == (socket.SOCK_STREAM, socket.IPPROTO_TCP) and sock.family in _INTERNET:
            return sock
    return None


def listening_sockets(before: Collection[int], address: Address | None) -> list[OwnSocket]:
    """TCP sockets that are bound to an endpoint's address, and whose descriptors did not exist ``before``."""
    found = []
    if address is not None and address.port:
        for descriptor in open_descriptors().difference(before):
            sock = tcp_socket(descriptor)
            if sock is not None and _is_bound(sock, address):
                found.append(OwnSocket(descriptor, os.fstat(descriptor).st_ino))
    return found


def _is_bound(sock: BorrowedSocket, address: Address) -> bool:
    """Whether it has this local address, and no peer. Another thread may close the descriptor at any time."""
    with suppress(OSError):
        if is_at(address, sock.getsockname()):
            try:
                sock.getpeername()
            except OSError as error:
                return error.errno == errno.ENOTCONN
    return False


def descriptor_of(endpoint: CData) -> int | None:
    """Return the descriptor of a connected tcp endpoint, as libfabric reports it (FI_GET_FD, 2.2 and later).

    Args:
        endpoint: a ``struct fid *`` of tcp.
    """
    if library_version() < Feature.GET_FD.since:
        return None
    descriptor = ffi.new("int *", -1)
    failed = lib.fi_control(endpoint, constants.FI_GET_FD, descriptor)
    return None if failed or descriptor[0] < 0 else int(descriptor[0])


def connected_socket(descriptor: int | None, ours: Address | None, theirs: Address | None) -> BorrowedSocket | None:
    """The TCP socket behind a descriptor, if it connects ``ours`` to ``theirs``; otherwise None."""
    if descriptor is None or ours is None or theirs is None:
        return None
    sock = tcp_socket(descriptor)
    with suppress(OSError):
        if sock is not None and is_at(ours, sock.getsockname()) and is_at(theirs, sock.getpeername()):
            return sock
    return None


def is_at(address: Address, name: tuple[str | None, int | None]) -> bool:
    """Whether a socket's name is this address. A provider may report the address without its scope."""
    host, _, scope = (name[0] or "").partition("%")
    wanted, _, wanted_scope = (address.host or "").partition("%")
    same_scope = scope == wanted_scope or not (scope and wanted_scope)
    return (host, name[1]) == (wanted, address.port) and same_scope


def peer_of(sock: BorrowedSocket) -> tuple[str, int | None]:
    """Host and port of the peer, as `host_and_port` returns them."""
    return _without_scope(*sock.getpeername())


def host_and_port(address: Address) -> tuple[str, int | None]:
    """Host and port of an address, without a scope."""
    return _without_scope(address.host, address.port)


def _without_scope(host: str | None, port: int | None) -> tuple[str, int | None]:
    return (host or "").partition("%")[0], port


def bytes_written(descriptor: int) -> int | None:
    """Bytes that were written to a connected socket so far; None if it has no room for more, or is not a socket.

    While the provider has more data than the kernel accepts, the socket has no room.
    """
    written = lib.aiofabric_written_bytes(descriptor)
    return None if written < 0 else written


def bytes_received(sock: BorrowedSocket) -> int:
    """Bytes that have arrived so far, read or not; 0 if the kernel does not report it."""
    return _counted(sock, *_BYTES_RECEIVED)


def data_arrived(descriptor: int) -> int | None:
    """Bytes that have arrived at a connected socket so far, read or not; None if that is not known."""
    sock = tcp_socket(descriptor)
    return None if sock is None else bytes_received(sock) or None


def seconds_without_data(descriptor: int) -> float | None:
    """How long ago the last data arrived at a connected socket; None if that is not known, or if data is unread."""
    sock = tcp_socket(descriptor)
    if sock is None:
        return None
    with suppress(OSError):
        fcntl.ioctl(sock, termios.FIONREAD, unread := array("i", [0]))
        value, at = _LAST_DATA_RECV
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + value.size)
        if not unread[0] and len(info) >= at + value.size:
            return int(value.unpack_from(info, at)[0]) / 1000
    return None


def segments_sent(sock: BorrowedSocket) -> int:
    """Segments with data that were sent so far; 0 if the kernel does not report it."""
    return _counted(sock, *_DATA_SEGS_OUT)


def _counted(sock: BorrowedSocket, what: struct.Struct, at: int) -> int:
    with suppress(OSError):
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + what.size)
        return int(what.unpack_from(info, at)[0]) if len(info) >= at + what.size else 0
    return 0
