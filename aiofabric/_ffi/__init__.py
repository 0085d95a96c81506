"""libfabric for Python: types, calls and constants, without logic except for one replaced lock (``robust_locks.c``).

``constants`` is available at once. ``ffi`` and ``lib`` load libfabric at the first use of one of their attributes, and
then keep the attribute: ``lib.fi_send`` is a plain instance attribute from its second use on.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from . import load as _load

try:
    from ._constants import lib as constants
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._constants":
        raise
    raise ImportError(_load.not_built(__file__)) from None

if TYPE_CHECKING:
    from ._libfabric import Lib

__all__ = ["CData", "address_of", "clear_errno", "constants", "ffi", "is_loaded", "last_errno", "lib"]

CData: TypeAlias = Any
"""A cffi object: a C pointer, structure or array."""

_EXTENSION = "aiofabric._ffi._libfabric"


class _Lazy:
    """One of the extension's two objects, loaded on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # Modules such as inspect and pickle look up special names, which must not load a library.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        value = getattr(getattr(_extension(), self._name), attribute)
        setattr(self, attribute, value)
        return value


def _extension() -> Any:
    if (module := sys.modules.get(_EXTENSION)) is not None:
        return module
    _load.load()
    try:
        return importlib.import_module(_EXTENSION)
    except ImportError as error:
        version = f"{constants.FI_MAJOR_VERSION}.{constants.FI_MINOR_VERSION}"
        raise _load.LibfabricNotFound(
            f"{_load.loaded_path()} does not fit this build of aiofabric, made with the headers of libfabric "
            f"{version}: {error}. Build aiofabric on the oldest libfabric that it has to run with, or set "
            f"{_load.VARIABLE} to a newer library."
        ) from error


def clear_errno() -> None:
    """Set C's errno to 0 for the next call."""
    _extension().ffi.errno = 0  # an assignment to `ffi.errno` would only set an attribute of the lazy object


def last_errno() -> int:
    """C's errno after the last call."""
    number: int = _extension().ffi.errno  # the lazy object would keep the first value
    return number


def is_loaded() -> bool:
    """Return whether libfabric is already loaded in this process; never loads it."""
    return _EXTENSION in sys.modules


ffi: Any = _Lazy("ffi")
lib = cast("Lib", _Lazy("lib"))


def address_of(pointer: CData) -> int:
    """The address in ``pointer``, as a number for `aiofabric._core` or for comparing."""
    return int(ffi.cast("uintptr_t", pointer))
