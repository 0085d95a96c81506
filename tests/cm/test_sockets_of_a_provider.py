"""Which of the process's sockets are taken for a provider's, on real sockets: everything else is left alone."""

# Doubles: the version of libfabric, and its answer to the question for a descriptor.

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from aiofabric import Address
from aiofabric._ffi import constants, ffi, lib
from aiofabric.cm.workarounds import provider_sockets
from aiofabric.cm.workarounds.provider_sockets import (
    Mark,
    OwnSocket,
    connected_socket,
    descriptor_of,
    host_and_port,
    listening_sockets,
    open_descriptors,
    peer_of,
    tcp_socket,
)
from aiofabric.features import Feature

pytestmark = pytest.mark.once


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def of(name: Any) -> Address:
    return Address.from_ip(*name[:2])


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A listening socket, a client, and the accepted socket."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted = server.accept()[0]
        with accepted:
            yield server, client, accepted


def opened(family: socket.AddressFamily, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    try:
        return socket.socket(family, kind)
    except OSError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
        pytest.skip("this kernel has no IPv6")


# -- TCP sockets


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_tcp_socket_is_one(family: socket.AddressFamily) -> None:
    with opened(family) as sock:
        found = tcp_socket(sock.fileno())
        assert found is not None
        assert (found.fileno(), found.family) == (sock.fileno(), family)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET6, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_DGRAM),
    ],
)
def test_another_socket_is_none(family: socket.AddressFamily, kind: socket.SocketKind) -> None:
    with opened(family, kind) as sock:
        assert tcp_socket(sock.fileno()) is None


def test_a_file_and_a_closed_descriptor_are_none() -> None:
    with open(os.devnull) as file:
        number = file.fileno()
        assert tcp_socket(number) is None
    assert tcp_socket(number) is None
    assert tcp_socket(-1) is None


def test_a_socket_that_was_found_must_have_the_same_inode() -> None:
    with socket.socket() as sock:
        own = OwnSocket(sock.fileno(), os.fstat(sock.fileno()).st_ino)
        assert own.verified() is not None
        assert own._replace(inode=own.inode + 1).verified() is None
    assert own.verified() is None


# -- marks


def test_a_mark_passes_to_the_sockets_that_are_accepted(stack: ExitStack) -> None:
    one, other = Mark(), Mark()
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    listening = tcp_socket(server.fileno())
    assert listening is not None
    assert not one.on(listening)
    one.put(listening)
    client = stack.enter_context(socket.create_connection(server.getsockname()))
    accepted = stack.enter_context(server.accept()[0])
    found = tcp_socket(accepted.fileno())
    of_client = tcp_socket(client.fileno())
    assert found is not None
    assert of_client is not None
    assert (one.on(listening), one.on(found), one.on(of_client)) == (True, True, False)
    assert not other.on(found)
    accepted.close()
    assert not one.on(found)  # its number may be another file's by now


# -- the sockets of an endpoint that was just opened


def test_listening_sockets_are_new_and_at_the_address(stack: ExitStack) -> None:
    early = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    before = open_descriptors()
    late = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    address = of(late.getsockname())
    assert listening_sockets(before, address) == [OwnSocket(late.fileno(), os.fstat(late.fileno()).st_ino)]
    assert listening_sockets(before, of(early.getsockname())) == []
    assert listening_sockets(open_descriptors(), address) == []
    assert listening_sockets(before, Address.from_ip("127.0.0.2", address.port or 0)) == []


@pytest.mark.parametrize("address", [None, Address.from_ip("127.0.0.1", 0)])
def test_an_endpoint_without_a_port_has_none(address: Address | None, stack: ExitStack) -> None:
    before = open_descriptors()
    stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    assert listening_sockets(before, address) == []


def test_a_socket_with_a_peer_does_not_listen() -> None:
    before = open_descriptors()
    with connected() as (server, client, accepted):
        found = {each.descriptor for each in listening_sockets(before, of(server.getsockname()))}
        assert found == {server.fileno()}  # not the accepted one, at the same address
        assert accepted.getsockname() == server.getsockname()
        assert listening_sockets(before, of(client.getsockname())) == []


# -- the socket of a connection


def test_a_connection_has_both_addresses() -> None:
    with connected() as (server, client, accepted):
        ours, theirs = of(client.getsockname()), of(server.getsockname())
        found = connected_socket(client.fileno(), ours, theirs)
        assert found is not None
        assert found.fileno() == client.fileno()
        assert connected_socket(accepted.fileno(), theirs, ours) is not None
        for descriptor, one, other in (
            (client.fileno(), theirs, ours),
            (client.fileno(), ours, ours),
            (client.fileno(), theirs, theirs),
            (server.fileno(), theirs, ours),
            (None, ours, theirs),
            (client.fileno(), None, theirs),
            (client.fileno(), ours, None),
            (-1, ours, theirs),
        ):
            assert connected_socket(descriptor, one, other) is None


def test_peers_are_compared_without_a_scope() -> None:
    assert host_and_port(Address.from_ip("127.0.0.1", 5)) == ("127.0.0.1", 5)
    assert host_and_port(Address.from_ip("fe80::1%lo", 5)) == ("fe80::1", 5)
    with connected() as (server, client, _):
        sock = tcp_socket(client.fileno())
        assert sock is not None
        assert peer_of(sock) == host_and_port(of(server.getsockname()))


# -- the descriptor that libfabric names


@pytest.mark.parametrize(
    ("version", "answer", "number", "found"),
    [
        ("before", 0, 9, None),
        ("since", 0, 9, 9),
        ("since", 0, 0, 0),
        ("since", 0, -1, None),
        ("since", -constants.FI_ENOSYS, 9, None),
    ],
)
def test_libfabric_names_the_socket_of_a_connection_since_a_version(
    version: str, answer: int, number: int, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def control(endpoint: Any, command: int, descriptor: Any) -> int:
        assert command == constants.FI_GET_FD
        descriptor[0] = number
        return answer

    since = Feature.GET_FD.since
    running = since if version == "since" else (since[0], since[1] - 1)
    monkeypatch.setattr(provider_sockets, "library_version", lambda: running)
    monkeypatch.setattr(lib, "fi_control", control)
    assert descriptor_of(ffi.NULL) == found
