"""What a program asks of providers."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .._ffi import CData, constants, ffi, lib
from ..address import Address
from ..errors import NotSupportedError
from ..flags import AddressFormat, Caps, Choice, Flags, Mode
from .attributes import Attributes, DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of libfabric until 1.20; each changes what a completion means.
_REFUSED = {
    "BUFFERED_RECV": "messages would stay in the provider's buffers until they are claimed; pools do that better",
    "VARIABLE_MSG": "a receive would learn its size first and be posted then; use tags, or a pool of large receives",
    "NOTIFY_FLAGS_ONLY": "completions would not tell what they are of",
    "RESTRICTED_COMP": "endpoints of different capabilities could not share a queue, and here they do",
    "LOCAL_MR": "this is how local registration was asked for before 1.5; today it is MrMode.LOCAL",
}


@dataclass(kw_only=True)
class Hints:
    """Criteria for ``getinfo``: a provider has to meet every one that is set.

    Zero, empty and None mean "any". The two exceptions say what the program is *able* to do: ``mode`` and
    ``domain_attr.mr_mode``, by default all that aiofabric does by itself (man page: fi_getinfo).
    """

    caps: Caps = Caps(0)
    """What is needed; none: all that the provider has."""
    mode: Mode = Mode.CONTEXT | Mode.CONTEXT2 | Mode.MSG_PREFIX | Mode.ASYNC_IOV | Mode.RX_CQ_DATA
    """What the program can do for the provider; by default all that aiofabric does. The rest is refused."""
    addr_format: AddressFormat = AddressFormat.FORMAT_UNSPEC
    """Format of addresses; that of src_addr or dest_addr if these are set and this is not."""
    src_addr: Address | None = None
    """The local address. Ignored with GetInfoFlags.SOURCE."""
    dest_addr: Address | None = None
    """The peer's address. Ignored where node or service name one."""
    handle: Any = None
    """A passive endpoint whose address the found infos are to carry on, or a provider's own handle."""
    tx_attr: TxAttr = field(default_factory=TxAttr)
    """How to send."""
    rx_attr: RxAttr = field(default_factory=RxAttr)
    """How to receive."""
    ep_attr: EpAttr = field(default_factory=EpAttr)
    """Which kind of endpoint."""
    domain_attr: DomainAttr = field(default_factory=DomainAttr)
    """Which domain, and how it works."""
    fabric_attr: FabricAttr = field(default_factory=FabricAttr)
    """Which fabric and provider."""

    def to_native(self) -> CData:
        """Return a struct fi_info of these hints, freed with its last reference.

        Raises: NotSupportedError for modes and capabilities that aiofabric cannot live up to.
        """
        for name, why in _REFUSED.items():
            for family, asked in ((Mode, self.mode), (Caps, self.caps)):
                if (bit := family.__members__.get(name)) is not None and bit in asked:
                    raise NotSupportedError(constants.FI_EBADFLAGS, "fi_getinfo", detail=f"{bit}: {why}")
        keep: list[CData] = []
        info = ffi.new("struct fi_info *")
        info.caps = self.caps
        info.mode = self.mode
        info.addr_format = self.addr_format
        for side in ("src_addr", "dest_addr"):
            if (address := getattr(self, side)) is not None:
                keep.append(pointer := ffi.new("char[]", address.raw))
                setattr(info, side, pointer)
                setattr(info, f"{side}len", len(address.raw))
                info.addr_format = info.addr_format or address.format
        if self.handle is not None:
            info.handle = ffi.cast("struct fid *", getattr(self.handle, "native", self.handle))
        for name in ("tx_attr", "rx_attr", "ep_attr", "domain_attr", "fabric_attr"):
            setattr(info, name, getattr(self, name).to_native(keep))
        # libfabric 2.x wants hints from its own allocator; the copy also ends the need for `keep`.
        if not (native := lib.fi_dupinfo(info)):
            raise MemoryError("fi_dupinfo")
        return ffi.gc(native, lib.fi_freeinfo)

    def without(self) -> Iterator[tuple[str, Hints]]:
        """Yield (what was dropped, in words; the hints without it), one field or flag at a time."""
        nothing = Hints()
        for path, value in _differences(self, nothing):
            default = attrgetter(path)(nothing)
            if isinstance(value, Flags) and not default:
                for member in value:
                    yield f"{member} in {path}", self._with(path, type(value)(int(value) & ~int(member)))
            else:
                yield f"{path}={_words(value)}", self._with(path, default)

    def _with(self, path: str, value: Any) -> Hints:
        """Return a copy of these hints with one field, such as ``ep_attr.type``, set to a value."""
        outer, _, inner = path.partition(".")
        return replace(self, **{outer: replace(getattr(self, outer), **{inner: value}) if inner else value})

    def __str__(self) -> str:
        return ", ".join(f"{path}={_words(value)}" for path, value in _differences(self, Hints()))


def _differences(given: Any, nothing: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field that is set."""
    for each in fields(given):
        value, default = getattr(given, each.name), getattr(nothing, each.name)
        if isinstance(value, Attributes):
            yield from _differences(value, default, f"{each.name}.")
        elif value != default:
            yield prefix + each.name, value


def _words(value: object) -> str:
    return str(value) if isinstance(value, Flags | Choice | Address) else repr(value)
