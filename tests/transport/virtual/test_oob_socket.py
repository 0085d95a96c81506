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


def test_the_longest_frame_is_handed_out(ends: tuple[OobSocket, OobSocket, ManualDriver]) -> None:
    one, other, driver = ends
    seen: list[Frame] = []
    other.on_frame = seen.append
    assert one.send(9, bytes(MAX_FRAME))
    driver.settle_down()
    assert seen == [Frame(9, bytes(MAX_FRAME))]
    assert not other.foreign
    assert one.send(9, bytes(MAX_FRAME + 1))
    driver.settle_down()
    assert other.closed
    assert other.foreign


def test_as_much_as_one_read_takes_waits_for_a_listener(ends: tuple[OobSocket, OobSocket, ManualDriver]) -> None:
    one, other, driver = ends
    for size in (MAX_FRAME, 4096 - MAX_FRAME - 10):
        one.send(1, bytes(size))
    driver.settle_down()
    assert not other.closed
    seen: list[Frame] = []
    other.on_frame = seen.append
    other.hand_out()
    assert [len(frame.body) for frame in seen] == [MAX_FRAME, 4096 - MAX_FRAME - 10]


def test_a_send_says_whether_the_kernel_took_it(ends: tuple[OobSocket, OobSocket, ManualDriver]) -> None:
    one, other, _ = ends
    while one.send(1, bytes(MAX_FRAME)):  # the other one does not read
        pass
    assert not one.closed
    assert not one.send(1)
    other.close()
    assert not one.send(1)
    one.close()
    assert not one.send(1)
    one.keep_alive(9.0)  # as before, without effect


def test_a_socket_over_tcp_sends_at_once_and_never_blocks() -> None:
    driver = ManualDriver()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        one = OobSocket(client, driver)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not client.getblocking()
        assert (str(one.local_address), str(one.peer_address)) == (
            f"fi_sockaddr_in://127.0.0.1:{client.getsockname()[1]}",
            f"fi_sockaddr_in://127.0.0.1:{server.getsockname()[1]}",
        )
        one.poll()  # nothing has come
        assert not one.closed
        one.keep_alive(9.0)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        one.close()
        assert not driver.readers


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
