"""BorrowedSocket: a socket of the provider, or perhaps of the program, by its descriptor.

A `socket.socket` closes its descriptor when the garbage collector removes it. After Ctrl-C at the wrong moment, that
would be a descriptor of the provider or of the program. A duplicate of the descriptor is no alternative: there may be
no free descriptor. So this class calls the kernel with the number, and owns nothing.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, overload

from ..._ffi import CData, ffi, last_errno, lib
from ...address import Address
from ...flags import AddressFormat

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BorrowedSocket"]

_NAME_MOST = 128  # sizeof(struct sockaddr_storage)


class BorrowedSocket:
    """The methods of `socket.socket` that the workarounds need. All raise OSError as its methods do.

    Raises:
        OSError: the descriptor is closed, or not a socket.
    """

    __slots__ = ("_descriptor", "family")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.family = self.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)

    def fileno(self) -> int:
        return self._descriptor

    @overload
    def getsockopt(self, level: int, option: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def getsockopt(self, level: int, option: int, size: int | None = None, /) -> int | bytes:
        value = ffi.new("int *") if size is None else ffi.new("char[]", size)
        length = ffi.new("unsigned int *", ffi.sizeof("int") if size is None else size)
        _check(lib.getsockopt(self._descriptor, level, option, value, length))
        return int(value[0]) if size is None else bytes(ffi.buffer(value, length[0]))

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None:
        memory = ffi.new("int *", value) if isinstance(value, int) else ffi.from_buffer(value)
        length = ffi.sizeof("int") if isinstance(value, int) else len(value)
        _check(lib.setsockopt(self._descriptor, level, option, memory, length))

    def getsockname(self) -> tuple[str | None, int | None]:
        """Host, with the number of its scope if it has one, and port; both None if it is not an internet socket."""
        return self._name(lib.getsockname)

    def getpeername(self) -> tuple[str | None, int | None]:
        """Like `getsockname`, of the peer."""
        return self._name(lib.getpeername)

    def _name(self, call: Callable[[int, CData, CData], int]) -> tuple[str | None, int | None]:
        name, length = ffi.new("char[]", _NAME_MOST), ffi.new("unsigned int *", _NAME_MOST)
        _check(call(self._descriptor, name, length))
        address = Address.from_native(AddressFormat.SOCKADDR, name, length[0])
        return (None, None) if address is None else (address.host, address.port)

    def shutdown(self, how: int, /) -> None:
        _check(lib.shutdown(self._descriptor, how))

    def peek(self, size: int) -> bytes:
        """Up to ``size`` bytes that have arrived, which stay in the socket. Raises BlockingIOError if there are
        none."""
        data = ffi.new("char[]", size)
        count = _check(lib.recv(self._descriptor, data, size, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return bytes(ffi.buffer(data, count))


def _check(result: int) -> int:
    if result < 0:
        number = last_errno()
        raise OSError(number, os.strerror(number))
    return result
