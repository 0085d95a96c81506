"""Traffic class: the code point that routers read in the packets of a connection (DSCP; ip(7), ipv6(7)).

libfabric's tcp accepts a traffic class, but does not set the socket's IP_TOS.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .borrowed_socket import BorrowedSocket

__all__ = ["mark"]

_ECN_BITS = 2  # the kernel uses the two lowest bits of the field


def mark(sock: BorrowedSocket, dscp: int) -> None:
    """Send the packets of a connection's own socket with this code point."""
    field = dscp << _ECN_BITS
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, field)
    with suppress(OSError):  # a socket for IPv6 only
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, field)
