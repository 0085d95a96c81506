"""Operands of atomic and collective operations: typed elements in any buffer, or one Python number.

The format of a buffer names its element type (`array.array`, numpy arrays and scalars, cast memoryviews, ctypes). A
Python number, and a buffer without such a format (`bytearray`, a type of ml_dtypes), needs an explicit datatype.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._ffi import ffi
from ...flags import Datatype
from ...memory import pin

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Operand", "Result", "element_size", "operand", "result_like"]

# Size in bytes, and the struct format of one element where struct knows it.
_ELEMENTS: dict[str, tuple[int, str]] = {
    "INT8": (1, "=b"),
    "UINT8": (1, "=B"),
    "INT16": (2, "=h"),
    "UINT16": (2, "=H"),
    "INT32": (4, "=i"),
    "UINT32": (4, "=I"),
    "INT64": (8, "=q"),
    "UINT64": (8, "=Q"),
    "FLOAT": (4, "=f"),
    "DOUBLE": (8, "=d"),
    "FLOAT_COMPLEX": (8, "=ff"),
    "DOUBLE_COMPLEX": (16, "=dd"),
    "LONG_DOUBLE": (16, ""),
    "LONG_DOUBLE_COMPLEX": (32, ""),
    "INT128": (16, ""),
    "UINT128": (16, ""),
    "FLOAT16": (2, "=e"),
    "BFLOAT16": (2, ""),
    "FLOAT8_E4M3": (1, ""),
    "FLOAT8_E5M2": (1, ""),
    "VOID": (1, ""),
}

# The type codes of the buffer protocol; for integers the item size decides.
_SIGNED, _UNSIGNED = "bhilqn", "BHILQN?c"
_OTHERS = {
    "e": "FLOAT16",
    "f": "FLOAT",
    "d": "DOUBLE",
    "g": "LONG_DOUBLE",
    "Zf": "FLOAT_COMPLEX",
    "Zd": "DOUBLE_COMPLEX",
    "Zg": "LONG_DOUBLE_COMPLEX",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """``count`` elements of ``datatype`` in ``pins``; ``value`` is the caller's object."""

    datatype: Datatype
    count: int
    pins: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Result:
    """The memory for a result, and the function that makes the caller's object from it."""

    pins: Any
    finish: Callable[[], Any]


def element_size(datatype: Datatype) -> int:
    """Bytes of one element."""
    return _ELEMENTS[datatype.name][0]


def operand(value: Any, datatype: Datatype | None) -> Operand:
    """The elements in ``value``.

    Raises:
        TypeError: the type of the elements is unknown, or their byte order is not this machine's.
        ValueError: the size of the buffer is not a multiple of the element size, or is 0.
        OverflowError: the number does not fit the type.
    """
    if isinstance(value, int | float | complex) and not _is_buffer(value):
        if datatype is None:
            raise TypeError(f"name the datatype of {value!r} with datatype=Datatype...: a Python number has none")
        return Operand(datatype, 1, pin(_pack(value, datatype)), value)
    pins = pin(value)
    kind = datatype if datatype is not None else _datatype_of(value)
    count, rest = divmod(len(pins), element_size(kind))
    if rest or not count:
        raise ValueError(f"{len(pins)} bytes are not a multiple of a {kind} element, {element_size(kind)} bytes")
    return Operand(kind, count, pins, value)


def result_like(given: Operand, into: Any = None, *, times: int | None = None) -> Result:
    """Memory for as many elements as ``given`` has, of the same type; ``times`` makes it that many results long.

    ``into`` is the caller's own buffer for it.
    """
    size = given.count * element_size(given.datatype) * (1 if times is None else times)
    if into is not None:
        pins = pin(into, writable=True)
        if len(pins) != size:
            raise ValueError(f"the result has {size} bytes, but the buffer for it has {len(pins)}")
        return Result(pins, lambda: into)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(given.value, numpy.ndarray | numpy.generic):
        sides = () if times is None else (times,)
        room = numpy.empty((*sides, *given.value.shape), given.value.dtype)
        return Result(pin(room, writable=True), lambda: room if room.shape else room[()])
    memory = bytearray(size)
    if _is_buffer(given.value):
        return Result(pin(memory, writable=True), lambda: _cast(memory, given.value))
    return Result(pin(memory, writable=True), lambda: _numbers(memory, given.datatype, times))


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def _datatype_of(value: Any) -> Datatype:
    with memoryview(value) as view:
        letter, size = view.format.lstrip("@="), view.itemsize
    if letter[:1] in "<>!" and letter[1:]:
        if (letter[0] == "<") != (sys.byteorder == "little"):
            raise TypeError(f"{_name_of(value)} is not in this machine's byte order; numpy: array.astype('=...')")
        letter = letter[1:]
    if letter in _SIGNED + _UNSIGNED:
        return Datatype[f"{'U' * (letter in _UNSIGNED)}INT{8 * size}"]
    if (name := _OTHERS.get(letter, "")) in Datatype.__members__:
        return Datatype[name]
    raise TypeError(f"{_name_of(value)} has elements of format {letter!r}: name their datatype with datatype=...")


def _name_of(value: Any) -> str:
    """The name of a buffer's type, for error texts."""
    return f"this {type(value).__name__}"


def _pack(value: complex, datatype: Datatype) -> bytes:
    size, form = _ELEMENTS[datatype.name]
    if datatype in (Datatype.INT128, Datatype.UINT128) and isinstance(value, int):
        return value.to_bytes(size, sys.byteorder, signed=datatype is Datatype.INT128)
    if datatype is Datatype.LONG_DOUBLE and not isinstance(value, complex):
        return bytes(ffi.buffer(ffi.new("long double *", value)))
    if not form:
        raise TypeError(f"a Python number cannot be converted to {datatype}: pass a buffer that holds the element")
    parts = (value.real, value.imag) if len(form) == 3 else (value,)
    try:
        return struct.pack(form, *parts)
    except struct.error as error:
        kind = OverflowError if isinstance(value, int) else TypeError
        raise kind(f"{value!r} is not a valid {datatype}: {error}") from None


def _unpack(memory: bytearray, datatype: Datatype) -> Any:
    form = _ELEMENTS[datatype.name][1]
    if datatype in (Datatype.INT128, Datatype.UINT128):
        return int.from_bytes(memory, sys.byteorder, signed=datatype is Datatype.INT128)
    if datatype is Datatype.LONG_DOUBLE:
        return float(ffi.cast("long double *", ffi.from_buffer(memory))[0])
    parts = struct.unpack(form, memory)
    return complex(*parts) if len(parts) == 2 else parts[0]


def _numbers(memory: bytearray, datatype: Datatype, times: int | None) -> Any:
    if times is None:
        return _unpack(memory, datatype)
    size = element_size(datatype)
    return [_unpack(memory[at : at + size], datatype) for at in range(0, len(memory), size)]


def _cast(memory: bytearray, like: Any) -> memoryview:
    with memoryview(like) as view:
        letter = view.format.lstrip("@=")
    return memoryview(memory).cast(letter) if letter in "bBhHiIlLqQnNfd?c" else memoryview(memory)  # type: ignore[call-overload]
