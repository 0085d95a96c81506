"""Domain: a device as one event loop uses it; endpoints, queues and regions are opened on it (fi_domain)."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._ffi import ffi, lib
from .errors import check
from .fabric import Fabric
from .features import Quirk, quirks
from .info import check_info
from .memory import MemoryRegion
from .regions import MemoryOwner, RegionTable
from .resource import Resource
from .workarounds import is_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .flags import Access
    from .info import Info
    from .resource import Handle

__all__ = ["Domain", "receives_shared"]

_USE_SRX = "FI_OFI_RXM_USE_SRX"  # shared receive contexts
_environment = threading.Lock()
"""Held while the variable is ours: another thread would take it for the program's."""


@contextmanager
def receives_shared(info: Info) -> Iterator[None]:
    """Let the connections of an endpoint of rxm over verbs share receives, unless the program has decided about it.

    Otherwise rxm posts receives at each connection. When it closes one (rxm_conn.c, rxm_close_conn), it first frees it,
    and then handles the messages that have arrived. It posts the buffer of each again, at the freed connection, and
    crashes. Shared receives belong to the endpoint, as over tcp. rxm reads the variable whenever it opens a domain or
    an endpoint, and both must agree, so it is set while one of them opens.
    """
    if Quirk.CLOSE_POSTS_RECEIVES not in quirks(info) or not is_on("rxm_receives"):
        yield
        return
    with _environment:
        if _USE_SRX in os.environ:
            yield
            return
        os.environ[_USE_SRX] = "1"
        try:
            yield
        finally:
            os.environ.pop(_USE_SRX, None)


class DomainHandle(MemoryOwner):
    """Handle of an open domain, with the table of its registrations."""

    __slots__ = ("reads_outlive_regions", "refused_requests_block", "regions_wait_for_transfers")

    def __init__(self, fid: Any, fabric: Handle, info: Info) -> None:
        super().__init__("Domain", fid, fabric)
        known = quirks(info)
        self.reads_outlive_regions = Quirk.READS_OUTLIVE_REGIONS in known
        self.regions_wait_for_transfers = Quirk.TRANSFERS_NEED_REGIONS in known
        self.refused_requests_block = Quirk.REFUSED_REQUESTS_BLOCK in known
        self.regions = RegionTable(self, info)


class Domain(Resource):
    """An open access domain.

    Args:
        info: a result of `getinfo`.
        fabric: the fabric to open it on; by default a fabric of its own, which closes together with the domain.

    Raises:
        TypeError: ``info`` is not an Info, or ``fabric`` is not a Fabric.
        NotSupportedError: the info has a mode that aiofabric does not support.
        FabricError: the provider refused (fi_domain).
    """

    __slots__ = ("_owned_fabric", "fabric", "info")
    _handle: DomainHandle

    def __init__(self, info: Info, fabric: Fabric | None = None) -> None:
        check_info(info)
        if not isinstance(fabric, Fabric | None):
            raise TypeError(f"fabric must be an open Fabric or None, not {fabric!r}")
        self.fabric = Fabric(info) if fabric is None else fabric
        self._owned_fabric = fabric is None
        self.info = info
        self.fabric._handle.check_open()
        out = ffi.new("struct fid_domain **")
        try:
            with receives_shared(info):
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

        ``buffer`` is any contiguous buffer, or device memory with DLPack or CUDA's array interface if the domain was
        opened with `Caps.HMEM`.

        Nothing is exposed to a peer unless ``access`` names ``REMOTE_READ`` or ``REMOTE_WRITE``; the default is local
        use only. The region exports the buffer, so a `bytearray` cannot be resized meanwhile. The native region stays
        until the last operation that uses it has ended. Leaving the ``with`` block forbids new use at once.

        Args:
            buffer: must be writable if ``access`` allows writing into it.
            access: the permitted uses of the memory (fi_mr). Its owner may always send from it, and may use it in every
                way if it is writable.
            key: the remote key, if the application chooses it; by default an unpredictable one.
            endpoint: the endpoint by which peers reach it, if the provider needs it (FI_MR_ENDPOINT); by default the
                only one of the domain. Closing the endpoint first closes the region.

        Raises:
            TypeError: not a buffer; or the domain has several endpoints, and the provider needs one of them named.
            BufferError: not contiguous, or read-only although it would be written.
            ValueError: the buffer is empty.
            FabricError: the provider refused, for example a key that another region has (fi_mr_regattr).
            ClosedResourceError: the domain is closed.

        Man page: fi_mr (fi_mr_regattr, fi_mr_bind).
        """
        return MemoryRegion(self, buffer, access=access, key=key, endpoint=endpoint)

    def close(self) -> None:
        """Close the domain after all objects opened on it, and the fabric if it is the domain's own."""
        super().close()
        if self._owned_fabric:
            self.fabric.close()

    def __repr__(self) -> str:
        return f"<Domain {self.provider} {self.name}{' closed' if self.closed else ''}>"
