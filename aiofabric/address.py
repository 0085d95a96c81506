"""Address: a fabric address of any format."""

from __future__ import annotations

import re
import socket
import struct
import sys
from dataclasses import dataclass
from ipaddress import ip_address

from ._ffi import CData, ffi
from .arguments import check_type
from .flags import AddressFormat

# struct sockaddr_in and sockaddr_in6: family, port, address; sockaddr_in6 also has a flow label and a scope.
_IN = struct.Struct("=H2s4s8x")
_IN6 = struct.Struct("=H2sI16sI")
_IP_KINDS: dict[tuple[int, int], AddressFormat] = {
    (socket.AF_INET, _IN.size): AddressFormat.SOCKADDR_IN,
    (socket.AF_INET6, _IN6.size): AddressFormat.SOCKADDR_IN6,
}

SCHEMES = {
    "fi_sockaddr": AddressFormat.SOCKADDR,
    "fi_sockaddr_in": AddressFormat.SOCKADDR_IN,
    "fi_sockaddr_in6": AddressFormat.SOCKADDR_IN6,
}
_SOCKET_FORMATS = frozenset(SCHEMES.values())
_URI = re.compile(r"(\w+)://(?:\[([^]]*)\]|([^:/?]*))(?::(\d+))?(?:[/?].*)?")


