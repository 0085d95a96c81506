"""LibraryObject: an object that libfabric itself, not a provider, opens by name (man page: fi_open)."""

from __future__ import annotations

from ._ffi import ffi, lib
from .arguments import check_number, check_type
from .errors import NotSupportedError, check
from .features import describe
from .info import api_version
from .resource import Handle, Resource

__all__ = ["LibraryObject"]


class LibraryObject(Resource):
    """An object of the library, such as ``"mr_cache"``, or ``"logging"``, which redirects log messages.

    ``native`` is its C pointer, for calls that this package does not wrap (man pages: fi_mr, fi_provider).

    Args:
        name: the name of the object.
        flags: the object's own.

    Raises:
        NotSupportedError: this libfabric has no object of that name.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, flags: int = 0) -> None:
        check_type("name", name, str)
        check_number("flags", flags, 64)
        out = ffi.new("struct fid **")
        rc = lib.fi_open(api_version().native, name.encode(), ffi.NULL, 0, flags, out, ffi.NULL)
        try:
            check(rc, "fi_open")
        except NotSupportedError as error:
            error.detail = f"The library has no object called {name!r}"
            error.cure = f"This is {describe()}"
            raise
        self.name = name
        self._handle = Handle("LibraryObject", out[0], None)

    def __repr__(self) -> str:
        return f"<LibraryObject {self.name}{' closed' if self.closed else ''}>"
