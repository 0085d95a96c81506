"""Texts of libfabric for its values (man page: fi_fabric, fi_tostr)."""

from __future__ import annotations

from typing import Any

from .. import flags
from .._ffi import CData, ffi, lib
from ..flags import TostrType
from .attributes import Attributes, DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr

_ROOM = 16384
"""fi_tostr itself uses 8192 bytes, for any one structure."""

_TYPES: dict[type, TostrType] = {
    TxAttr: TostrType.TX_ATTR,
    RxAttr: TostrType.RX_ATTR,
    EpAttr: TostrType.EP_ATTR,
    DomainAttr: TostrType.DOMAIN_ATTR,
    FabricAttr: TostrType.FABRIC_ATTR,
    flags.Caps: TostrType.CAPS,
    flags.Mode: TostrType.MODE,
    flags.MrMode: TostrType.MR_MODE,
    flags.Order: TostrType.MSG_ORDER,
    flags.OpFlags: TostrType.OP_FLAGS,
    flags.CompletionFlags: TostrType.CQ_EVENT_FLAGS,
    flags.EndpointType: TostrType.EP_TYPE,
    flags.AddressFormat: TostrType.ADDR_FORMAT,
    flags.Protocol: TostrType.PROTOCOL,
    flags.Threading: TostrType.THREADING,
    flags.Progress: TostrType.PROGRESS,
    flags.AvType: TostrType.AV_TYPE,
    flags.Datatype: TostrType.ATOMIC_TYPE,
    flags.AtomicOp: TostrType.ATOMIC_OP,
    flags.CollectiveOp: TostrType.COLLECTIVE_OP,
    flags.DeferredOp: TostrType.OP_TYPE,
    flags.EqEvent: TostrType.EQ_EVENT,
    flags.CqFormat: TostrType.CQ_FORMAT,
    flags.HmemIface: TostrType.HMEM_IFACE,
}


# In addition to `_TYPES`: kinds whose value is also a number, but for which this package has no class.
_NUMBERS = frozenset(
    (
        *(kind for cls, kind in _TYPES.items() if issubclass(cls, int)),
        TostrType.VERSION,
        TostrType.LOG_LEVEL,
        TostrType.LOG_SUBSYS,
    )
)

# Some kinds are newer than the headers of this build.
_STRUCTURES = {
    "struct fi_info *": TostrType.INFO,
    **{f"struct fi_{kind.name.lower()} *": kind for kind in TostrType if kind.name.endswith(("_ATTR", "_ENTRY"))},
}


def tostr(value: Any, kind: TostrType | None = None) -> str:
    """Return libfabric's own text of an Info, an attribute object, a flag or an open object (fi_tostr_r).

    ``kind`` is needed only for a plain number. If the type of ``value`` implies a kind, ``kind`` must agree. ``value``
    may also be a C pointer to a structure that libfabric prints.

    Raises:
        TypeError: fi_tostr does not support the value, or ``kind`` does not fit it.
        ValueError: a NULL pointer.
        ClosedResourceError: the object is closed.
    """
    own = _kind_of(value)
    if own is None and isinstance(value, int) and kind in _NUMBERS:
        own = kind
    if own is None:
        raise TypeError(f"fi_tostr does not support {type(value).__name__}{_as(kind)}")
    if kind is not None and kind != own and not (isinstance(value, int) and kind in _NUMBERS):
        raise TypeError(f"{type(value).__name__} is a {own}: fi_tostr would read it{_as(kind)} and crash")
    kind = own if kind is None else kind
    if isinstance(value, int):
        # A 64-bit little-endian number can also be read as a 32-bit one.
        return native_tostr(ffi.new("uint64_t *", value), kind)
    keep: list[CData] = []
    if isinstance(value, Attributes):
        return native_tostr(value.to_native(keep), kind)
    native = getattr(value, "native", value)
    if not native:
        raise ValueError(f"a NULL pointer has no text ({kind})")
    return native_tostr(native, kind)


def _kind_of(value: Any) -> TostrType | None:
    """The kind that the type of ``value`` implies; None if fi_tostr does not support the type."""
    native = value if isinstance(value, Attributes | int) else getattr(value, "native", value)
    if not isinstance(native, ffi.CData):
        return _TYPES.get(type(value))
    name = ffi.typeof(native).cname
    # Every open object begins with a struct fid.
    return TostrType.FID if name.startswith("struct fid") and name.endswith(" *") else _STRUCTURES.get(name)


def _as(kind: TostrType | None) -> str:
    return "" if kind is None else f" as {kind}"


def native_tostr(pointer: CData, kind: int) -> str:
    """Return libfabric's text of the C value at ``pointer``."""
    room = ffi.new("char[]", _ROOM)
    text: str = ffi.string(lib.fi_tostr_r(room, _ROOM, pointer, kind)).decode(errors="replace")
    return text
