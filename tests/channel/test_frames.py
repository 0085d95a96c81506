"""The frames of the byte channel, without I/O."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiofabric.channel.frames import BYTES, DATA, GRANT, HEADER_SIZE, MESSAGES, PLAIN, Hello, header
from tests.channel.scripted import Channel

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
@given(
    items=st.lists(st.binary(min_size=1, max_size=50), max_size=20),
    grants=st.lists(st.integers(30, 300), min_size=1, max_size=20),
)
def test_posted_buffers_are_sent_once_and_in_order(
    kind: type[bytes | bytearray], items: list[bytes], grants: list[int]
) -> None:
    small = Hello(recv_size=44, window=400)
    peer, told = Channel(theirs=small), list[int]()

    def note(number: int, _: BaseException | None) -> None:
        told.append(number)

    for number, item in enumerate(items):
        peer.channel.post(memoryview(kind(item)), partial(note, number))
    sent, frames = bytearray(), list[bytes]()
    for _ in range(400):
        frames = peer.sent
        assert all(0 < len(frame) - HEADER_SIZE <= small.payload for frame in frames)
        sent += b"".join(frame[HEADER_SIZE:] for frame in frames)
        assert peer.channel.unsent == sum(map(len, items)) - len(sent)
        if not peer.channel.unsent:
            break
        peer.grant(min(grants[len(sent) % len(grants)], 400 - peer.credits))
    for transfer in peer.endpoint.transfers:
        transfer.complete()
    assert sent == b"".join(items)
    assert sorted(told) == list(range(len(items)))
