"""Promise: messages are read from a stream with the boundaries with which they were written, however the stream was
divided.
"""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiofabric._core import GuardCore, MessageReader, StreamPath
from aiofabric.channel.frames import CLOSE, END, PLAIN, Hello, header
from tests.channel.scripted import Channel

pytestmark = pytest.mark.once

WIDE = Hello(recv_size=(1 << 20) + 4, window=16 << 20)
MIB = 1 << 20


def joined(messages: list[bytes]) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in messages)


def take_all(reader: MessageReader) -> list[bytes]:
    messages: list[bytes] = []
    while (message := reader.take()) is not None:
        messages.append(message)
    return messages


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(0, 6000), max_size=10), st.booleans())
def test_messages_arrive_whole_however_their_bytes_were_divided(
    messages: list[bytes], cuts: list[int], reads_each_time: bool
) -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, 300)
    data, got = joined(messages), list[bytes]()
    at = 0
    for cut in [*sorted(min(each, len(data)) for each in cuts), len(data)]:
        if cut > at:
            peer.comes(PLAIN + data[at:cut])
            at = cut
        if reads_each_time:
            got += take_all(reader)
            assert joined(got) == data[: len(joined(got))]
            assert reader.within_message == (len(joined(got)) < at)
    got += take_all(reader)
    assert got == messages
    assert not reader.within_message


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_a_large_message_gets_its_room_as_it_arrives(size: int) -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, size)
    data = bytes(range(256)) * (size // 256 + 1)
    message = data[:size]
    stream = joined([message, b"next"])
    for start in range(0, len(stream) - 4, 700_000):
        assert reader.take() is None
        peer.comes(PLAIN + stream[start : min(start + 700_000, len(stream) - 4)])
    assert reader.take() == message
    assert reader.take() is None
    assert reader.within_message
    peer.comes(PLAIN + b"next")
    assert reader.take() == b"next"


def test_a_message_that_is_only_announced_uses_little_memory() -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, 64 * MIB)
    peer.comes(PLAIN + (64 * MIB).to_bytes(4, "little") + b"a")
    tracemalloc.start()
    try:
        assert reader.take() is None
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()
    assert reader.within_message


@pytest.mark.parametrize("first", [2, 4, 5])
def test_a_message_that_is_too_long_is_refused_at_its_length(first: int) -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, 258)
    stream = joined([b"a" * 258]) + b"\3\1\0\0" + b"a" * 259
    peer.comes(PLAIN + stream[: 262 + first])
    assert reader.take() == b"a" * 258
    if first < 4:
        assert reader.take() is None
        peer.comes(PLAIN + stream[262 + first :])
    for _ in range(2):
        with pytest.raises(OverflowError, match="a message of 259 bytes"):
            reader.take()


@pytest.mark.parametrize("part", [b"", b"\1", b"\1\0\0\0", b"\2\0\0\0a"])
@pytest.mark.parametrize("end", [END, CLOSE])
def test_the_end_comes_after_the_messages(part: bytes, end: int) -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, 300)
    peer.comes(PLAIN + joined([b"last"]) + part)
    peer.comes(header(end, 0))
    assert reader.take() == b"last"
    for _ in range(2):
        with pytest.raises(EOFError):
            reader.take()
        assert reader.within_message == bool(part)


def test_the_errors_of_the_channel_come_after_the_messages() -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, 300)
    peer.comes(PLAIN + joined([b"", b"last"]) + b"\1")
    peer.breaks()
    assert take_two(reader) == [b"", b"last"]
    for _ in range(2):
        with pytest.raises(ConnectionResetError, match="broken"):
            reader.take()
    peer.channel.abort(ConnectionAbortedError("ended here"))
    with pytest.raises(ConnectionAbortedError, match="ended here"):
        reader.take()


def take_two(reader: MessageReader) -> list[bytes | None]:
    return [reader.take(), reader.take()]


def test_what_arrived_of_a_message_can_be_dropped() -> None:
    peer = Channel(WIDE, WIDE)
    reader = MessageReader(peer.channel, 300)
    peer.comes(PLAIN + b"\4\0\0\0ab")
    assert reader.take() is None
    reader.drop()
    assert not reader.within_message


def test_a_reader_of_another_channel_is_refused() -> None:
    for reader in (MessageReader(Channel().channel, 1), MessageReader.__new__(MessageReader)):
        with pytest.raises(ValueError, match="of the same channel"):
            StreamPath(Channel().channel, GuardCore(), GuardCore(), reader, 1)


def test_a_reader_that_was_not_initialised_is_refused() -> None:
    reader = MessageReader.__new__(MessageReader)
    with pytest.raises(RuntimeError, match="initialised"):
        reader.take()
    assert not reader.within_message
    reader.drop()
    reader.__init__(Channel().channel, 1)  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="initialised once"):
        reader.__init__(Channel().channel, 2)  # type: ignore[misc]
    assert reader.take() is None
