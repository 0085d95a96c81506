"""libfabric's attribute structures as Python objects, for hints and for results of getinfo.

In hints, zero, an empty string and None mean "any". The provider fills in its own value, and an offer has at least what
the hints ask for. The converters use the type of a field's default, so each field is one line.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from .._ffi import CData, constants, ffi
from ..flags import (
    AvType,
    Caps,
    EndpointType,
    Mode,
    MrMode,
    OpFlags,
    Order,
    Progress,
    Protocol,
    ResourceManagement,
    Threading,
    TrafficClass,
)
from ..resource import Handle
from .open_objects import open_object
from .versions import Version, api_version

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED_CONTEXT: Final[int] = constants.FI_SHARED_CONTEXT
"""For EpAttr.tx_ctx_cnt and rx_ctx_cnt: the endpoint will be bound to a shared context."""


_ANY_SIZE = (1 << 64) - 1  # -1 as a size_t


class Attributes:
    """One attribute structure: a mutable part of Hints, or a frozen copy of a part of an Info."""

    _frozen: ClassVar[bool] = False  # an object has its own
    _ctype: ClassVar[str]
    _wide: ClassVar[str] = ""
    """The pointer type that also has the appended fields."""
    _appended: ClassVar[Mapping[str, Version]] = {}
    """The appended fields, and the interface version that added each; under an older version they are 0."""

    def __setattr__(self, name: str, value: object) -> None:
        if self._frozen:
            raise AttributeError(f"{name}: this is a provider's offer; set it in Hints, or use Info.replace()")
        if value == -1 and name.startswith("max_order_"):
            value = _ANY_SIZE
        object.__setattr__(self, name, value)

    @classmethod
    def from_native(cls, native: CData) -> Self:
        """Return a frozen copy of the C structure at a pointer."""
        found = object.__new__(cls)
        values = found.__dict__  # each connection reads a dozen structures: 0.8 ms through `__setattr__`
        values["_frozen"] = True
        for name, default, since in _fields_of(cls):  # type: ignore[arg-type]
            if since is None:
                values[name] = _read(native, name, default)
            elif api_version() >= since:
                values[name] = _read(ffi.cast(cls._wide, native), name, default)
            else:
                values[name] = default
        return found

    def to_native(self, keep: list[CData]) -> CData:
        """Return a new C structure, with room for fields that later libraries append; ``keep`` holds its memory."""
        keep.append(room := ffi.new(f"{self._ctype}[2]"))
        native = ffi.addressof(room, 0)
        for name, default, since in _fields_of(type(self)):  # type: ignore[arg-type]
            target = native if since is None else ffi.cast(self._wide, native)
            value = getattr(self, name)
            if default is None:
                value = open_object(name, value)
            try:
                _write(target, name, value, keep)
            except TypeError:  # cffi's text names only the C type
                wanted = type(default).__name__
                raise TypeError(f"{type(self).__name__}.{name} takes {wanted}, not {value!r}") from None
            except OverflowError:
                raise ValueError(f"{type(self).__name__}.{name}={value} does not fit {self._ctype}") from None
        return native


def _read(native: CData, name: str, default: Any) -> Any:
    if isinstance(default, bytes):
        data = getattr(native, name)
        return bytes(ffi.buffer(data, getattr(native, f"{name}_size"))) if data else b""
    value = getattr(native, name)
    if type(default) is int:
        return value
    if isinstance(default, int):
        return _member(type(default), value)  # type: ignore[arg-type]
    if isinstance(default, Version):
        return Version.from_native(value)
    if isinstance(default, str):
        return ffi.string(value).decode(errors="replace") if value else ""
    return value or None


# mypy takes the __hash__ of a class's objects for that of the class.
@cache
def _fields_of(kind: Any) -> list[tuple[str, Any, Version | None]]:
    """Of a class of attributes: the name of each field, its default, and the version that appended it."""
    return [(each.name, each.default, kind._appended.get(each.name)) for each in fields(kind)]


@lru_cache(1024)
def _member(kind: type[int], value: int) -> int:
    return kind(value)


def _write(native: CData, name: str, value: Any, keep: list[CData]) -> None:
    if isinstance(value, Version):
        value = value.native
    elif isinstance(value, str):
        value = ffi.new("char[]", value.encode()) if value else ffi.NULL
        keep.append(value)
    elif isinstance(value, bytes):
        if not hasattr(native, f"{name}_size"):
            raise TypeError(f"{name} is no field for bytes: {value!r:.100}")
        setattr(native, f"{name}_size", len(value))
        value = ffi.new("uint8_t[]", value) if value else ffi.NULL
        keep.append(value)
    elif value is None:
        value = ffi.NULL
    elif isinstance(value, Handle):
        value = value.fid
    setattr(native, name, value)


@dataclass(kw_only=True)
class TxAttr(Attributes):
    """How an endpoint or transmit context sends (man page: fi_endpoint)."""

    _ctype = "struct fi_tx_attr"

    caps: Caps = Caps(0)
    """A subset of the endpoint's; none means those that apply."""
    mode: Mode = Mode(0)
    """Requirements on the application for sending; none in hints means Hints.mode."""
    op_flags: OpFlags = OpFlags(0)
    """Options of operations that have none of their own."""
    msg_order: Order = Order(0)
    """Which operations are processed in the order of posting."""
    comp_order: Order = Order(0)
    """Which completions come in the order of posting."""
    inject_size: int = 0
    """Bytes of the largest buffer that the caller may change as soon as the call returns."""
    size: int = 0
    """Operations that may be in flight."""
    iov_limit: int = 0
    """Buffers that one operation may gather."""
    rma_iov_limit: int = 0
    """Remote ranges that one RMA or atomic operation may touch."""
    tclass: TrafficClass = TrafficClass.UNSPEC
    """How the network treats the traffic; the domain's value if unspecified."""


