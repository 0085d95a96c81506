"""Promise: messages are read from a stream with the boundaries with which they were written, however the stream was
divided.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiofabric._core import cut_messages

pytestmark = pytest.mark.once


def join_messages(messages: list[bytes]) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in messages)


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(0, 6000))
def test_whole_messages_are_cut_and_the_rest_is_left(messages: list[bytes], end: int) -> None:
    joined = join_messages(messages)
    chunk = b"?" + joined[:end]
    whole, start = cut_messages(chunk, 1)
    assert whole == messages[: len(whole)]
    assert join_messages(whole) == chunk[1:start]
    rest = joined[start - 1 :]
    if end >= len(joined):
        assert (whole, rest) == (messages, b"")
    else:
        assert len(chunk) - start < 4 + int.from_bytes(rest[:4], "little")  # it has not arrived whole


def test_a_length_is_four_bytes_little_endian() -> None:
    assert join_messages([b"", b"a" * 258]) == b"\0\0\0\0" + b"\2\1\0\0" + b"a" * 258
    assert cut_messages(b"\xff\xff\xff\xffabc", 0) == ([], 0)
    assert cut_messages(b"abc", 3) == ([], 3)


@pytest.mark.parametrize("start", [-1, 4])
def test_nothing_is_cut_outside(start: int) -> None:
    with pytest.raises(ValueError, match="expected a start from 0 to 3, got"):
        cut_messages(b"abc", start)
