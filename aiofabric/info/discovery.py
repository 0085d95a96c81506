"""Ask libfabric what there is: getinfo, and the Info objects that it answers with."""

from __future__ import annotations

import os
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._ffi import CData, constants, ffi, lib
from ..address import Address, is_numeric, split_uri
from ..errors import NoProviderError, NotSupportedError, from_errno, unresolved
from ..flags import AddressFormat, Caps, GetInfoFlags, Mode
from .attributes import DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr, native_fid
from .hints import Hints, compose, merged
from .matching import of_provider, suitable
from .nic import Nic
from .place import check_place
from .shortage import shortage
from .tostr import native_tostr
from .versions import Version, api_version, headers_version, library_version

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANY_FORMAT = (AddressFormat.FORMAT_UNSPEC, AddressFormat.SOCKADDR)
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

    def replace(self, **changes: Any) -> Info:
        """Return a copy with other values, to open something with; this one stays as it is.

        The names are those of `Hints`; a mapping for an attribute structure changes some of its fields:
        ``info.replace(tx_attr={"msg_order": Order(0)})`` resets the ordering that the program does not require.
        Providers check what is opened: what they do not have is refused there.

        Raises:
            TypeError: there is no such field.
            ValueError: an address of another format, or another provider, whose structures these are not.
        """
        values = merged(self, changes)
        fabric_attr = values.get("fabric_attr", self.fabric_attr)
        if fabric_attr.prov_name != self.fabric_attr.prov_name:
            raise ValueError(
                f"this info is an offer of {self.fabric_attr.prov_name}, which cannot become one of "
                f"{fabric_attr.prov_name}: ask getinfo() for that provider"
            )
        form = AddressFormat(values.get("addr_format", self.addr_format))
        for name in ("src_addr", "dest_addr"):
            address = values.get(name)
            if address is not None and form not in (address.format, *_ANY_FORMAT):
                raise ValueError(f"{name}={address} has the format {address.format}; addresses of this info are {form}")
        return Info(compose(ffi.new("struct fi_info *", self.native[0]), values))

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
        self.native.handle = native_fid(handle)

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


def check_info(info: object) -> None:
    """Refuse what cannot be opened.

    Raises:
        TypeError: it is no `Info`.
        NotSupportedError: it asks of the program what aiofabric does not do, as those found without hints may.
    """
    if not isinstance(info, Info):
        raise TypeError(f"an Info, as getinfo() returns it, is needed, not {info!r}")
    if unknown := Mode(info.native.mode) & ~Hints().mode:
        detail = f"The info has the mode {unknown}, which aiofabric does not do: ask with hints=Hints()"
        raise NotSupportedError(constants.FI_EBADFLAGS, "fi_getinfo", detail=detail)


def getinfo(
    node: str | None = None,
    service: str | int | None = None,
    *,
    flags: GetInfoFlags = GetInfoFlags(0),
    hints: Hints | None = None,
    version: tuple[int, int] | None = None,
) -> list[Info]:
    """Return what providers offer for reaching a node and service, best first (man page: fi_getinfo).

    Each offer has at least the sizes that the hints ask for, also where the provider did not compare, and the
    authorization keys; what has not is left out.

    Args:
        node: a host name, an address, or an FI_ADDR_STR text such as ``fi_sockaddr://127.0.0.1:7471`` (then without
            ``service``).
        service: a port or its name.
        flags: with ``GetInfoFlags.SOURCE`` node and service are the local end.
        hints: what is needed. None: everything that providers have, also what needs a shared context or a mode of the
            program. ``Hints()`` leaves out what a program on aiofabric cannot use.
        version: of libfabric's interface, such as ``(1, 9)``; by default `api_version`. Structures keep the layout and
            the meaning that they had then: below 1.5 ``mr_mode`` is `MrMode.BASIC` or `MrMode.SCALABLE`, in hints too.

    May block while a name is resolved: off the event loop's thread, please.

    Raises:
        NoProviderError: nothing matches; the text names the one hint that is to blame, if it is one.
        NameResolutionError: nothing matches because the name does not resolve.
        NotSupportedError: the version is newer than the library, or than the headers of this build.
    """
    found = offers(node, service, flags=flags, hints=hints, version=version)
    if not found:
        _check_name(*_plain(node, service, flags))
        detail = _explanation(*_plain(node, service, flags), hints, _checked(version))
        raise NoProviderError(FI_ENODATA, "fi_getinfo", detail=detail)
    return found


def offers(
    node: str | None = None,
    service: str | int | None = None,
    *,
    flags: GetInfoFlags = GetInfoFlags(0),
    hints: Hints | None = None,
    version: tuple[int, int] | None = None,
) -> list[Info]:
    """Return the same as `getinfo`, and nothing if nothing matches: to find out why takes ten times as long."""
    found = _ask(*_plain(node, service, flags), hints, _checked(version))
    if isinstance(found, int):
        if found != FI_ENODATA:
            _check_name(*_plain(node, service, flags))
            raise from_errno(found, "fi_getinfo")
        return []
    return found


