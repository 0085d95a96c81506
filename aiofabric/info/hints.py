"""Hints: a program's requirements for providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .._ffi import CData, constants, ffi, lib
from ..address import Address
from ..errors import NotSupportedError
from ..flags import AddressFormat, Caps, Choice, EndpointType, Flags, Mode
from .attributes import SHARED_CONTEXT, Attributes, DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr
from .open_objects import native_of, open_object

if TYPE_CHECKING:
    from collections.abc import Iterator

# Modes and capabilities of libfabric until 1.20; each changes the meaning of a completion.
_REFUSED = {
    "BUFFERED_RECV": "messages would stay in the provider's buffers until they "
    "are claimed; use the pool (recv_size=, recv_count=) instead",
    "VARIABLE_MSG": "a receive would learn its size first and be posted then; use tags, or a pool of large receives",
    "AV_USER_ID": "a message names its sender as a Peer, whose number is that of the address vector",
    "NOTIFY_FLAGS_ONLY": "completions would not name the kind of their operation",
    "RESTRICTED_COMP": "endpoints of different capabilities could not share a queue, but in aiofabric they do",
    "LOCAL_MR": "this is how local registration was requested before 1.5; today it is MrMode.LOCAL",
}


_STRUCTURES = {
    "tx_attr": TxAttr,
    "rx_attr": RxAttr,
    "ep_attr": EpAttr,
    "domain_attr": DomainAttr,
    "fabric_attr": FabricAttr,
}


@dataclass(kw_only=True)
class Hints:
    """Criteria for ``getinfo``: an offer must meet every one that is set.

    Zero, empty and None mean "any". Two fields say what the program *supports*: ``mode`` and ``domain_attr.mr_mode``.
    Their default is all that aiofabric supports (man page: fi_getinfo).
    """

    caps: Caps = Caps(0)
    """Required capabilities; none: all that the provider has."""
    mode: Mode = Mode.CONTEXT | Mode.CONTEXT2 | Mode.MSG_PREFIX | Mode.ASYNC_IOV | Mode.RX_CQ_DATA
    """Modes that the program supports; by default all that aiofabric supports. Other modes are refused.
    `Mode.MSG_PREFIX` is offered for datagrams only: EFA would switch it on for every type of endpoint."""
    addr_format: AddressFormat = AddressFormat.FORMAT_UNSPEC
    """Format of addresses; that of src_addr or dest_addr if these are set and this is not."""
    src_addr: Address | None = None
    """The local address. Ignored with GetInfoFlags.SOURCE."""
    dest_addr: Address | None = None
    """The peer's address. Ignored if node or service name one."""
    handle: Any = None
    """An open object that the results refer to: the `Reservation` whose address an endpoint is to take over."""
    tx_attr: TxAttr = field(default_factory=TxAttr)
    """How to send."""
    rx_attr: RxAttr = field(default_factory=RxAttr)
    """How to receive."""
    ep_attr: EpAttr = field(default_factory=EpAttr)
    """The type and limits of the endpoint."""
    domain_attr: DomainAttr = field(default_factory=DomainAttr)
    """The domain and its properties."""
    fabric_attr: FabricAttr = field(default_factory=FabricAttr)
    """The fabric and provider."""

    def __post_init__(self) -> None:
        for name, kind in _STRUCTURES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, such as {kind.__name__}(), not {value!r}")
        for name in ("caps", "mode", "addr_format"):
            if not isinstance(value := getattr(self, name), int):
                raise TypeError(f"{name} must be a number, such as {getattr(Hints, name)!r}, not {value!r}")
        for name in ("src_addr", "dest_addr"):
            if not isinstance(value := getattr(self, name), Address | None):
                raise TypeError(f"{name} must be an Address, such as Address.from_str(...), not {value!r}")

    def to_native(self) -> CData:
        """Return a struct fi_info of these hints, freed with its last reference.

        Raises:
            NotSupportedError: modes or capabilities that aiofabric does not support.
            TypeError, ValueError: a value of a wrong type, or one that does not fit.
            ClosedResourceError: an object that the hints name is closed.
        """
        self.__post_init__()  # fields can be set
        for name, why in _REFUSED.items():
            for family, asked in ((Mode, self.mode), (Caps, self.caps)):
                if (bit := family.__members__.get(name)) is not None and bit in asked:
                    error = NotSupportedError(constants.FI_EBADFLAGS, "fi_getinfo", detail=f"{bit}: {why}")
                    error.cure = f"Leave {bit} out of the hints"
                    raise error
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "handle"}
        native = compose(ffi.new("struct fi_info *"), said)
        native.handle = native_of(open_object("handle", self.handle))
        if self.ep_attr.type != EndpointType.DGRAM:
            native.mode &= ~int(Mode.MSG_PREFIX)
        return native

    def replace(self, **changes: Any) -> Hints:
        """Return a copy with other values; a mapping for an attribute structure changes some of its fields.

        ``hints.replace(caps=Caps.MSG, tx_attr={"size": 16})``. `Info.replace` takes the same.

        Raises: TypeError for a field that does not exist.
        """
        return replace(self, **merged(self, changes))

    def without(self) -> Iterator[tuple[str, Hints]]:
        """Yield (the dropped part as text, the hints without it), for one field or flag at a time."""
        nothing = Hints()
        for path, value in differences(self, nothing):
            default = attrgetter(path)(nothing)
            if isinstance(value, Flags) and not default:
                for member in value:
                    yield f"{member} in {path}", self._with(path, type(value)(int(value) & ~int(member)))
            else:
                yield f"{path}={words(path, value)}", self._with(path, default)

    def _with(self, path: str, value: Any) -> Hints:
        """Return a copy of these hints with one field, such as ``ep_attr.type``, set to a value."""
        outer, _, inner = path.partition(".")
        return replace(self, **{outer: replace(getattr(self, outer), **{inner: value}) if inner else value})

    def __str__(self) -> str:
        return ", ".join(f"{path}={words(path, value)}" for path, value in differences(self, Hints()))


