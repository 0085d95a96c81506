"""Assembly: one `bytes` from pieces, and nothing else."""

import pytest

from aiofabric._core import Assembly

pytestmark = pytest.mark.once


def test_pieces_become_one_bytes() -> None:
    assembly = Assembly(6)
    assert [assembly.add(piece) for piece in (b"ab", memoryview(b"cde"), bytearray(b"f"))] == [2, 5, 6]
    whole = assembly.take()
    assert whole == b"abcdef"
    assert hash(whole) == hash(b"abcdef")


def test_nothing_is_taken_before_all_is_there_or_twice() -> None:
    assembly = Assembly(2)
    assembly.add(b"a")
    with pytest.raises(ValueError, match="expected pieces of"):
        assembly.take()
    assembly.add(b"b")
    assembly.take()
    with pytest.raises(ValueError, match=r"take\(\) was called"):
        assembly.take()
    with pytest.raises(ValueError, match=r"take\(\) was called"):
        assembly.add(b"")


def test_pieces_longer_than_the_whole_are_refused() -> None:
    assembly = Assembly(2)
    with pytest.raises(ValueError, match="more bytes at most"):
        assembly.add(b"abc")
    assert assembly.add(b"ab") == 2


@pytest.mark.parametrize("size", [-1, 1 << 62, "x", None])
def test_a_size_that_cannot_be_is_refused(size: object) -> None:
    with pytest.raises((ValueError, MemoryError, OverflowError, TypeError)):
        Assembly(size)  # type: ignore[arg-type]


def test_a_second_init_is_refused() -> None:
    assembly = Assembly(1)
    with pytest.raises(ValueError, match="one size"):
        assembly.__init__(2)  # type: ignore[misc]


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError):
        Assembly(1).add("a")  # type: ignore[arg-type]


def test_an_assembly_whose_bytes_were_taken_is_not_initialised_again() -> None:
    assembly = Assembly(2)
    assembly.add(b"ab")
    assert assembly.take() == b"ab"
    with pytest.raises(ValueError, match="one size"):
        assembly.__init__(2)  # type: ignore[misc]