def _checked(version: Any) -> Version:
    """Return the version to ask for: its structures are those of libfabric and of this build."""
    if version is None:
        return api_version()
    pair = isinstance(version, tuple) and len(version) == 2
    if not (pair and all(isinstance(part, int) and part >= 0 for part in version)):
        raise TypeError(f"version is a pair of numbers, such as (1, 17), not {version!r}")
    asked = Version(*version)
    if asked > api_version():
        detail = (
            f"Version {asked} was asked for; libfabric here is {library_version()}, and this aiofabric was built "
            f"with the headers of {headers_version()}"
        )
        raise NotSupportedError(constants.FI_ENOSYS, "fi_getinfo", detail=detail)
    return asked


def _check_name(node: str | None, service: str | None, flags: GetInfoFlags) -> None:
    """Raise NameResolutionError if the system does not know the name of a host or service either."""
    if node is not None and ("://" in node or GetInfoFlags.NUMERICHOST in flags):
        return
    if (node is None or is_numeric(node)) and (service is None or service.isdecimal()):
        return
    try:
        socket.getaddrinfo(node, service, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise unresolved(error, node, service) from None


def _plain(
    node: str | None, service: str | int | None, flags: GetInfoFlags
) -> tuple[str | None, str | None, GetInfoFlags]:
    """Take an FI_ADDR_STR of the fi_sockaddr kinds apart: libfabric's own ip providers do not read them."""
    check_place(node, service)
    if not isinstance(node, str | None):
        raise TypeError(f"getinfo() takes an Address as dest_addr or src_addr of its hints, not as node: {node}")
    if node is not None and (parts := split_uri(node)) is not None:
        node, service = parts[0] or None, parts[1]
    return node, None if service is None else str(service), GetInfoFlags(flags)


def _ask(
    node: str | None, service: str | None, flags: GetInfoFlags, hints: Hints | None, version: Version
) -> list[Info] | int:
    """Return what fi_getinfo finds, or its error."""
    # libfabric's ip providers, 1.17's and 2.x's, resolve names whatever the flags say.
    if GetInfoFlags.NUMERICHOST in flags and node is not None and not is_numeric(node):
        return FI_ENODATA
    found = ffi.new("struct fi_info **")
    rc = lib.fi_getinfo(
        version.native,
        ffi.NULL if node is None else node.encode(),
        ffi.NULL if service is None else service.encode(),
        flags,
        ffi.NULL if hints is None else hints.to_native(),
        found,
    )
    if rc:
        return -rc
    offered = list(_unchained(found[0]))
    if hints is not None:
        offered = (of_provider if GetInfoFlags.PROV_ATTR_ONLY in flags else suitable)(offered, hints)
    return offered or FI_ENODATA


def _unchained(native: CData) -> Iterator[Info]:
    """Yield the members of a list, each on its own from now on."""
    while native:
        following, native.next = native.next, ffi.NULL
        yield Info.from_native(native)
        native = following


def _explanation(
    node: str | None, service: str | None, flags: GetInfoFlags, hints: Hints | None, version: Version
) -> str:
    """Say what was asked for, and which single part of it excludes every provider."""
    words = "" if hints is None else str(hints)
    asked = [f"{name}={value!r}" for name, value in (("node", node), ("service", service)) if value is not None]
    asked += [f"flags={flags}"] * bool(flags) + [words] * bool(words)
    asked += [f"version={version}"] * (version != api_version())
    missing = "" if hints is None else shortage(hints.fabric_attr.prov_name)
    text = f"No provider has {', '.join(asked) or 'anything to offer'}.{missing} "

    def matches(*question: Any) -> bool:
        return not isinstance(_ask(*question), int)

    blamed = [] if hints is None else [w for w, rest in hints.without() if matches(node, service, flags, rest, version)]
    blamed += [f"{flag} in flags" for flag in flags if matches(node, service, flags ^ flag, hints, version)]
    if node is not None and matches(None, service, flags, hints, version):
        blamed.append(f"node={node!r}")
    if service is not None and matches(node, None, flags, hints, version):
        blamed.append(f"service={service!r}")
    if version != api_version() and matches(node, service, flags, hints, api_version()):
        blamed.append(f"version={version}")
    if blamed:
        text += f"It would match without {' or without '.join(blamed)}"
    else:
        text += "No single one of these is to blame; leave out several"
    if allowed := os.environ.get("FI_PROVIDER"):
        text += f". FI_PROVIDER={allowed} restricts the providers of this process"
    return text