_FIELDS = tuple(each.name for each in fields(Hints))


def merged(current: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new values of fields. A mapping for an attribute structure changes some of its fields.

    Raises:
        TypeError: there is no such field, or the value has the wrong type.
    """
    return {name: _merged_part(current, name, value) for name, value in changes.items()}


def _merged_part(current: Any, name: str, value: Any) -> Any:
    if name not in _FIELDS:
        raise TypeError(f"an info has no field {name!r}; its fields are {', '.join(_FIELDS)}")
    part = getattr(current, name)
    if not isinstance(part, Attributes):
        return value
    if not isinstance(value, type(part) | Mapping):
        raise TypeError(f"{name} must be a {type(part).__name__}, or a dictionary of its fields, not {value!r}")
    return replace(part, **value) if isinstance(value, Mapping) else value  # type: ignore[type-var]


def compose(info: CData, said: Mapping[str, Any]) -> CData:
    """Write fields over a struct fi_info; return libfabric's copy of it, freed with its last reference."""
    keep: list[CData] = []
    for name, value in said.items():
        if isinstance(value, Attributes):
            setattr(info, name, value.to_native(keep))
        elif name in ("src_addr", "dest_addr"):
            if value is not None:
                value.check_complete()
            raw = b"" if value is None else value.raw
            keep.append(pointer := ffi.new("char[]", raw) if raw else ffi.NULL)
            setattr(info, name, pointer)
            setattr(info, f"{name}len", len(raw))
            if raw:
                info.addr_format = info.addr_format or value.format
        else:
            setattr(info, name, value)
    # libfabric 2.x needs hints from its own allocator. The copy also makes `keep` unnecessary.
    if not (native := lib.fi_dupinfo(info)):
        raise MemoryError("fi_dupinfo")
    return ffi.gc(native, lib.fi_freeinfo)


def differences(given: Any, nothing: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field that is set."""
    for each in fields(given):
        value, default = getattr(given, each.name), getattr(nothing, each.name)
        if isinstance(value, Attributes):
            yield from differences(value, default, f"{each.name}.")
        elif value != default:
            yield prefix + each.name, value


def words(path: str, value: object) -> str:
    """The value of a field in the spelling of libfabric."""
    if path.endswith("_ctx_cnt") and value == SHARED_CONTEXT:
        return "FI_SHARED_CONTEXT"
    if path.endswith("_tag_format"):
        return f"{value:#x}"
    return str(value) if isinstance(value, Flags | Choice | Address) else repr(value)
