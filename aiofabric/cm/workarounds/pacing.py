"""Pacing: connections within the machine send as fast as their receiver reads.

A congestion control that paces (BBR) sends by a timer, at its estimate of the network's rate. Over loopback there is no
network, and the estimate is far below what memory can do. Messages of 64 KiB took 38 us each, with both processors
busy, and 10.5 us without pacing; messages of 1 MiB took 165 and 105 us. On a machine that wakes more slowly, 64 KiB
took 19 us either way, and 1 MiB 185 and 147 us. So both ends of a connection between processes of one machine use
Reno, which every kernel allows to every process. A socket that once had BBR keeps its pacing, but the rate is then no
limit. Connections that leave the machine keep the administrator's choice. So do connectionless endpoints, because
their connections are made inside the provider.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .borrowed_socket import BorrowedSocket

__all__ = ["PACING", "never_paced"]

PACING = (b"bbr",)
"""Name prefixes of congestion controls that send by a timer."""

_INSTEAD = b"reno"
_NAME_MOST = 16  # TCP_CA_NAME_MAX (linux/tcp.h)


def never_paced(sock: BorrowedSocket) -> None:
    """Switch off pacing for this connected socket, if its peer is in this machine."""
    with suppress(OSError):
        if not stays_paced(sock.getsockname()[0] or "", sock.getpeername()[0] or ""):
            return
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_MOST).startswith(PACING):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _INSTEAD)


def stays_paced(ours: str, theirs: str) -> bool:
    """Whether packets between the two addresses stay within the machine."""
    return ours == theirs or ip_address(theirs.partition("%")[0]).is_loopback
