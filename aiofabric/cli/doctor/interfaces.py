"""The addresses of this host's network interfaces (getifaddrs)."""

from __future__ import annotations

import ctypes
import os
import socket
from typing import NamedTuple

__all__ = ["HostAddress", "interfaces"]

_OFFSETS = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}  # where a sockaddr has its address, and its bytes


class _Entry(ctypes.Structure):
    """The first fields of struct ifaddrs."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


class HostAddress(NamedTuple):
    """A network interface, and one of its addresses."""

    name: str
    address: str


def interfaces() -> list[HostAddress]:
    """Every IP address of this host but link-local ones, which need the name of an interface to be used."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    found = []
    entry = first
    while bool(entry):  # false for NULL
        address = _address_of(entry.contents.address)
        if address and not address.startswith("fe80:"):
            found.append(HostAddress(os.fsdecode(entry.contents.name), address))
        entry = entry.contents.next
    libc.freeifaddrs(first)
    return found


def _address_of(sockaddr: int | None) -> str:
    """The IP address in a sockaddr; empty for other families, and for interfaces without an address."""
    if not sockaddr:
        return ""
    family = ctypes.c_ushort.from_address(sockaddr).value
    for known, (offset, size) in _OFFSETS.items():
        if family == known:
            return socket.inet_ntop(known, ctypes.string_at(sockaddr + offset, size))
    return ""
