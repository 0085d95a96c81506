"""An OOB socket loses no frame before it has a listener, and disconnects a peer that sends an invalid frame."""

import socket
from collections.abc import Iterator

import pytest

from aiofabric.transport.virtual.oob_socket import MAX_FRAME, Frame, OobSocket
from tests.cq.manual import ManualDriver
from tests.fixtures.internals import socket_of

pytestmark = pytest.mark.once


@pytest.fixture
def ends() -> Iterator[tuple[OobSocket, OobSocket, ManualDriver]]:
    driver = ManualDriver()
    one, other = (OobSocket(each, driver) for each in socket.socketpair())
    yield one, other, driver
    one.close()
    other.close()


def test_what_comes_behind_the_first_frame_waits_for_the_next_listener(
    ends: tuple[OobSocket, OobSocket, ManualDriver],
) -> None:
    one, other, driver = ends
    first: list[Frame] = []

    def answer(frame: Frame) -> None:
        other.on_frame = None
        first.append(frame)

    other.on_frame = answer
    one.send(1, b"welcome")
    one.send(2, b"and this")
    driver.settle_down()
    assert first == [Frame(1, b"welcome")]
    later: list[Frame] = []
    other.on_frame = later.append
    other.hand_out()
    assert later == [Frame(2, b"and this")]


def test_what_nobody_listens_to_is_bounded(ends: tuple[OobSocket, OobSocket, ManualDriver]) -> None:
    one, other, driver = ends
    ended: list[bool] = []
    other.on_end = lambda: ended.append(True)
    for _ in range(8):
        one.send(1, bytes(MAX_FRAME))
    driver.settle_down()
    assert ended == [True]
    assert other.closed


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"\xaf\x1b\x01\xff\xff"], ids=["http", "too long"])
def test_nonsense_ends_it(ends: tuple[OobSocket, OobSocket, ManualDriver], words: bytes) -> None:
    one, other, driver = ends
    ended: list[bool] = []
    other.on_frame = ended.append  # type: ignore[assignment]
    other.on_end = lambda: ended.append(True)
    assert socket_of(one) is not None
    socket_of(one).send(words)
    driver.settle_down()
    assert ended == [True]


def test_a_frame_is_handed_out_when_its_last_byte_has_come(ends: tuple[OobSocket, OobSocket, ManualDriver]) -> None:
    one, other, driver = ends
    seen: list[Frame] = []
    other.on_frame = seen.append
    frame = b"\xaf\x1b\x01\0\x05hello"
    for place in range(len(frame)):
        assert seen == []
        socket_of(one).send(frame[place : place + 1])
        driver.settle_down()
    assert seen == [Frame(1, b"hello")]
