"""Discovery: getinfo, and the Info objects that it returns."""

from __future__ import annotations

import os
import socket
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._ffi import CData, constants, ffi, lib
from ..address import Address, is_numeric, split_uri
from ..arguments import check_number, check_type
from ..errors import NoProviderError, NotSupportedError, from_errno, unresolved
from ..flags import AddressFormat, Caps, GetInfoFlags, Mode, MrMode
from .attributes import DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr
from .hints import Hints, compose, merged
from .matching import of_provider, suitable
from .nic import Nic
from .open_objects import native_of, open_object
from .place import check_place
from .shortage import shortage
from .tostr import native_tostr
from .versions import Version, api_version, headers_version, library_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..resource import Handle

_ANY_FORMAT = (AddressFormat.FORMAT_UNSPEC, AddressFormat.SOCKADDR)
FI_ENODATA: int = constants.FI_ENODATA


class Info:
    """One offer of a provider: an endpoint in a domain on a fabric (man page: fi_getinfo).

    Owns its struct fi_info, ``native``, and frees it with its last reference. That frees only memory, so it is safe in
    any thread and in a forked child. The attributes are copies, made at their first use. Two infos are equal if all
    their values are equal.
    """

    def __init__(self, native: CData, opened: Handle | None = None) -> None:
        self.native: CData = native
        self._opened = opened

    @classmethod
    def from_native(cls, native: CData) -> Info:
        """Take over a single struct fi_info, such as a connection request's."""
        return cls(ffi.gc(native, lib.fi_freeinfo))

    def trim(self) -> None:
        """Drop the copies of attributes, 3 KiB; they are made again at their next use."""
        self.__dict__ = {"native": self.native, "_opened": self._opened}

    def duplicate(self) -> Info:
        """Return a copy with memory of its own (fi_dupinfo)."""
        if not (native := lib.fi_dupinfo(self.native)):
            raise MemoryError("fi_dupinfo")
        return Info(ffi.gc(native, lib.fi_freeinfo), self._opened)

    def replace(self, **changes: Any) -> Info:
        """Return a copy with other values, to open an object with; this info does not change.

        The names are those of `Hints`. A mapping for an attribute structure changes some of its fields:
        ``info.replace(tx_attr={"msg_order": Order(0)})`` resets the ordering that the program does not require.
        Providers check the values when an object is opened, and refuse values that they do not support.

        Raises:
            TypeError: there is no such field.
            ClosedResourceError: the new handle is closed.
            ValueError: an address of another format, or another provider, which has other structures.
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
        opened = open_object("handle", values.pop("handle")) if "handle" in values else self._opened
        return Info(compose(ffi.new("struct fi_info *", self.native[0]), values), opened)

    @cached_property
    def caps(self) -> Caps:
        """The capabilities of the endpoint."""
        return Caps(self.native.caps)

    @cached_property
    def mode(self) -> Mode:
        """Its requirements on the application."""
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
        """The open object that an endpoint opened with this info takes over, as a C pointer. None: there is none, or
        it was closed; then no endpoint can be opened with the info.
        """
        return None if self._opened is None or self._opened.closed else native_of(self._opened)

    @handle.setter
    def handle(self, handle: Any) -> None:
        self._opened = open_object("handle", handle)

    def native_handle(self) -> CData:
        """Return the handle for the next call of libfabric; NULL if there is none.

        Raises:
            ClosedResourceError: it was closed.
        """
        return native_of(self._opened)

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
        """The type and limits of the endpoint."""
        return EpAttr.from_native(self.native.ep_attr)

    @cached_property
    def domain_attr(self) -> DomainAttr:
        """The domain of the endpoint."""
        return DomainAttr.from_native(self.native.domain_attr)

    @cached_property
    def fabric_attr(self) -> FabricAttr:
        """The fabric and the provider."""
        return FabricAttr.from_native(self.native.fabric_attr)

    @cached_property
    def nic(self) -> Nic | None:
        """The network device; None if there is none, or the provider does not report it."""
        return Nic.from_native(self.native.nic)

    def _said(self) -> tuple[object, ...]:
        return (
            *(self.caps, self.mode, self.addr_format, self.src_addr, self.dest_addr, self.handle),
            *(self.tx_attr, self.rx_attr, self.ep_attr, self.domain_attr, self.fabric_attr, self.nic),
        )

    def __eq__(self, other: object) -> bool:
        return self._said() == other._said() if isinstance(other, Info) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # the handle, which is compared, can change

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
    """Refuse an info that cannot be opened.

    Raises:
        TypeError: it is not an `Info`.
        NotSupportedError: it requires a mode that aiofabric does not support; infos found without hints may have one.
        ClosedResourceError: the object that it names as handle was closed.
    """
    if not isinstance(info, Info):
        raise TypeError(f"an Info, as getinfo() returns it, is needed, not {info!r}")
    if unknown := Mode(info.native.mode) & ~Hints().mode:
        detail = f"The info has the mode {unknown}, which aiofabric does not support"
        error = NotSupportedError(constants.FI_EBADFLAGS, "fi_getinfo", detail=detail)
        error.cure = "Take an info of getinfo(hints=Hints())"
        raise error
    info.native_handle()


def getinfo(
    node: str | None = None,
    service: str | int | None = None,
    *,
    flags: GetInfoFlags = GetInfoFlags(0),
    hints: Hints | None = None,
    version: tuple[int, int] | None = None,
) -> list[Info]:
    """Return the providers' offers for reaching a node and service, best first (man page: fi_getinfo).

    Each offer has at least the sizes that the hints ask for, and the same authorization keys. aiofabric checks this
    also where the provider does not, and leaves out offers that do not match.

    Args:
        node: a host name, an address, or an FI_ADDR_STR text such as ``fi_sockaddr://127.0.0.1:7471`` (then without
            ``service``).
        service: a port or its name.
        flags: with ``GetInfoFlags.SOURCE``, node and service are the local address.
        hints: the requirements. None: all offers, also those that need a shared context or a mode of the program.
            ``Hints()`` leaves out offers that a program on aiofabric cannot use.
        version: of libfabric's interface, such as ``(1, 9)``; by default `api_version`, the newest possible. Structures
            have the layout and the meaning of that version: below 1.5 ``mr_mode`` is `MrMode.BASIC` or
            `MrMode.SCALABLE`, also in hints.

    May block while a name is resolved, so call it outside the event loop's thread.

    Raises:
        NoProviderError: nothing matches; the text names the hint that excludes all offers, if it is a single one.
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
    """Like `getinfo`, but return an empty list if nothing matches: finding the reason takes ten times as long."""
    if hints is not None:
        check_type("hints", hints, Hints)
    found = _ask(*_plain(node, service, flags), hints, _checked(version))
    if isinstance(found, int):
        if found != FI_ENODATA:
            _check_name(*_plain(node, service, flags))
            raise from_errno(found, "fi_getinfo")
        return []
    return found


