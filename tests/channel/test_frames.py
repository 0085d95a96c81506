"""The frames of the byte channel, without I/O."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiofabric.channel.frames import BYTES, DATA, GRANT, HEADER_SIZE, MESSAGES, PLAIN, Hello, header
from aiofabric.channel.outbox import Outbox, Posted

pytestmark = pytest.mark.once

HELLO = Hello(recv_size=65540, window=1 << 20)


@given(
    st.integers(HEADER_SIZE + 1, (1 << 32) - 1),
    st.integers(65, (1 << 24) - 1),
    st.booleans(),
    st.integers(0, (1 << 32) - 1),
)
def test_a_hello_survives_the_wire(recv_size: int, window: int, packing: bool, most: int) -> None:
    hello = Hello(recv_size, window, MESSAGES, packing, most)
    assert Hello.unpack(hello.pack(), kind=MESSAGES) == hello
    assert len(hello.pack()) <= 256  # what a connection request carries


@pytest.mark.parametrize(
    ("param", "reason"),
    [
        (b"", "a plain connection"),
        (b"GET / HTTP/1.1\r\n\r\n", "a plain connection"),
        (HELLO.pack()[:-1], "a plain connection"),
        (HELLO.pack() + b"\0", "a plain connection"),
        (HELLO.pack()[:4] + b"\x09" + HELLO.pack()[5:], "version 9"),
        (replace(HELLO, kind=MESSAGES).pack(), "stream of messages"),
        (replace(HELLO, recv_size=HEADER_SIZE).pack(), "receive buffers of 4 bytes"),
        (replace(HELLO, window=64).pack(), "64 in all"),
        (replace(HELLO, window=1 << 24).pack(), "16777216 in all"),
    ],
)
def test_a_hello_that_makes_no_sense_says_why(param: bytes, reason: str) -> None:
    with pytest.raises(ConnectionAbortedError, match=reason):
        Hello.unpack(param, kind=BYTES)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_hello_or_an_error(param: bytes) -> None:
    with contextlib.suppress(ConnectionAbortedError):
        assert Hello.unpack(param, kind=BYTES).payload > 0


def test_headers() -> None:
    assert header(DATA, 0) == PLAIN
    assert header(GRANT, 0x123456) == b"\x01\x56\x34\x12"


@pytest.mark.parametrize("kind", [bytes, bytearray])
@given(items=st.lists(st.binary(min_size=1, max_size=50), max_size=20), payload=st.integers(1, 40))
def test_an_outbox_sends_everything_once_and_in_order(
    kind: type[bytes | bytearray], items: list[bytes], payload: int
) -> None:
    outbox, told = Outbox(), list[int]()

    def note(number: int, _: BaseException | None) -> None:
        told.append(number)

    for number, item in enumerate(items):
        outbox.add(Posted(memoryview(kind(item)), partial(note, number)))
    sent = bytearray()
    while outbox:
        assert outbox.size == sum(map(len, items)) - len(sent)
        piece, posted = outbox.next_frame(payload)
        assert 0 < len(piece) <= payload
        sent += piece
        if posted is not None:
            posted.sent(None)
        outbox.report_sent()
    assert sent == b"".join(items)
    assert sorted(told) == list(range(len(items)))


def test_a_large_buffer_is_sent_from_where_it_lies_and_told_when_its_last_frame_has_left() -> None:
    outbox, told, data = Outbox(), list[BaseException | None](), bytearray(100)
    outbox.add(Posted(memoryview(data), told.append))
    pieces = [outbox.next_frame(40) for _ in range(3)]
    assert [piece.obj is data for piece, _ in pieces] == [True] * 3
    assert not outbox
    for _, posted in pieces:
        assert told == []
        assert posted is not None
        posted.sent(None)
    assert told == [None]


def test_what_nobody_changes_is_told_as_soon_as_its_last_frame_is_handed_over() -> None:
    outbox, told = Outbox(), list[BaseException | None]()
    outbox.add(Posted(memoryview(bytes(100)), told.append))
    for _ in range(3):
        outbox.report_sent()
        assert told == []
        _, posted = outbox.next_frame(40)
        assert posted is None
    outbox.report_sent()
    assert told == [None]


def test_a_buffer_is_told_once_of_the_first_failure() -> None:
    outbox, told = Outbox(), list[BaseException | None]()
    outbox.add(Posted(memoryview(bytearray(100)), told.append))
    _, posted = outbox.next_frame(40)
    assert posted is not None
    error = ConnectionResetError()
    posted.sent(error)
    outbox.fail(ConnectionAbortedError())
    assert told == [error]
