"""libfabric's attribute structures as Python objects, for hints and for what getinfo found.

In hints a zero (an empty string, None) means "any"; the provider fills in what it has, and an offer is at
least what was asked for. The converters follow the type of a field's default, so a field is one line.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
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
from .versions import Version, api_version

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED_CONTEXT: Final[int] = constants.FI_SHARED_CONTEXT
"""For EpAttr.tx_ctx_cnt and rx_ctx_cnt: the endpoint will be bound to a shared context."""


def native_fid(value: Any) -> CData:
    """Return the ``struct fid *`` of an open object, or of the C pointer to one; NULL for None.

    Raises: TypeError for anything else, which libfabric would follow to nowhere.
    """
    if value is None:
        return ffi.NULL
    native = getattr(value, "native", value)
    name = ffi.typeof(native).cname if isinstance(native, ffi.CData) else ""
    if not (name.startswith("struct fid") and name.endswith(" *")):
        raise TypeError(f"handle is an open object of libfabric, or the C pointer to one, not {value!r}")
    return ffi.cast("struct fid *", native)


class Attributes:
    """One attribute structure: a mutable part of Hints, or a frozen copy of what an Info says."""

    __slots__ = ("_frozen",)
    _ctype: ClassVar[str]
    _wide: ClassVar[str] = ""
    """The pointer type that knows the appended fields too."""
    _appended: ClassVar[Mapping[str, Version]] = {}
    """Which fields those are, and since which version of the interface; under an older one they are 0."""

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"{name}: this is what a provider offers; set it in Hints, or use Info.replace()")
        object.__setattr__(self, name, value)

    @classmethod
    def from_native(cls, native: CData) -> Self:
        """Return a frozen copy of the C structure at a pointer."""
        values = {}
        for field in fields(cls):  # type: ignore[arg-type]
            since = cls._appended.get(field.name)
            if since is None:
                values[field.name] = _read(native, field.name, field.default)
            elif api_version() >= since:
                values[field.name] = _read(ffi.cast(cls._wide, native), field.name, field.default)
        found = cls(**values)
        object.__setattr__(found, "_frozen", True)
        return found

    def to_native(self, keep: list[CData]) -> CData:
        """Return a new C structure, with room for what later libraries append; ``keep`` holds its memory."""
        keep.append(room := ffi.new(f"{self._ctype}[2]"))
        native = ffi.addressof(room, 0)
        for field in fields(self):  # type: ignore[arg-type]
            target = ffi.cast(self._wide, native) if field.name in self._appended else native
            value = getattr(self, field.name)
            try:
                _write(target, field.name, value, keep)
            except TypeError:  # cffi names the C type only
                wanted = type(field.default).__name__
                raise TypeError(f"{type(self).__name__}.{field.name} takes {wanted}, not {value!r}") from None
            except OverflowError:
                raise ValueError(f"{type(self).__name__}.{field.name}={value} does not fit {self._ctype}") from None
        return native


def _read(native: CData, name: str, default: Any) -> Any:
    if isinstance(default, bytes):
        data = getattr(native, name)
        return bytes(ffi.buffer(data, getattr(native, f"{name}_size"))) if data else b""
    value = getattr(native, name)
    if isinstance(default, int):
        return type(default)(value)
    if isinstance(default, Version):
        return Version.from_native(value)
    if isinstance(default, str):
        return ffi.string(value).decode(errors="replace") if value else ""
    return value or None


def _write(native: CData, name: str, value: Any, keep: list[CData]) -> None:
    if isinstance(value, Version):
        value = value.native
    elif isinstance(value, str):
        value = ffi.new("char[]", value.encode()) if value else ffi.NULL
        keep.append(value)
    elif isinstance(value, bytes):
        setattr(native, f"{name}_size", len(value))
        value = ffi.new("uint8_t[]", value) if value else ffi.NULL
        keep.append(value)
    elif not isinstance(value, int):
        value = ffi.NULL if value is None else getattr(value, "native", value)
    setattr(native, name, value)


@dataclass(kw_only=True)
class TxAttr(Attributes):
    """How an endpoint or transmit context sends (man page: fi_endpoint)."""

    _ctype = "struct fi_tx_attr"

    caps: Caps = Caps(0)
    """A subset of the endpoint's; none means those that apply."""
    mode: Mode = Mode(0)
    """What sending asks of the application; none in hints means Hints.mode."""
    op_flags: OpFlags = OpFlags(0)
    """Options of every operation that brings none of its own."""
    msg_order: Order = Order(0)
    """Which operations are processed in the order of posting."""
    comp_order: Order = Order(0)
    """Which completions come in the order of posting."""
    inject_size: int = 0
    """Largest buffer that is the caller's again when the call returns, bytes."""
    size: int = 0
    """Operations that may be in flight."""
    iov_limit: int = 0
    """Buffers that one operation may gather."""
    rma_iov_limit: int = 0
    """Remote ranges that one RMA or atomic operation may touch."""
    tclass: TrafficClass = TrafficClass.UNSPEC
    """The network's treatment of the traffic; the domain's if unspecified."""