def _checked(version: Any) -> Version:
    """Return the version to request; raise if libfabric or this build does not have its structures."""
    if version is None:
        return api_version()
    pair = isinstance(version, tuple) and len(version) == 2
    if not (pair and all(isinstance(part, int) and part >= 0 for part in version)):
        raise TypeError(f"version must be a pair of numbers, such as (1, 17), not {version!r}")
    asked = Version(*version)
    if asked > api_version():
        raise _too_new(asked)
    return asked


def _too_new(asked: Version) -> NotSupportedError:
    detail = (
        f"Version {asked} was asked for; libfabric here is {library_version()}, and this aiofabric was built "
        f"with the headers of {headers_version()}, so it can ask for {api_version()} at most"
    )
    if asked <= library_version():
        detail += ": libfabric would read and write fields of that version behind the structures of this build"
    error = NotSupportedError(constants.FI_ENOSYS, "fi_getinfo", detail=detail)
    if asked <= library_version():
        error.cure = f"Build aiofabric with the headers of libfabric {asked} or newer"
    else:
        error.cure = f"Leave version= out, or ask for {api_version()} at most"
    return error


def _check_name(node: str | None, service: str | None, flags: GetInfoFlags) -> None:
    """Raise NameResolutionError if the system does not know the name of the host or service."""
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
    """Split an FI_ADDR_STR of the fi_sockaddr kinds into host and port: libfabric's IP providers do not parse it."""
    check_place(node, service)
    check_number("flags", flags, 64)
    if not isinstance(node, str | None):
        raise TypeError(f"getinfo() takes an Address as dest_addr or src_addr of its hints, not as node: {node}")
    if node is not None and (parts := split_uri(node)) is not None:
        node, service = parts[0] or None, parts[1]
    return node, None if service is None else str(service), GetInfoFlags(flags)


def _ask(
    node: str | None, service: str | None, flags: GetInfoFlags, hints: Hints | None, version: Version
) -> list[Info] | int:
    """Return the offers of fi_getinfo, or its error code."""
    # libfabric's IP providers, in 1.17 and 2.x, resolve names even if the flags forbid it.
    if GetInfoFlags.NUMERICHOST in flags and node is not None and not is_numeric(node):
        return FI_ENODATA
    found = ffi.new("struct fi_info **")
    rc = lib.fi_getinfo(
        version.native,
        ffi.NULL if node is None else node.encode(),
        ffi.NULL if service is None else service.encode(),
        flags,
        ffi.NULL if hints is None else _of_version(hints, version).to_native(),
        found,
    )
    if rc:
        return -rc
    offered = list(_unchained(found[0], None if hints is None else open_object("handle", hints.handle)))
    if hints is not None:
        for info in offered:
            info.native.caps &= ~int(Caps.AV_USER_ID)  # refused in hints, which may be made of an offer
            _classify(info, hints)
        offered = (of_provider if GetInfoFlags.PROV_ATTR_ONLY in flags else suitable)(offered, hints)
    return offered or FI_ENODATA


def _classify(info: Info, hints: Hints) -> None:
    """Set the requested traffic class in an offer: tcp obeys it, but libfabric does not return it."""
    domain = hints.domain_attr.tclass
    native = info.native
    native.domain_attr.tclass = native.domain_attr.tclass or domain
    native.tx_attr.tclass = native.tx_attr.tclass or hints.tx_attr.tclass or domain


def _of_version(hints: Hints, version: Version) -> Hints:
    """The hints for a version of the interface: before 1.5 ``mr_mode`` is no set of modes, and 0 is any."""
    if version >= Version(1, 5) or hints.domain_attr.mr_mode != DomainAttr().mr_mode:
        return hints
    return hints.replace(domain_attr={"mr_mode": MrMode(0)})


def _unchained(native: CData, opened: Handle | None) -> Iterator[Info]:
    """Yield the members of a list; each is independent afterwards.

    Args:
        opened: the handle of the hints, which those results refer to that have one.
    """
    while native:
        following, native.next = native.next, ffi.NULL
        handle, native.handle = native.handle, ffi.NULL
        yield Info(ffi.gc(native, lib.fi_freeinfo), opened if handle else None)
        native = following


def _explanation(
    node: str | None, service: str | None, flags: GetInfoFlags, hints: Hints | None, version: Version
) -> str:
    """Describe the request, and name each single part without which an offer would match."""
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
        text += "No single requirement excludes all offers; leave out several"
    if allowed := os.environ.get("FI_PROVIDER"):
        text += f". FI_PROVIDER={allowed} restricts the providers of this process"
    return text
