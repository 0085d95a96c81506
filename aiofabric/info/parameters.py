"""The environment variables that libfabric and its providers read (fi_getparams)."""

from __future__ import annotations

from typing import NamedTuple

from .._ffi import CData, ffi, lib
from ..errors import check
from ..flags import ParameterType


class Parameter(NamedTuple):
    """One environment variable, which libfabric reads at its first use."""

    name: str
    """Its name, such as FI_TCP_IFACE."""
    type: ParameterType
    """The type that it is read as."""
    help: str
    """Its effect, as libfabric describes it."""
    value: str | None
    """Its value; None if it is not set."""


def parameters() -> list[Parameter]:
    """Return all variables that the library and its loaded providers know (``fi_info -e``).

    Providers register their variables when they are loaded: call `getinfo` before.
    """
    array, count = ffi.new("struct fi_param **"), ffi.new("int *")
    check(lib.fi_getparams(array, count), "fi_getparams")
    try:
        return [_copy(array[0][index]) for index in range(count[0])]
    finally:
        lib.fi_freeparams(array[0])


def _copy(native: CData) -> Parameter:
    def text(pointer: CData) -> str | None:
        return ffi.string(pointer).decode(errors="replace") if pointer else None

    return Parameter(
        text(native.name) or "", ParameterType(native.type), text(native.help_string) or "", text(native.value)
    )
