"""libfabric's values in libfabric's words (man page: fi_fabric, fi_tostr)."""

from __future__ import annotations

from typing import Any

from .. import flags
from .._ffi import CData, ffi, lib
from ..flags import TostrType
from .attributes import Attributes, DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr

_ROOM = 16384
"""fi_tostr itself has 8192 bytes, for any one structure."""

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


def tostr(value: Any, kind: TostrType | None = None) -> str:
    """Return libfabric's own text of an Info, an attribute object or a flag (fi_tostr_r).

    ``kind`` is needed for what does not tell by itself what it is: a plain number, or a native pointer
    (then of the structure that the kind names). Raises TypeError for what fi_tostr does not know.
    """
    kind = kind or _TYPES.get(type(value))
    keep: list[CData] = []
    if isinstance(value, Attributes) and kind is not None:
        return native_tostr(value.to_native(keep), kind)
    if isinstance(value, int) and kind is not None:
        # A 64-bit little-endian number serves where a 32-bit one is read.
        return native_tostr(ffi.new("uint64_t *", value), kind)
    native = getattr(value, "native", value)
    if isinstance(native, ffi.CData):
        return native_tostr(native, kind or TostrType.INFO)
    raise TypeError(f"fi_tostr does not know {type(value).__name__}")


def native_tostr(pointer: CData, kind: int) -> str:
    """Return libfabric's text of the C value at ``pointer``."""
    room = ffi.new("char[]", _ROOM)
    text: str = ffi.string(lib.fi_tostr_r(room, _ROOM, pointer, kind)).decode(errors="replace")
    return text
