"""Ask libfabric what there is: getinfo, and the Info objects that it answers with."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._ffi import CData, constants, ffi, lib
from ..address import Address, is_numeric, split_uri
from ..errors import NoProviderError, from_errno
from ..flags import AddressFormat, Caps, GetInfoFlags, Mode
from .attributes import DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr
from .hints import Hints
from .nic import Nic
from .tostr import native_tostr
from .versions import api_version

if TYPE_CHECKING:
    from collections.abc import Iterator

FI_ENODATA: int = constants.FI_ENODATA


class Info:
    """One thing that a provider offers: an endpoint in a domain on a fabric (man page: fi_getinfo).

    Owns its struct fi_info, ``native``, and frees it with its last reference; that frees memory and
    nothing else, so it is harmless in any thread and in a forked child. The attributes are copies, made
    when first asked for. Two infos are equal if they say the same.
    """

    def __init__(self, native: CData) -> None:
        self.native: CData = native

    @classmethod
    def from_native(cls, native: CData) -> Info:
        """Take over a single struct fi_info, such as a connection request's."""
        return cls(ffi.gc(native, lib.fi_freeinfo))

    def trim(self) -> None:
        """Drop the copies of attributes, some 3 KiB; they are made again when somebody asks."""
        self.__dict__ = {"native": self.native}

    def duplicate(self) -> Info:
        """Return a copy with memory of its own (fi_dupinfo)."""
        if not (native := lib.fi_dupinfo(self.native)):
            raise MemoryError("fi_dupinfo")
        return Info.from_native(native)

    @cached_property
    def caps(self) -> Caps:
        """What the endpoint can do."""
        return Caps(self.native.caps)

    @cached_property
    def mode(self) -> Mode:
        """What it asks of the application."""
        return Mode(self.native.mode)

    @cached_property
    def addr_format(self) -> AddressFormat:
        """The format of its addresses."""
        return AddressFormat(self.native.addr_format)

    @cached_property
    def src_addr(self) -> Address | None:
        """The local address."""
        return Address.from_native(self.addr_format, self.native.src_addr, self.native.src_addrlen)

    @cached_property
    def dest_addr(self) -> Address | None:
        """The peer's address."""
        return Address.from_native(self.addr_format, self.native.dest_addr, self.native.dest_addrlen)

    @property
    def handle(self) -> CData | None:
        """What opening an endpoint takes over, native: a connection request or a passive endpoint."""
        return self.native.handle or None

    @handle.setter
    def handle(self, handle: Any) -> None:
        native = getattr(handle, "native", handle)
        self.native.handle = ffi.NULL if native is None else ffi.cast("struct fid *", native)

    @cached_property
    def tx_attr(self) -> TxAttr:
        """How it sends."""
        return TxAttr.from_native(self.native.tx_attr)

    @cached_property
    def rx_attr(self) -> RxAttr:
        """How it receives."""
        return RxAttr.from_native(self.native.rx_attr)

    @cached_property
    def ep_attr(self) -> EpAttr:
        """What kind of endpoint it is."""
        return EpAttr.from_native(self.native.ep_attr)

    @cached_property
    def domain_attr(self) -> DomainAttr:
        """The domain that it opens in."""
        return DomainAttr.from_native(self.native.domain_attr)

    @cached_property
    def fabric_attr(self) -> FabricAttr:
        """The fabric and the provider."""
        return FabricAttr.from_native(self.native.fabric_attr)

    @cached_property
    def nic(self) -> Nic | None:
        """The network device; None where there is none, or the provider does not tell."""
        return Nic.from_native(self.native.nic)

    def _said(self) -> tuple[object, ...]:
        return (
            *(self.caps, self.mode, self.addr_format, self.src_addr, self.dest_addr, self.handle),
            *(self.tx_attr, self.rx_attr, self.ep_attr, self.domain_attr, self.fabric_attr, self.nic),
        )

    def __eq__(self, other: object) -> bool:
        return self._said() == other._said() if isinstance(other, Info) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # the handle, part of what is compared, may be set

    def __str__(self) -> str:
        """Return libfabric's own text, many lines long (fi_tostr)."""
        return native_tostr(self.native, constants.FI_TYPE_INFO)

    def __repr__(self) -> str:
        where = "".join(
            f" {word} {address}" for word, address in (("from", self.src_addr), ("to", self.dest_addr)) if address
        )
        fabric, domain = self.fabric_attr, self.domain_attr
        return (
            f"<Info {fabric.prov_name} {self.ep_attr.type} on {domain.name or '?'} "
            f"({fabric.name or '?'}){where}: {self.caps}>"
        )


