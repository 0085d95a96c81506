"""Hazard: aiofabric takes a socket of the program for the provider's, because its port number is the same.

The test opens each kind of socket first. Then listeners, hostile clients and endpoints are opened and closed.
Afterwards, every option of the program's sockets is as before, their connections are open, and every byte arrives.
"""

# Privates: `_options` is of this file's own class.
# Doubles: patience is shortened, and a client that aiofabric misses is made certain.

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from time import monotonic

import anyio
import anyio.lowlevel
import pytest
from psutil import Process

import aiofabric
from aiofabric import EndpointType
from aiofabric.cm.workarounds import half_open_clients
from aiofabric.cm.workarounds.provider_sockets import open_descriptors
from aiofabric.transport.virtual import oob_listener
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

HERE, IN_PYTHON = "127.0.0.1", "127.0.0.2"
OPTIONS = {
    name: (getattr(socket, level), getattr(socket, name), size)
    for name, level, size in (
        ("SO_RCVTIMEO", "SOL_SOCKET", 16),
        ("SO_SNDTIMEO", "SOL_SOCKET", 16),
        ("SO_KEEPALIVE", "SOL_SOCKET", 4),
        ("SO_LINGER", "SOL_SOCKET", 8),
        ("SO_SNDBUF", "SOL_SOCKET", 4),
        ("SO_RCVLOWAT", "SOL_SOCKET", 4),
        ("TCP_DEFER_ACCEPT", "IPPROTO_TCP", 4),
        ("TCP_CORK", "IPPROTO_TCP", 4),
        ("TCP_NODELAY", "IPPROTO_TCP", 4),
        ("TCP_CONGESTION", "IPPROTO_TCP", 16),
        ("TCP_USER_TIMEOUT", "IPPROTO_TCP", 4),
        ("TCP_KEEPIDLE", "IPPROTO_TCP", 4),
        ("IP_TOS", "IPPROTO_IP", 4),
    )
}


class Neighbour:
    """A TCP server of the program's, with idle connections."""

    def __init__(self, stack: ExitStack, listening: socket.socket) -> None:
        self.sockets = [stack.enter_context(listening)]
        self.ends: list[tuple[socket.socket, socket.socket]] = []
        listening.listen()
        for _ in range(20):
            client = stack.enter_context(socket.create_connection(listening.getsockname()[:2]))
            accepted = stack.enter_context(listening.accept()[0])
            self.ends.append((client, accepted))
            self.sockets += client, accepted
        self.before = [*self._options()]

    def _options(self) -> Iterator[dict[str, bytes]]:
        for sock in self.sockets:
            with suppress(OSError):
                yield {name: sock.getsockopt(level, code, size) for name, (level, code, size) in OPTIONS.items()}

    def is_untouched(self) -> None:
        assert [*self._options()] == self.before
        for number, (client, accepted) in enumerate(self.ends):
            for one, other in ((client, accepted), (accepted, client)):
                one.sendall(b"%d" % number)
                assert other.recv(100) == b"%d" % number
        listening = self.sockets[0]
        waiting = threading.Timer(0.1, lambda: socket.create_connection(listening.getsockname()[:2]).close())
        waiting.start()
        listening.accept()[0].close()  # it waits, as a socket that blocks does
        waiting.join()


def bound(host: str, port: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((host, port))
    return sock


async def misbehave(port: int, provider: str) -> None:
    """Clients that send nothing, send a part of a request, or close; and an honest one."""
    clients = [socket.create_connection((HERE, port)) for _ in range(10)]
    for sock in clients[:5]:
        sock.sendall(b"\0" * 10)
    honest = await aiofabric.connect(HERE, port, provider=provider)
    with anyio.fail_after(30):
        for sock in clients:
            await closed_by_the_peer(sock)
            sock.close()
    honest.abort()


async def closed_by_the_peer(sock: socket.socket) -> None:
    """Return at the end, or the reset, of the connection."""
    sock.setblocking(False)
    with suppress(ConnectionError):
        await anyio.wait_readable(sock)
        while sock.recv(1000):
            await anyio.wait_readable(sock)


def accepted_at(port: int) -> int:
    """Connections that a listening socket of this process at ``port`` has accepted."""
    return sum(each.laddr.port == port and each.status != "LISTEN" for each in Process().net_connections("tcp"))


async def accept_all(listener: aiofabric.Listener) -> None:
    async for request in listener:
        with suppress(aiofabric.FabricError):
            (await request.accept()).abort()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open_clients, "PATIENCE", 0.1)
    monkeypatch.setattr(oob_listener, "PATIENCE", 0.1)


@pytest.mark.parametrize("host", [IN_PYTHON, "::1", "::"])
@pytest.mark.parametrize("provider", ["tcp", "shm", "tcp;ofi_rxm"])
async def test_server_with_the_number_of_a_listener_at_another_address(provider: str, host: str) -> None:
    require(provider)
    with ExitStack() as stack:
        listening = bound(host)
        port = listening.getsockname()[1]
        neighbour = Neighbour(stack, listening)
        async with aiofabric.listen(HERE, port, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_all, listener)
            await misbehave(port, provider)
            neighbour.is_untouched()
            tasks.cancel_scope.cancel()
        neighbour.is_untouched()


