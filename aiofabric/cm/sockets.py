"""Sockets: those of the kernel's that a provider over TCP has opened in this process.

They are the provider's, and only lent here: a socket object that is collected would close one.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..address import Address

__all__ = [
    "bytes_received",
    "connected_socket",
    "next_descriptor",
    "place_of",
    "segments_sent",
    "tcp_socket",
    "tcp_sockets",
]

_INTERNET = (socket.AF_INET, socket.AF_INET6)
# Of struct tcp_info (linux/tcp.h), and where.
_BYTES_RECEIVED = struct.Struct("@Q"), 128  # since Linux 4.1
_DATA_SEGS_OUT = struct.Struct("@I"), 156  # since 4.6


def next_descriptor() -> int | None:
    """The number that the next descriptor will get; None when there is none left."""
    try:
        number = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    os.close(number)
    return number


@contextmanager
def tcp_socket(descriptor: int, port: int | None) -> Iterator[socket.socket | None]:
    """The TCP socket with this local port that a descriptor is, if it is one."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        yield None
        return
    try:
        yield sock if _is_tcp(sock, port) else None
    finally:
        sock.detach()


def _is_tcp(sock: socket.socket, port: int | None) -> bool:
    with suppress(OSError):
        return sock.family in _INTERNET and sock.type == socket.SOCK_STREAM and sock.getsockname()[1] == port
    return False


def tcp_sockets(port: int | None) -> Iterator[socket.socket]:
    """Those of this process with this local port, each until the next."""
    if port is None:
        return
    for descriptor in _descriptors():
        with tcp_socket(descriptor, port) as sock:
            if sock is not None:
                yield sock


def _descriptors() -> Iterable[int]:
    """Those that this process has open."""
    try:
        return map(int, os.listdir("/proc/self/fd"))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # not one is left for the list: it has them all


@contextmanager
def connected_socket(
    descriptor: int | None, ours: Address | None, theirs: Address | None
) -> Iterator[socket.socket | None]:
    """The TCP socket that a descriptor is, if it is connected from here to there."""
    if descriptor is None or ours is None or theirs is None:
        yield None
        return
    with tcp_socket(descriptor, ours.port) as sock:
        yield sock if sock is not None and _connects(sock, ours, theirs) else None


def _connects(sock: socket.socket, ours: Address, theirs: Address) -> bool:
    with suppress(OSError):
        here: bool = sock.getsockname()[:2] == place_of(ours)
        return here and sock.getpeername()[:2] == place_of(theirs)
    return False


def place_of(address: Address) -> tuple[Any, ...]:
    """Host and port, as the kernel's sockets tell them: without a scope."""
    return (address.host or "").partition("%")[0], address.port


def bytes_received(sock: socket.socket) -> int:
    """Bytes that have come so far, read or not; 0 where the kernel does not say."""
    return _counted(sock, *_BYTES_RECEIVED)


def segments_sent(sock: socket.socket) -> int:
    """Segments with data that have left so far; 0 where the kernel does not say."""
    return _counted(sock, *_DATA_SEGS_OUT)


def _counted(sock: socket.socket, what: struct.Struct, at: int) -> int:
    with suppress(OSError):
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, at + what.size)
        return int(what.unpack_from(info, at)[0]) if len(info) >= at + what.size else 0
    return 0
