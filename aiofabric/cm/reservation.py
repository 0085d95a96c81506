"""Reservation: a local address that is reserved before its use is decided (man page: fi_endpoint, fi_passive_ep)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._ffi import ffi, lib
from ..arguments import check_type
from ..errors import FabricError, check
from ..info import Info
from ..resource import Handle, Resource, check_resource
from .handshake import name_of
from .workarounds.provider_sockets import OwnSocket, listening_sockets, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..address import Address
    from ..fabric import Fabric

__all__ = ["Reservation"]


class _ReservationHandle(Handle):
    __slots__ = ("on_release",)

    def __init__(self, pep: Any, fabric: Fabric) -> None:
        super().__init__("Reservation", pep, fabric._handle)
        self.on_release: Callable[[], None] | None = None

    def release(self) -> None:
        if self.fid is not None:
            super().release()
        if self.on_release is not None:
            self.on_release()


class Reservation(Resource):
    """A reserved address that one connection or one listener may use; entered from `aiofabric.reserve`.

    Pass it to `connect` or `listen` (``reservation=``), once; that ends it. Closing it frees the address. The kernel
    gives the port to no program that asks for any port. But tcp's sockets allow address reuse, so a program that asks
    for this exact port may get it before it is listened at.
    """

    __slots__ = ("fabric", "info", "sockets")
    _handle: _ReservationHandle

    def __init__(self, info: Info, fabric: Fabric) -> None:
        check_type("info", info, Info)
        check_resource("fabric", fabric, "Fabric")
        fabric._handle.check_open()
        before = open_descriptors()
        out = ffi.new("struct fid_pep **")
        check(lib.fi_passive_ep(fabric._handle.fid, info.native, out, ffi.NULL), "fi_passive_ep", local=info.src_addr)
        self.info = info
        self.fabric = fabric
        self._handle = _ReservationHandle(out[0], fabric)
        self.sockets: list[OwnSocket] = []  # the kernel's sockets, if the provider has some
        with suppress(FabricError):  # the sockets provider has no name before it listens
            self.sockets = listening_sockets(before, self.address)

    @property
    def address(self) -> Address:
        """The address that is reserved (fi_getname)."""
        self._handle.check_open()
        return name_of(self._handle.fid, self.info, lib.fi_getname)

    @property
    def native(self) -> Any:
        """The ``struct fid *`` of the passive endpoint."""
        self._handle.check_open()
        return ffi.cast("struct fid *", self._handle.fid)

    def detach(self) -> Any:
        """The passive endpoint, owned by the caller from now on; the reservation ends."""
        self._handle.check_open()
        fid, self._handle.fid = self._handle.fid, None
        self.close()
        return fid

    def __repr__(self) -> str:
        return f"<Reservation {'closed' if self.closed else self.address}>"