@pytest.mark.parametrize("provider", ["tcp"])
async def test_server_that_comes_later_and_connections_that_are_missed(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was not found is searched for among all descriptors, which include the neighbour's."""
    require(provider)

    def miss(self: half_open_clients.HalfOpenClients) -> None:
        if self._incoming:
            self.missed = self.missed or monotonic()
            self._arm()

    monkeypatch.setattr(half_open_clients.HalfOpenClients, "after_read", miss)
    with ExitStack() as stack:
        async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
            port = listener.address.port
            assert port is not None
            tasks.start_soon(accept_all, listener)
            neighbour = Neighbour(stack, bound(IN_PYTHON, port))
            await misbehave(port, provider)
            neighbour.is_untouched()
            tasks.cancel_scope.cancel()
        neighbour.is_untouched()


async def test_a_listener_that_closes_ends_the_clients_that_it_never_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that the provider accepted and forgot takes no descriptor, and gets an end of its connection."""
    require("tcp")
    monkeypatch.setattr(half_open_clients.HalfOpenClients, "after_read", lambda self: None)
    with ExitStack() as stack:
        neighbour = Neighbour(stack, bound(IN_PYTHON))
        async with aiofabric.listen(HERE, 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_all, listener)
            port = listener.address.port or 0
            silent = [stack.enter_context(socket.create_connection((HERE, port))) for _ in range(5)]
            with anyio.fail_after(30):
                while accepted_at(port) < len(silent):
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            for sock in silent:
                await closed_by_the_peer(sock)
        assert accepted_at(port) == 0
        neighbour.is_untouched()


@pytest.mark.parametrize("provider", ["udp", "tcp;ofi_rxm", "shm"])
async def test_server_with_the_number_of_a_connectionless_endpoint(provider: str) -> None:
    kind = EndpointType.DGRAM if provider == "udp" else EndpointType.RDM
    host = HERE if provider == "udp" else IN_PYTHON
    with ExitStack() as stack:
        listening = bound(host)
        port = listening.getsockname()[1]
        neighbour = Neighbour(stack, listening)
        async with aiofabric.open_endpoint(kind, HERE, port, provider=provider):
            neighbour.is_untouched()
        neighbour.is_untouched()


async def test_sockets_of_other_threads_come_and_go_meanwhile() -> None:
    """Another thread opens and closes descriptors while endpoints search for theirs."""
    require("tcp")
    stop, broken = threading.Event(), []

    def churn() -> None:
        while not stop.is_set():
            with ExitStack() as stack:
                neighbour = Neighbour(stack, bound(IN_PYTHON))
                try:
                    assert [*neighbour._options()] == neighbour.before
                    for client, accepted in neighbour.ends:
                        client.sendall(b"x")
                        assert accepted.recv(1) == b"x"
                except (OSError, AssertionError) as error:
                    broken.append(error)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            async with aiofabric.listen(HERE, 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
                tasks.start_soon(accept_all, listener)
                endpoints = [await aiofabric.connect(listener.address, provider="tcp") for _ in range(5)]
                for endpoint in endpoints:
                    endpoint.abort()
                tasks.cancel_scope.cancel()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert broken == []


async def test_descriptors_that_the_program_duplicated_stay_open() -> None:
    """Of a listening socket with the same number at another address, and of a plain file."""
    require("tcp")
    with ExitStack() as stack:
        listening = bound(IN_PYTHON)
        neighbour = Neighbour(stack, listening)
        copies = [os.dup(sock.fileno()) for sock in neighbour.sockets] + [os.open("/", os.O_RDONLY)]
        inodes = [os.fstat(copy).st_ino for copy in copies]
        async with (
            aiofabric.listen(HERE, listening.getsockname()[1], provider="tcp") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(accept_all, listener)
            assert listener.address.port is not None
            await misbehave(listener.address.port, "tcp")
            tasks.cancel_scope.cancel()
        assert [os.fstat(copy).st_ino for copy in copies] == inodes
        for copy in copies:
            os.close(copy)
        neighbour.is_untouched()


async def test_a_default_timeout_of_the_program_s_sockets_changes_no_other_file() -> None:
    """socket.socket(fileno=...) makes the file non-blocking while socket.setdefaulttimeout is in force."""
    require("tcp")
    with ExitStack() as stack:
        listening = bound(IN_PYTHON)
        neighbour = Neighbour(stack, listening)
        socket.setdefaulttimeout(5)
        stack.callback(socket.setdefaulttimeout, None)
        async with (
            aiofabric.listen(HERE, listening.getsockname()[1], provider="tcp") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(accept_all, listener)
            (await aiofabric.connect(listener.address, provider="tcp")).abort()
            tasks.cancel_scope.cancel()
        assert all(os.get_blocking(sock.fileno()) for sock in neighbour.sockets)


def test_descriptors_are_exactly_those_that_are_open() -> None:
    """The number that the listing itself has is free afterwards, and the next socket gets it."""
    before = open_descriptors()
    files = [os.open("/", os.O_RDONLY) for _ in range(3)]
    assert open_descriptors() - before == set(files)
    for descriptor in files:
        os.close(descriptor)
    assert open_descriptors() == before