@dataclass(kw_only=True)
class RxAttr(Attributes):
    """How an endpoint or receive context receives (man page: fi_endpoint)."""

    _ctype = "struct fi_rx_attr"

    caps: Caps = Caps(0)
    """A subset of the endpoint's; none means those that apply."""
    mode: Mode = Mode(0)
    """What receiving asks of the application; none in hints means Hints.mode."""
    op_flags: OpFlags = OpFlags(0)
    """Options of every receive that brings none of its own."""
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
    """What an endpoint is (man page: fi_endpoint)."""

    _ctype = "struct fi_ep_attr"

    type: EndpointType = EndpointType.UNSPEC
    """Connected, datagram, reliable datagram."""
    protocol: Protocol = Protocol.UNSPEC
    """What goes over the wire; both ends have to have the same."""
    protocol_version: int = 0
    """And the same version of it."""
    max_msg_size: int = 0
    """Largest message or RMA transfer, bytes."""
    msg_prefix_size: int = 0
    """With Mode.MSG_PREFIX: bytes before each message that are the provider's."""
    max_order_raw_size: int = 0
    """Largest transfer whose data a later read is sure to see, bytes."""
    max_order_war_size: int = 0
    """Largest read that a later write is sure not to disturb, bytes."""
    max_order_waw_size: int = 0
    """Largest write that a later write is sure to overwrite, bytes."""
    mem_tag_format: int = 0
    """Fields of a tag: runs of ones and zeros alternate from field to field."""
    tx_ctx_cnt: int = 0
    """Transmit contexts of a scalable endpoint, or SHARED_CONTEXT."""
    rx_ctx_cnt: int = 0
    """Receive contexts of a scalable endpoint, or SHARED_CONTEXT."""
    auth_key: bytes = b""
    """Authorization key: only endpoints with the same one talk to each other."""


@dataclass(kw_only=True)
class DomainAttr(Attributes):
    """What a domain is (man page: fi_domain)."""

    _ctype = "struct fi_domain_attr"
    _wide = "struct aiofabric_domain_attr *"
    _appended: ClassVar = {
        "max_ep_auth_key": Version(1, 20),
        "max_group_id": Version(2, 0),
        "max_cntr_value": Version(2, 5),
        "max_err_cntr_value": Version(2, 5),
    }

    domain: Any = None
    """Hints: an open Domain to restrict the answer to. Found: the open one of that name, native, or None."""
    name: str = ""
    """The network interface or device: eth0, mlx5_0."""
    threading: Threading = Threading.UNSPEC
    """Which calls the application keeps apart itself."""
    control_progress: Progress = Progress.UNSPEC
    """Who moves connections, registrations and the like forward."""
    data_progress: Progress = Progress.UNSPEC
    """Who moves transfers forward."""
    resource_mgmt: ResourceManagement = ResourceManagement.UNSPEC
    """Who keeps queues from overflowing."""
    av_type: AvType = AvType.UNSPEC
    """How address vectors number their addresses."""
    mr_mode: MrMode = (
        MrMode.LOCAL | MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY | MrMode.ENDPOINT | MrMode.HMEM
    )
    """What registration needs; in hints, what the program can do: by default all that aiofabric obeys."""
    mr_key_size: int = 0
    """Length of a region's key, bytes."""
    cq_data_size: int = 0
    """Length of remote completion data, bytes; 0 found: not supported."""
    cq_cnt: int = 0
    """Completion queues that work well."""
    ep_cnt: int = 0
    """Endpoints that work well."""
    tx_ctx_cnt: int = 0
    """Transmit contexts that work well."""
    rx_ctx_cnt: int = 0
    """Receive contexts that work well."""
    max_ep_tx_ctx: int = 0
    """Transmit contexts of one scalable endpoint at most."""
    max_ep_rx_ctx: int = 0
    """Receive contexts of one scalable endpoint at most."""
    max_ep_stx_ctx: int = 0
    """Endpoints that may share a transmit context."""
    max_ep_srx_ctx: int = 0
    """Endpoints that may share a receive context."""
    cntr_cnt: int = 0
    """Counters that work well."""
    mr_iov_limit: int = 0
    """Buffers that one memory region may join."""
    caps: Caps = Caps(0)
    """Capabilities of the domain itself: LOCAL_COMM, REMOTE_COMM, SHARED_AV."""
    mode: Mode = Mode(0)
    """What the domain asks of the application."""
    auth_key: bytes = b""
    """Authorization key of endpoints and regions that bring none of their own."""
    max_err_data: int = 0
    """Length of error data, bytes."""
    mr_cnt: int = 0
    """Memory regions that work well."""
    tclass: TrafficClass = TrafficClass.UNSPEC
    """The network's treatment of traffic whose endpoint says nothing about it."""
    max_ep_auth_key: int = 0
    """1.20: authorization keys that one endpoint may use."""
    max_group_id: int = 0
    """2.0: highest number of a group of tags."""
    max_cntr_value: int = 0
    """2.5: a counter starts again from 0 after this."""
    max_err_cntr_value: int = 0
    """2.5: and its error count after this."""


@dataclass(kw_only=True)
class FabricAttr(Attributes):
    """Which fabric and provider (man page: fi_fabric)."""

    _ctype = "struct fi_fabric_attr"

    fabric: Any = None
    """Hints: an open Fabric to restrict the answer to. Found: the open one of that name, native, or None."""
    name: str = ""
    """The network: 192.168.1.0/24, EFA-fe80::."""
    prov_name: str = ""
    """The provider; layers are joined by ";" in any order: ``tcp``, ``tcp;ofi_rxm``."""
    prov_version: Version = Version(0, 0)
    """The provider's version; of layers, the upper one's."""
    api_version: Version = Version(0, 0)
    """The version of libfabric's interface that was asked for."""
