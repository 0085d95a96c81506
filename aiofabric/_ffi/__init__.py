"""libfabric for Python: types, calls and constants, and no logic but for one mended lock (``robust_locks.c``).

``constants`` is there at once. ``ffi`` and ``lib`` load libfabric when one of their attributes is first
asked for, and then keep it: ``lib.fi_send`` is a plain instance attribute from its second use on.
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

__all__ = ["CData", "address_of", "clear_errno", "constants", "ffi", "is_loaded", "lib"]

CData: TypeAlias = Any
"""A cffi object: a pointer, structure or array of C."""

_EXTENSION = "aiofabric._ffi._libfabric"


class _Lazy:
    """One of the extension's two objects, loaded on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # inspect, pickle and the like ask for special names: no reason to load a library.
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
    """What the next call finds in C's errno is 0."""
    _extension().ffi.errno = 0  # on `ffi` it would be an attribute as any other


def is_loaded() -> bool:
    """Tell whether libfabric is in this process already; never loads it."""
    return _EXTENSION in sys.modules


ffi: Any = _Lazy("ffi")
lib = cast("Lib", _Lazy("lib"))


def address_of(pointer: CData) -> int:
    """Where ``pointer`` points: a number for `aiofabric._core`, or for comparing."""
    return int(ffi.cast("uintptr_t", pointer))