@dataclass(frozen=True, order=True, slots=True)
class Address:
    """A fabric address: its format, and its bytes as libfabric reads and writes them.

    Immutable, hashable, comparable. ``str()`` is the FI_ADDR_STR text of an IP or string address, such as
    ``fi_sockaddr_in://127.0.0.1:7471``, and the bytes in hexadecimal of any other.
    (man page: fi_getinfo, addressing formats; fi_av)
    """

    format: AddressFormat
    raw: bytes

    def __post_init__(self) -> None:
        """Normalise, so that equal addresses compare equal: padding is zero, a text ends in one NUL, and the format of
        an IP address is that of its family."""
        raw, format = self.raw, self.format
        # verbs labels IP addresses so: 1.17 with FI_SOCKADDR_IB, 2.x those of connection requests with FI_SOCKADDR.
        if format in (AddressFormat.SOCKADDR_IB, AddressFormat.SOCKADDR):
            format = _IP_KINDS.get((int.from_bytes(raw[:2], sys.byteorder), len(raw)), format)
            object.__setattr__(self, "format", format)
        if format == AddressFormat.ADDR_STR:
            raw = raw.partition(b"\0")[0] + b"\0"
        elif self.family == socket.AF_INET and len(raw) >= _IN.size:
            raw = _IN.pack(*_IN.unpack_from(raw))
            if format == AddressFormat.SOCKADDR:  # more bytes followed
                object.__setattr__(self, "format", AddressFormat.SOCKADDR_IN)
        object.__setattr__(self, "raw", raw)

    @classmethod
    def from_ip(cls, host: str, port: int = 0) -> Address:
        """Return the address of a numeric IPv4 or IPv6 host (``fe80::1%eth0`` with its scope) and a port."""
        check_type("host", host, str)
        check_type("port", port, int)
        if not 0 <= port < 1 << 16:
            raise ValueError(f"a port must be 0 to 65535, not {port}")
        bare, _, scope = host.partition("%")
        ip = ip_address(bare)
        big_endian = port.to_bytes(2, "big")
        if ip.version == 4:
            return cls(AddressFormat.SOCKADDR_IN, _IN.pack(socket.AF_INET, big_endian, ip.packed))
        index = int(scope) if scope.isdecimal() else socket.if_nametoindex(scope) if scope else 0
        return cls(AddressFormat.SOCKADDR_IN6, _IN6.pack(socket.AF_INET6, big_endian, 0, ip.packed, index))

    @classmethod
    def from_str(cls, text: str) -> Address:
        """Return the address that an FI_ADDR_STR text names.

        ``fi_sockaddr://``, ``fi_sockaddr_in://`` and ``fi_sockaddr_in6://`` become socket addresses; their host must be
        numeric. Other texts are addresses as they are, such as those of shared memory.
        """
        if (parts := split_uri(text)) is not None:
            host, port = parts
            return cls.from_ip(host or "0.0.0.0", port or 0)
        scheme, separator, _ = text.partition("://")
        if not separator or scheme in SCHEMES:
            raise ValueError(f"{text!r} is not of the form format://node:service, with an address of that format")
        return cls(AddressFormat.ADDR_STR, text.encode())

    @classmethod
    def from_native(cls, format: int, pointer: CData, length: int) -> Address | None:
        """Return a copy of ``length`` bytes at ``pointer``; None if there is no address."""
        if not pointer or not length:
            return None
        return cls(AddressFormat(format), bytes(ffi.buffer(pointer, length)))

    @property
    def family(self) -> int:
        """The socket family (AF_INET, AF_INET6); 0 for formats that are not socket addresses."""
        return int.from_bytes(self.raw[:2], sys.byteorder) if self.format in _SOCKET_FORMATS else 0

    @property
    def host(self) -> str | None:
        """The numeric host; None for formats without one."""
        match self.family:
            case socket.AF_INET:
                return socket.inet_ntop(socket.AF_INET, self.raw[4:8])
            case socket.AF_INET6:
                if len(self.raw) < _IN6.size:
                    raise ValueError(f"an IPv6 address has {_IN6.size} bytes, not {len(self.raw)}")
                scope = _IN6.unpack_from(self.raw)[4]
                return socket.inet_ntop(socket.AF_INET6, self.raw[8:24]) + (f"%{scope}" if scope else "")
        return None

    @property
    def port(self) -> int | None:
        """The port; None for formats without one."""
        return int.from_bytes(self.raw[2:4], "big") if self.family in (socket.AF_INET, socket.AF_INET6) else None

    def check_complete(self) -> None:
        """Raise ValueError if a socket address is too short: libfabric reads as many bytes as its family has."""
        if self.format not in _SOCKET_FORMATS:
            return
        sizes: dict[int, int] = {socket.AF_INET: _IN.size, socket.AF_INET6: _IN6.size}
        size = sizes.get(self.family, 0)
        if not size or len(self.raw) < size:
            raise ValueError(f"{self.raw!r} is no complete socket address of the format {self.format}")

    def __str__(self) -> str:
        match self.family:
            case socket.AF_INET:
                return f"fi_sockaddr_in://{self.host}:{self.port}"
            case socket.AF_INET6:
                return f"fi_sockaddr_in6://[{self.host}]:{self.port}"
        if self.format == AddressFormat.ADDR_STR:
            return self.raw[:-1].decode(errors="replace")
        return f"{self.format} {self.raw.hex()}"

    def __repr__(self) -> str:
        return f"<Address {self}>"


def split_uri(text: str) -> tuple[str, int | None] | None:
    """Return host and port of an FI_ADDR_STR text of the fi_sockaddr kinds; None for any other text, also if the host
    is an IP address of another kind.
    """
    match = _URI.fullmatch(text)
    if match is None or match[1] not in SCHEMES:
        return None
    host = match[2] or match[3]
    if is_ip(host):
        others = {4: AddressFormat.SOCKADDR_IN6, 6: AddressFormat.SOCKADDR_IN}
        if SCHEMES[match[1]] == others[ip_address(host.partition("%")[0]).version]:
            return None
    return host, int(match[4]) if match[4] else None


def is_ip(node: str) -> bool:
    """Tell whether a node is an IP address, with or without a scope."""
    try:
        ip_address(node.partition("%")[0])
    except ValueError:
        return False
    return True


def is_numeric(node: str) -> bool:
    """Tell whether a node is an IP address or a plain number, not a name."""
    return is_ip(node) or re.fullmatch(r"\d+|0x[\da-fA-F]+", node) is not None
