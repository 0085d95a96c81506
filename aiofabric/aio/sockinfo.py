"""FabricSocket: the socket methods that servers call on a transport, answered from fabric addresses without a
socket."""

from __future__ import annotations

import errno
import os
import socket
from types import NoneType
from typing import Any

from aiofabric.address import Address
from aiofabric.arguments import check_type


class FabricSocket:
    """The result of ``get_extra_info("socket")`` and an item of ``server.sockets``.

    It names both ends like a socket, or None if the fabric's addresses have no host and port. Options are accepted and
    have no effect: those that programs set (TCP_NODELAY, keep-alive) do not apply to a fabric. It has no file
    descriptor, so a program cannot read from the connection directly.
    """

    def __init__(self, local: Any, peer: Any = None) -> None:
        self._local = socket_name(local)
        self._peer = socket_name(peer)
        self._connected = peer is not None

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6 for a fabric addressed by IP, otherwise AF_UNSPEC."""
        if self._local is None:
            return socket.AF_UNSPEC
        return socket.AF_INET6 if ":" in self._local[0] else socket.AF_INET

    @property
    def type(self) -> socket.SocketKind:
        return socket.SOCK_STREAM

    @property
    def proto(self) -> int:
        return 0

    def getsockname(self) -> tuple[str, int] | None:
        return self._local

    def getpeername(self) -> tuple[str, int] | None:
        if not self._connected:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peer

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockopt(self, *_: Any) -> int:
        return 0

    def fileno(self) -> int:
        return -1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._local} -> {self._peer}>"


def socket_name(address: Any) -> tuple[str, int] | None:
    """``(host, port)`` of a fabric address that has them: asyncio's sockname and peername."""
    check_type("address", address, Address, NoneType)
    if address is None or address.host is None:
        return None
    return address.host, address.port
