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


def headers_version() -> Version:
    """Return the version of the headers that the extension was built with; needs no libfabric."""
    return Version(constants.FI_MAJOR_VERSION, constants.FI_MINOR_VERSION)


def library_version() -> Version:
    """Return the version of the running libfabric (fi_version), loading it if necessary."""
    return Version.from_native(lib.fi_version())


def api_version() -> Version:
    """Return the interface version that aiofabric requests: the headers' version, or the library's if that is older.

    Structures have the layout of this version, so it is never above the headers' version. A library answers requests
    above its own version with FI_ENOSYS.
    """
    return min(headers_version(), library_version())


def library_path() -> str:
    """Return the path that libfabric was loaded from, loading it if necessary."""
    library_version()
    return loaded_path() or ""
