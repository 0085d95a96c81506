"""Operands of atomics: Python numbers and buffers become elements, and results become the same kind of object."""

import array
import ctypes
import struct
import sys
from typing import Any

import pytest

from aiofabric import Datatype
from aiofabric._ffi import ffi
from aiofabric.transport.rma.operands import element_size, operand, result_like

INTEGERS = [each for each in Datatype if each.name.lstrip("U").startswith("INT")]
FLOATS = {"FLOAT16": 1.5, "FLOAT": -1.5, "DOUBLE": 1e300, "LONG_DOUBLE": 1e300}
COMPLEX = {"FLOAT_COMPLEX": 1.5 - 2j, "DOUBLE_COMPLEX": 1e300 - 2j}
NO_NUMBERS = [
    each for each in Datatype if each.name.startswith(("BFLOAT", "FLOAT8")) or each.name == "LONG_DOUBLE_COMPLEX"
]


def round_trip(value: Any, datatype: Datatype | None) -> Any:
    """The elements of ``value`` are copied into the memory for a result."""
    given = operand(value, datatype)
    result = result_like(given)
    assert len(given.pins) == len(result.pins) == given.count * element_size(given.datatype)
    result.pins[0 : len(result.pins)] = given.pins[0 : len(given.pins)]
    return result.finish()


@pytest.mark.parametrize("datatype", INTEGERS, ids=str)
def test_integers_of_each_width_keep_their_value(datatype: Datatype) -> None:
    bits = 8 * element_size(datatype)
    least, most = (0, (1 << bits) - 1) if datatype.name.startswith("U") else (-1 << bits - 1, (1 << bits - 1) - 1)
    for value in (least, 0, 1, most):
        assert round_trip(value, datatype) == value
        assert bytes(ffi.buffer(operand(value, datatype).pins)) == value.to_bytes(
            bits // 8, sys.byteorder, signed=least < 0
        )
    for value in (least - 1, most + 1):
        with pytest.raises(OverflowError):
            operand(value, datatype)


@pytest.mark.parametrize("name", [name for name in FLOATS if name in Datatype.__members__])
def test_an_integer_becomes_a_float_if_the_datatype_is_one(name: str) -> None:
    for value in (FLOATS[name], 3, -3):
        got = round_trip(value, Datatype[name])
        assert (got, type(got)) == (value, float)


@pytest.mark.parametrize("name", COMPLEX)
def test_a_real_number_becomes_complex_if_the_datatype_is(name: str) -> None:
    for value in (COMPLEX[name], 3, -1.5):
        got = round_trip(value, Datatype[name])
        assert (got, type(got)) == (value, complex)


def test_a_number_that_does_not_fit_its_datatype_is_refused() -> None:
    for value, datatype, error in (
        (1.5, Datatype.INT32, TypeError),
        (1j, Datatype.DOUBLE, TypeError),
        (1j, Datatype.LONG_DOUBLE, TypeError),
        (1 << 2000, Datatype.DOUBLE, OverflowError),
        (5, None, TypeError),
    ):
        with pytest.raises(error):
            operand(value, datatype)


@pytest.mark.parametrize("datatype", NO_NUMBERS, ids=str)
def test_types_that_python_lacks_need_a_buffer(datatype: Datatype) -> None:
    with pytest.raises(TypeError, match="pass a buffer that holds the element"):
        operand(1.0, datatype)
    element = bytes(range(element_size(datatype)))
    assert bytes(round_trip(element, datatype)) == element


@pytest.mark.parametrize("letter", "bBhHiIlLqQfd")
def test_a_buffers_format_names_the_datatype(letter: str) -> None:
    data = array.array(letter, [1, 2, 3])
    given = operand(data, None)
    real = letter in "fd"
    kind = {"f": "FLOAT", "d": "DOUBLE"}[letter] if real else f"{'U' * letter.isupper()}INT{8 * data.itemsize}"
    assert (given.datatype, given.count) == (Datatype[kind], 3)
    got = round_trip(data, None)
    assert (got.tolist(), got.format) == ([1, 2, 3], letter)


def test_the_other_byte_order_is_refused() -> None:
    native = ctypes.c_int32
    foreign = native.__ctype_be__ if sys.byteorder == "little" else native.__ctype_le__
    assert operand((native * 2)(1, 2), None).datatype == Datatype.INT32
    with pytest.raises(TypeError, match="is not in this machine's byte order"):
        operand((foreign * 2)(1, 2), None)


def test_elements_without_a_datatype_are_refused() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("one", ctypes.c_int), ("other", ctypes.c_int))

    with pytest.raises(TypeError, match="name their datatype with datatype="):
        operand((Pair * 2)(), None)
    for size in (0, 7):
        with pytest.raises(ValueError, match=f"{size} bytes are not a multiple of a FI_INT64 element, 8 bytes"):
            operand(bytes(size), Datatype.INT64)


def test_the_result_of_a_gather_has_all_shares() -> None:
    result = result_like(operand(5, Datatype.INT16), times=3)
    result.pins[0:6] = struct.pack("=3h", 1, -2, 3)
    assert result.finish() == [1, -2, 3]
    into = bytearray(6)
    result = result_like(operand(5, Datatype.INT16), into, times=3)
    assert result.finish() is into
    with pytest.raises(ValueError, match="the result has 6 bytes, but the buffer for it has 2"):
        result_like(operand(5, Datatype.INT16), bytearray(2), times=3)
