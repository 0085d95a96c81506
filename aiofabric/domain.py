"""Domain: the device, as one event loop uses it; endpoints, queues and regions are opened on it (fi_domain)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._ffi import ffi, lib
from .errors import check
from .fabric import Fabric
from .features import Quirk, quirks
from .info import check_info
from .memory import MemoryRegion
from .regions import MemoryHome, RegionTable
from .resource import Resource

if TYPE_CHECKING:
    from .flags import Access
    from .info import Info
    from .resource import Handle

__all__ = ["Domain"]


class DomainHandle(MemoryHome):
    """An open domain, with the table of what is registered with it."""

    __slots__ = ("reads_outlive_regions",)

    def __init__(self, fid: Any, fabric: Handle, info: Info) -> None:
        super().__init__("Domain", fid, fabric)
        self.reads_outlive_regions = Quirk.READS_OUTLIVE_REGIONS in quirks(info)
        self.regions = RegionTable(self, info)


class Domain(Resource):
    """An open access domain.

    Args:
        info: a result of `getinfo`.
        fabric: the fabric to open it on; by default one of its own, closed together with the domain.

    Raises:
        TypeError: no Info, or no Fabric.
        NotSupportedError: the info has a mode that aiofabric does not do.
        FabricError: the provider refused (fi_domain).
    """

    __slots__ = ("_owned_fabric", "fabric", "info")
    _handle: DomainHandle

    def __init__(self, info: Info, fabric: Fabric | None = None) -> None:
        check_info(info)
        if not isinstance(fabric, Fabric | None):
            raise TypeError(f"fabric is an open Fabric, or None, not {fabric!r}")
        self.fabric = Fabric(info) if fabric is None else fabric
        self._owned_fabric = fabric is None
        self.info = info
        self.fabric._handle.check_open()
        out = ffi.new("struct fid_domain **")
        try:
            check(lib.fi_domain(self.fabric._handle.fid, info.native, out, ffi.NULL), "fi_domain")
        except BaseException:
            if self._owned_fabric:
                self.fabric.close()
            raise
        self._handle = DomainHandle(out[0], self.fabric._handle, info)

    @property
    def name(self) -> str:
        """The domain's name; for tcp the network interface, such as ``lo``."""
        return self.info.domain_attr.name or ""

    @property
    def provider(self) -> str:
        """The provider's name, layers included."""
        return self.fabric.provider

    def register(
        self,
        buffer: Any,
        *,
        access: Access | None = None,
        key: int | None = None,
        endpoint: Resource | None = None,
    ) -> MemoryRegion:
        """Register ``buffer`` with the domain; a context manager.

        Any contiguous buffer, or memory of a device: whatever has DLPack or CUDA's array interface, where the
        domain was opened with `Caps.HMEM`.

        Nothing is exposed to a peer unless ``access`` names ``REMOTE_READ`` or ``REMOTE_WRITE``; the default is
        local use only. The region exports the buffer (a `bytearray` cannot be resized meanwhile) and outlives
        the operations that use it; leaving the ``with`` block forbids new use at once.

        Args:
            buffer: must be writable when ``access`` lets somebody write into it.
            access: what the memory may be used for (fi_mr). Its owner may send from it in any case, and use it in
                every way if it is writable.
            key: the remote key, where the application chooses it; by default an unpredictable one.
            endpoint: by which endpoint peers reach it, where the provider wants to know (FI_MR_ENDPOINT); by default
                the only one of the domain. Closing the endpoint closes the region first.

        Raises:
            TypeError: no buffer, or the domain has several endpoints and the provider wants one named.
            BufferError: not contiguous, or read-only where it would be written.
            ValueError: an empty buffer.
            FabricError: the provider refused, for example a key that another region has (fi_mr_regattr).
            ClosedResourceError: the domain is closed.

        Man page: fi_mr (fi_mr_regattr, fi_mr_bind).
        """
        return MemoryRegion(self, buffer, access=access, key=key, endpoint=endpoint)

    def close(self) -> None:
        """Close the domain after everything opened on it, and the fabric when it is the domain's own."""
        super().close()
        if self._owned_fabric:
            self.fabric.close()

    def __repr__(self) -> str:
        return f"<Domain {self.provider} {self.name}{' closed' if self.closed else ''}>"
