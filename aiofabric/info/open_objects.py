"""Open objects in hints and infos: a passive endpoint as handle, a domain, a fabric.

libfabric follows these pointers. So a structure of C has one only during a call of libfabric; outside a call, an info
refers to the `Handle`, which knows whether the object is still open.
"""

from __future__ import annotations

from typing import Any

from .._ffi import CData, ffi
from ..resource import Handle, live_handles

__all__ = ["native_of", "open_object"]


def open_object(name: str, value: Any) -> Handle | None:
    """Return the handle of an open object of aiofabric, which is given itself or as its ``native``; None for None.

    Raises:
        TypeError: neither of them.
        ValueError: a C pointer to no object that is open in aiofabric.
        ClosedResourceError: the object is closed.
    """
    if value is None:
        return None
    handle = value if isinstance(value, Handle) else getattr(value, "_handle", None)
    if not isinstance(handle, Handle):
        handle = _behind(name, value)
    handle.check_open()
    return handle


def _behind(name: str, pointer: Any) -> Handle:
    kind = ffi.typeof(pointer).cname if isinstance(pointer, ffi.CData) else ""
    if not (kind.startswith("struct fid") and kind.endswith(" *")):
        raise TypeError(f"{name} must be an open object of libfabric, or the C pointer to one, not {pointer!r}")
    place = ffi.cast("void *", pointer)
    for handle in live_handles():
        if handle.fid is not None and ffi.cast("void *", handle.fid) == place:
            return handle
    raise ValueError(f"{name}={pointer!r} points to no object that is open in aiofabric")


def native_of(handle: Handle | None) -> CData:
    """Return the ``struct fid *`` of an open object, for the next call of libfabric; NULL for None.

    Raises:
        ClosedResourceError: the object is closed.
    """
    if handle is None:
        return ffi.NULL
    handle.check_open()
    return ffi.cast("struct fid *", handle.fid)
