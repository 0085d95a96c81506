"""Sockets: those of the kernel's that a provider over TCP has opened in this process.

They are the provider's. Here they are on loan: whoever gets one detaches it when done.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..address import Address

__all__ = ["connected_socket", "next_descriptor", "tcp_socket", "tcp_sockets"]

_INTERNET = (socket.AF_INET, socket.AF_INET6)


def next_descriptor() -> int | None:
    """The number that the next descriptor will get; None when there is none left."""
    try:
        number = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    os.close(number)
    return number


def tcp_sockets(port: int | None) -> Iterator[socket.socket]:
    """Those of this process with this local port, each on loan until the next."""
    if port is None:
        return
    for descriptor in _descriptors():
        if (sock := tcp_socket(descriptor, port)) is not None:
            try:
                yield sock
            finally:
                sock.detach()


def _descriptors() -> Iterable[int]:
    """Those that this process has open."""
    try:
        return map(int, os.listdir("/proc/self/fd"))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # not one is left for the list: it has them all


def tcp_socket(descriptor: int, port: int | None) -> socket.socket | None:
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


def connected_socket(descriptor: int | None, ours: Address | None, theirs: Address | None) -> socket.socket | None:
    """The TCP socket that a descriptor is, if it is connected from here to there; to be detached after use."""
    if descriptor is None or ours is None or theirs is None or (sock := tcp_socket(descriptor, ours.port)) is None:
        return None
    with suppress(OSError):
        if _place(sock.getsockname()) == _named(ours) and _place(sock.getpeername()) == _named(theirs):
            return sock
    sock.detach()
    return None


def _place(name: tuple[Any, ...]) -> tuple[Any, ...]:
    return name[0].partition("%")[0], name[1]


def _named(address: Address) -> tuple[Any, ...]:
    return (address.host or "").partition("%")[0], address.port
