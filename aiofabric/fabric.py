"""Fabric: the network that domains and passive endpoints are opened on (man page: fi_fabric)."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from ._ffi import ffi, lib
from .errors import check
from .features import Quirk, quirks
from .info import check_info, library_version
from .resource import Handle, Resource
from .workarounds import is_on

if TYPE_CHECKING:
    from .info import Info

__all__ = ["Fabric"]

_log = logging.getLogger(__name__)


class Fabric(Resource):
    """An open fabric of one provider.

    Args:
        info: a result of `getinfo`; its ``fabric_attr`` selects the fabric.

    Raises:
        TypeError: ``info`` is not an Info.
        FabricError: the provider refused (fi_fabric).
    """

    __slots__ = ("info",)

    def __init__(self, info: Info) -> None:
        check_info(info)
        out = ffi.new("struct fid_fabric **")
        check(lib.fi_fabric(info.native.fabric_attr, out, ffi.NULL), "fi_fabric")
        if Quirk.LOCKS_OUTLIVE_PROCESSES in quirks(info) and is_on("robust_locks"):
            code = lib.aiofabric_make_locks_robust(library_version() < (1, 18))
            if code:
                _log.info(
                    "libfabric's locks were not replaced (%s): a killed peer may hang this process", os.strerror(-code)
                )
        self.info = info
        self._handle = Handle("Fabric", out[0], None)

    @property
    def name(self) -> str:
        """The fabric's name; for tcp the network, such as ``127.0.0.1/32``."""
        return self.info.fabric_attr.name or ""

    @property
    def provider(self) -> str:
        """The provider's name, layers included (``tcp;ofi_rxm``)."""
        return self.info.fabric_attr.prov_name or ""

    def __repr__(self) -> str:
        return f"<Fabric {self.provider} {self.name}{' closed' if self.closed else ''}>"