@dataclass(kw_only=True)
class RxAttr(Attributes):
    """How an endpoint or receive context receives (man page: fi_endpoint)."""

    _ctype = "struct fi_rx_attr"

    caps: Caps = Caps(0)
    """A subset of the endpoint's; none means those that apply."""
    mode: Mode = Mode(0)
    """Requirements on the application for receiving; none in hints means Hints.mode."""
    op_flags: OpFlags = OpFlags(0)
    """Options of receives that have none of their own."""
    msg_order: Order = Order(0)
    """Which operations are processed in the order of posting."""
    comp_order: Order = Order(0)
    """Which completions come in the order of posting, and whether data is placed in order."""
    total_buffered_recv: int = 0
    """Room for messages that arrive before a receive is posted, bytes. Deprecated."""
    size: int = 0
    """Receives that may be posted."""
    iov_limit: int = 0
    """Buffers that one receive may scatter into."""


@dataclass(kw_only=True)
class EpAttr(Attributes):
    """The type and limits of an endpoint (man page: fi_endpoint)."""

    _ctype = "struct fi_ep_attr"

    type: EndpointType = EndpointType.UNSPEC
    """Connected, datagram, or reliable datagram."""
    protocol: Protocol = Protocol.UNSPEC
    """The protocol on the wire; both ends must have the same."""
    protocol_version: int = 0
    """The version of the protocol; both ends must have the same."""
    max_msg_size: int = 0
    """Largest message or RMA transfer, bytes."""
    msg_prefix_size: int = 0
    """With Mode.MSG_PREFIX: bytes before each message that the provider uses."""
    max_order_raw_size: int = 0
    """Bytes of the largest transfer whose data a later read is guaranteed to see; -1, in hints, for any size."""
    max_order_war_size: int = 0
    """Bytes of the largest read that a later write is guaranteed not to disturb."""
    max_order_waw_size: int = 0
    """Bytes of the largest write that a later write is guaranteed to overwrite."""
    mem_tag_format: int = 0
    """Fields of a tag: adjacent fields alternate between all ones and all zeros."""
    tx_ctx_cnt: int = 0
    """Transmit contexts of a scalable endpoint, or SHARED_CONTEXT."""
    rx_ctx_cnt: int = 0
    """Receive contexts of a scalable endpoint, or SHARED_CONTEXT."""
    auth_key: bytes = b""
    """Authorization key: only endpoints with the same key can communicate."""


