"""The number of bytes that a connected socket has sent, including those that are still on their way."""

import socket
from contextlib import suppress

import pytest

from aiofabric.cm.workarounds.provider_sockets import bytes_received, bytes_written, segments_sent, tcp_socket

pytestmark = pytest.mark.once

SMALL, LARGE = 4096, 4 << 20  # sizes of receive and send buffers, in bytes
WRITTEN = 200_000


def test_bytes_that_the_peer_has_not_acknowledged_are_written_too() -> None:
    with socket.socket() as listener, socket.socket() as sender:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            before = bytes_written(sender.fileno())
            assert before is not None
            sender.sendall(bytes(WRITTEN))  # the peer has room for a small part of it
            assert bytes_written(sender.fileno()) == before + WRITTEN


def test_a_socket_that_is_full_has_no_number_and_neither_has_a_file() -> None:
    one, other = socket.socketpair()
    with one, other, socket.socket() as listener, socket.socket() as sender:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender.connect(listener.getsockname())
        sender.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                sender.send(bytes(1 << 20))
        assert bytes_written(sender.fileno()) is None
        assert bytes_written(one.fileno()) is None  # no TCP


def test_a_connection_counts_what_it_has_sent_and_received_until_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sender:
        accepted, _ = listener.accept()
        sent, received = tcp_socket(sender.fileno()), tcp_socket(accepted.fileno())
        assert sent is not None
        assert received is not None
        with accepted:
            assert (segments_sent(sent), bytes_received(received)) == (0, 0)
            sender.sendall(b"four")
            assert accepted.recv(10) == b"four"
            assert (segments_sent(sent), bytes_received(received)) == (1, 4)
        assert (segments_sent(received), bytes_received(received)) == (0, 0)