def getinfo(
    node: str | None = None,
    service: str | int | None = None,
    *,
    flags: GetInfoFlags = GetInfoFlags(0),
    hints: Hints | None = None,
) -> list[Info]:
    """Return what providers offer for reaching a node and service, best first (man page: fi_getinfo).

    ``node`` is a host name, an address, or an FI_ADDR_STR text such as ``fi_sockaddr://127.0.0.1:7471``
    (then without ``service``); ``service`` a port or its name. With ``GetInfoFlags.SOURCE`` they are the
    local end. Without hints: everything that a program on aiofabric can use.

    May block while a name is resolved: off the event loop's thread, please.

    Raises: NoProviderError if nothing matches, naming the one hint that is to blame, if it is one.
    """
    hints = hints or Hints()
    found = offers(node, service, flags=flags, hints=hints)
    if not found:
        detail = _explanation(*_plain(node, service, flags), hints)
        raise NoProviderError(FI_ENODATA, "fi_getinfo", detail=detail)
    return found


def offers(
    node: str | None = None,
    service: str | int | None = None,
    *,
    flags: GetInfoFlags = GetInfoFlags(0),
    hints: Hints | None = None,
) -> list[Info]:
    """Return the same as `getinfo`, and nothing if nothing matches: to find out why takes ten times as long."""
    found = _ask(*_plain(node, service, flags), hints or Hints())
    if isinstance(found, int):
        if found != FI_ENODATA:
            raise from_errno(found, "fi_getinfo")
        return []
    return found


def check_port(service: str | int | None) -> None:
    """Refuse a number that is no port: the system would quietly take it modulo 65536."""
    if isinstance(service, int) and not 0 <= service < 1 << 16:
        raise ValueError(f"a port is 0 to 65535, not {service}")


def _plain(
    node: str | None, service: str | int | None, flags: GetInfoFlags
) -> tuple[str | None, str | None, GetInfoFlags]:
    """Take an FI_ADDR_STR of the fi_sockaddr kinds apart: libfabric's own ip providers do not read them."""
    if node is not None and "://" in node:
        if service is not None:
            raise ValueError(f"{node!r} is a whole address: there is no room for the service {service!r}")
        if (parts := split_uri(node)) is not None:
            node, service = parts[0] or None, parts[1]
    check_port(service)
    return node, None if service is None else str(service), GetInfoFlags(flags)


def _ask(node: str | None, service: str | None, flags: GetInfoFlags, hints: Hints) -> list[Info] | int:
    """Return what fi_getinfo finds, or its error."""
    # libfabric's ip providers, 1.17's and 2.x's, resolve names whatever the flags say.
    if GetInfoFlags.NUMERICHOST in flags and node is not None and not is_numeric(node):
        return FI_ENODATA
    found = ffi.new("struct fi_info **")
    rc = lib.fi_getinfo(
        api_version().native,
        ffi.NULL if node is None else node.encode(),
        ffi.NULL if service is None else service.encode(),
        flags,
        hints.to_native(),
        found,
    )
    if rc:
        return -rc
    return [info for info in _unchained(found[0]) if _is_named(info, hints)] or FI_ENODATA


def _is_named(info: Info, hints: Hints) -> bool:
    """Tell whether fabric and domain are those that the hints name, or have open.

    Seen on loopback: 1.17's ip providers do not compare the names, and none looks at open objects.
    """
    fabric = getattr(hints.fabric_attr.fabric, "info", None)
    domain = getattr(hints.domain_attr.domain, "info", None)
    pairs = [
        (hints.fabric_attr.name, info.fabric_attr.name),
        (hints.domain_attr.name, info.domain_attr.name),
    ]
    for opened in filter(None, (fabric, domain)):
        pairs.append((opened.fabric_attr.prov_name, info.fabric_attr.prov_name))
        pairs.append((opened.fabric_attr.name, info.fabric_attr.name))
    if domain is not None:
        pairs.append((domain.domain_attr.name, info.domain_attr.name))
    return all(not wanted or wanted == offered for wanted, offered in pairs)


def _unchained(native: CData) -> Iterator[Info]:
    """Yield the members of a list, each on its own from now on."""
    while native:
        following, native.next = native.next, ffi.NULL
        yield Info.from_native(native)
        native = following


def _explanation(node: str | None, service: str | None, flags: GetInfoFlags, hints: Hints) -> str:
    """Say what was asked for, and which single part of it excludes every provider."""
    asked = [f"{name}={value!r}" for name, value in (("node", node), ("service", service)) if value is not None]
    asked += [f"flags={flags}"] * bool(flags) + [str(hints)] * bool(str(hints))
    text = f"No provider has {', '.join(asked) or 'anything to offer'}. "

    def matches(*question: Any) -> bool:
        return not isinstance(_ask(*question), int)

    blamed = [words for words, rest in hints.without() if matches(node, service, flags, rest)]
    blamed += [f"{flag} in flags" for flag in flags if matches(node, service, flags ^ flag, hints)]
    if node is not None and matches(None, service, flags, hints):
        blamed.append(f"node={node!r}")
    if service is not None and matches(node, None, flags, hints):
        blamed.append(f"service={service!r}")
    if blamed:
        text += f"It would match without {' or without '.join(blamed)}"
    else:
        text += "No single one of these is to blame; leave out several"
    if allowed := os.environ.get("FI_PROVIDER"):
        text += f". FI_PROVIDER={allowed} restricts the providers of this process"
    return text