@dataclass(kw_only=True)
class DomainAttr(Attributes):
    """The properties and limits of a domain (man page: fi_domain)."""

    _ctype = "struct fi_domain_attr"
    _wide = "struct aiofabric_domain_attr *"
    _appended: ClassVar = {
        "max_ep_auth_key": Version(1, 20),
        "max_group_id": Version(2, 0),
        "max_cntr_value": Version(2, 5),
        "max_err_cntr_value": Version(2, 5),
    }

    domain: Any = None
    """Hints: an open Domain to restrict the results to. Results: the open domain of that name, native, or None."""
    name: str = ""
    """The network interface or device: eth0, mlx5_0."""
    threading: Threading = Threading.UNSPEC
    """Which calls the application serialises itself."""
    control_progress: Progress = Progress.UNSPEC
    """Which side makes progress on connections, registrations and other control operations."""
    data_progress: Progress = Progress.UNSPEC
    """Which side makes progress on transfers."""
    resource_mgmt: ResourceManagement = ResourceManagement.UNSPEC
    """Whether the provider or the application prevents queue overflows."""
    av_type: AvType = AvType.UNSPEC
    """How address vectors number their addresses."""
    mr_mode: MrMode = (
        MrMode.LOCAL
        | MrMode.RAW
        | MrMode.VIRT_ADDR
        | MrMode.ALLOCATED
        | MrMode.PROV_KEY
        | MrMode.ENDPOINT
        | MrMode.HMEM
    )
    """Requirements for registration; in hints, those that the program meets: by default all that aiofabric meets.
    With the default, `connect`, `listen` and `open_endpoint` leave out `MrMode.LOCAL` if the provider does not need
    it: EFA and rxm require local registration only of programs that offer it, and it slows down every send."""
    mr_key_size: int = 0
    """Length of a region's key, bytes."""
    cq_data_size: int = 0
    """Length of remote completion data, bytes; 0 in a result: not supported."""
    cq_cnt: int = 0
    """Recommended maximum of completion queues."""
    ep_cnt: int = 0
    """Recommended maximum of endpoints."""
    tx_ctx_cnt: int = 0
    """Recommended maximum of transmit contexts."""
    rx_ctx_cnt: int = 0
    """Recommended maximum of receive contexts."""
    max_ep_tx_ctx: int = 0
    """Transmit contexts of one scalable endpoint at most."""
    max_ep_rx_ctx: int = 0
    """Receive contexts of one scalable endpoint at most."""
    max_ep_stx_ctx: int = 0
    """Endpoints that may share a transmit context."""
    max_ep_srx_ctx: int = 0
    """Endpoints that may share a receive context."""
    cntr_cnt: int = 0
    """Recommended maximum of counters."""
    mr_iov_limit: int = 0
    """Buffers that one memory region may join."""
    caps: Caps = Caps(0)
    """Capabilities of the domain itself: LOCAL_COMM, REMOTE_COMM, SHARED_AV."""
    mode: Mode = Mode(0)
    """Requirements of the domain on the application."""
    auth_key: bytes = b""
    """Authorization key of endpoints and regions without one of their own."""
    max_err_data: int = 0
    """Length of error data, bytes."""
    mr_cnt: int = 0
    """Recommended maximum of memory regions."""
    tclass: TrafficClass = TrafficClass.UNSPEC
    """How the network treats the traffic of endpoints that do not specify it."""
    max_ep_auth_key: int = 0
    """1.20: authorization keys that one endpoint may use."""
    max_group_id: int = 0
    """2.0: highest number of a group of tags."""
    max_cntr_value: int = 0
    """2.5: the largest value of a counter; after it, the counter starts again from 0."""
    max_err_cntr_value: int = 0
    """2.5: the same for its error count."""


@dataclass(kw_only=True)
class FabricAttr(Attributes):
    """A fabric and its provider (man page: fi_fabric)."""

    _ctype = "struct fi_fabric_attr"

    fabric: Any = None
    """Hints: an open Fabric to restrict the results to. Results: the open fabric of that name, native; None if there is
    none, and always from IP providers, which leave it NULL."""
    name: str = ""
    """The network: 192.168.1.0/24, EFA-fe80::."""
    prov_name: str = ""
    """The provider's name; ";" joins the names of layers, in any order: ``tcp``, ``tcp;ofi_rxm``."""
    prov_version: Version = Version(0, 0)
    """The provider's version; with layers, the version of the upper one."""
    api_version: Version = Version(0, 0)
    """The version of libfabric's interface that was requested."""
