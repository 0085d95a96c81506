"""Versions of libfabric and of its headers."""

from __future__ import annotations

from typing import NamedTuple

from .._ffi import constants, lib
from .._ffi.load import loaded_path


class Version(NamedTuple):
    """A libfabric version; ``str()`` gives ``1.17``."""

    major: int
    minor: int

    @classmethod
    def from_native(cls, packed: int) -> Version:
        """Unpack FI_VERSION's 32 bits."""
        return cls(packed >> 16, packed & 0xFFFF)

    @property
    def native(self) -> int:
        """FI_VERSION(major, minor)."""
        return self.major << 16 | self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


# 1.18 changed no structure of 1.17, and EFA uses device RDMA and the CUDA library only for programs of 1.18. fi_mr_attr
# grew with 1.19, fi_domain_attr and fi_cq_err_entry with 1.20.
_PLAIN_LAYOUT, _SAME_LAYOUT = Version(1, 17), Version(1, 18)


def headers_version() -> Version:
    """Return the version of the headers that the extension was built with; needs no libfabric."""
    return Version(constants.FI_MAJOR_VERSION, constants.FI_MINOR_VERSION)


def library_version() -> Version:
    """Return the version of the running libfabric (fi_version), loading it if necessary."""
    return Version.from_native(lib.fi_version())


def api_version() -> Version:
    """Return the interface version that aiofabric requests: the headers' version, or the library's if that is older.

    Structures have the layout of this version. An object that was opened with a later one would read and write fields
    behind the structures of this build: fi_mr_attr is longer from 1.19 on, fi_domain_attr and fi_cq_err_entry from 1.20
    on. So the version is above the headers' in one case only: headers of 1.17 and a later library give 1.18, which has
    the same structures. A library answers requests above its own version with FI_ENOSYS.
    """
    headers = headers_version()
    return min(_SAME_LAYOUT if headers == _PLAIN_LAYOUT else headers, library_version())


def library_path() -> str:
    """Return the path that libfabric was loaded from, loading it if necessary."""
    library_version()
    return loaded_path() or ""
