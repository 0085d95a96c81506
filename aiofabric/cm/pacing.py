"""Pacing: what stays within the machine goes as fast as its receiver reads.

A congestion control that paces (BBR) sends by a timer, at the rate that it believes the network to have. Over loopback
there is no network, and the belief settles far below what memory can do: messages of 64 KiB took 38 us each, with both
processors busy, and 12 without; of 1 MiB 165 and 105 us. So both ends of a connection between processes of one machine
have Reno, which every kernel lets everybody choose. Connections that leave the machine keep what its administrator
chose, and so do connectionless endpoints: nobody sees them connect.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

from .._ffi import ffi
from .sockets import next_descriptor, tcp_socket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..info import Info

__all__ = ["PACING", "connecting", "never_paced"]

PACING = (b"bbr",)
"""How the names of congestion controls begin that send by a timer."""

_INSTEAD = b"reno"
_NAME_MOST = 16  # TCP_CA_NAME_MAX (linux/tcp.h)


def never_paced(sock: socket.socket) -> None:
    """Let the kernel not pace this connected socket, if it ends in this machine. OSError: it is not connected."""
    if _stays(sock.getsockname()[0], sock.getpeername()[0]):
        _choose(sock)


@contextmanager
def connecting(info: Info) -> Iterator[None]:
    """Around the opening of an endpoint that will connect: its socket is not paced if its peer is in this machine.

    The socket is the one that appears under the lowest free number, bound to the endpoint's own address and to no port
    yet. Where another thread opens something meanwhile, the connection is paced as others are.
    """
    ours, theirs = (None if address is None else address.host for address in (info.src_addr, info.dest_addr))
    number = next_descriptor() if info.native.handle == ffi.NULL and _stays(ours, theirs) else None
    yield
    if number is not None and (sock := tcp_socket(number, 0)) is not None:
        if sock.getsockname()[0] == ours:
            _choose(sock)
        sock.detach()


def _stays(ours: str | None, theirs: str | None) -> bool:
    """Whether what goes from the one to the other does not leave the machine."""
    if ours is None or theirs is None:
        return False
    return ours == theirs or ip_address(theirs.partition("%")[0]).is_loopback


def _choose(sock: socket.socket) -> None:
    with suppress(OSError):
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_MOST).startswith(PACING):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _INSTEAD)
