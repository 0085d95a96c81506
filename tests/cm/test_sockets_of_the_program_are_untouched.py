"""Hazard: aiofabric takes a socket of the program for the provider's, because its port number is the same.

The test opens each kind of socket first. Then listeners, hostile clients and endpoints are opened and closed.
Afterwards, every option of the program's sockets is as before, their connections are open, and every byte arrives.
"""

# Doubles: a timeout is shortened, and a client that aiofabric misses is made certain.

import gc
import os
import socket
import sys
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
from aiofabric.cm.workarounds.borrowed_socket import BorrowedSocket
from aiofabric.cm.workarounds.provider_sockets import is_at, open_descriptors, tcp_socket
from aiofabric.transport.virtual import oob_listener
from tests.fixtures.ports import free_port
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


ECHO = """
import select, socket, sys
listening = socket.socket(fileno=int(sys.argv[1]))
watched = [listening]
while True:
    for each in select.select(watched, [], [])[0]:
        if each is listening:
            watched.append(each.accept()[0])
        elif data := each.recv(100):
            each.sendall(data)
        else:
            watched.remove(each)
"""


def options_of(sock: socket.socket) -> dict[str, bytes]:
    return {name: sock.getsockopt(level, code, size) for name, (level, code, size) in OPTIONS.items()}


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
        self.before = [*self.options()]

    def options(self) -> Iterator[dict[str, bytes]]:
        for sock in self.sockets:
            with suppress(OSError):
                yield options_of(sock)

    def is_untouched(self) -> None:
        assert [*self.options()] == self.before
        for number, (client, accepted) in enumerate(self.ends):
            for one, other in ((client, accepted), (accepted, client)):
                one.sendall(b"%d" % number)
                assert other.recv(100) == b"%d" % number
        listening = self.sockets[0]
        waiting = threading.Timer(0.1, lambda: socket.create_connection(listening.getsockname()[:2]).close())
        waiting.start()
        listening.accept()[0].close()  # it waits, as a socket that blocks does
        waiting.join()


def bound(host: str, port: int | None = None, *, option: int = socket.SO_REUSEADDR) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, option, 1)
    if ":" in host:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    for _ in range(20):
        try:
            sock.bind((host, free_port() if port is None else port))
            break
        except OSError:  # free at one address; another test has it at this one
            if port is not None:
                raise
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
    with ExitStack() as accepted:
        async for request in listener:
            with suppress(aiofabric.FabricError):
                accepted.callback((await request.accept()).abort)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_open_clients, "TIMEOUT", 0.1)
    monkeypatch.setattr(oob_listener, "TIMEOUT", 0.1)


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


@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm"])
async def test_two_servers_that_share_an_address_and_the_number_of_a_listener(provider: str) -> None:
    """SO_REUSEPORT: the kernel divides the clients between the two."""
    require(provider)
    with ExitStack() as stack:
        one = bound(IN_PYTHON, option=socket.SO_REUSEPORT)
        port = one.getsockname()[1]
        neighbour = Neighbour(stack, one)
        other = stack.enter_context(bound(IN_PYTHON, port, option=socket.SO_REUSEPORT))
        other.listen()
        neighbour.sockets.append(other)
        neighbour.before = [*neighbour.options()]
        async with aiofabric.listen(HERE, port, provider=provider) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_all, listener)
            await misbehave(port, provider)
            assert [*neighbour.options()] == neighbour.before
            tasks.cancel_scope.cancel()
        other.close()
        neighbour.sockets.remove(other)
        neighbour.before = neighbour.before[:-1]
        neighbour.is_untouched()


async def test_a_socket_at_every_address_with_the_number_of_a_listener() -> None:
    """Bound to 0.0.0.0 beside the listener's specific address; the kernel lets only one of them listen."""
    require("tcp")
    with ExitStack() as stack:
        everywhere = stack.enter_context(bound("0.0.0.0"))
        port = everywhere.getsockname()[1]
        before = options_of(everywhere)
        async with aiofabric.listen(HERE, port, provider="tcp") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_all, listener)
            await misbehave(port, "tcp")
            assert options_of(everywhere) == before
            tasks.cancel_scope.cancel()
        assert options_of(everywhere) == before
        everywhere.listen()
        with socket.create_connection((HERE, port)) as client, everywhere.accept()[0] as accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


async def test_server_of_a_child_that_holds_the_same_sockets() -> None:
    require("tcp")
    with ExitStack() as stack:
        listening = bound(IN_PYTHON)
        port = listening.getsockname()[1]
        listening.listen()
        before = options_of(listening)
        command = [sys.executable, "-c", ECHO, str(listening.fileno())]
        async with await anyio.open_process(command, pass_fds=[listening.fileno()]) as child:
            connected = stack.enter_context(socket.create_connection((IN_PYTHON, port)))
            async with aiofabric.listen(HERE, port, provider="tcp") as listener, anyio.create_task_group() as tasks:
                tasks.start_soon(accept_all, listener)
                await misbehave(port, "tcp")
                tasks.cancel_scope.cancel()
            assert options_of(listening) == before
            listening.close()
            for client in (connected, stack.enter_context(socket.create_connection((IN_PYTHON, port)))):
                client.settimeout(30)
                client.sendall(b"x")
                assert client.recv(1) == b"x"
            child.kill()


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


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("provider", ["udp", "tcp;ofi_rxm", "shm"])
async def test_server_with_the_number_of_a_connectionless_endpoint(provider: str, everywhere: bool) -> None:
    kind = EndpointType.DGRAM if provider == "udp" else EndpointType.RDM
    if everywhere and provider == "tcp;ofi_rxm":
        pytest.skip("the kernel lets no second socket listen beside one at 0.0.0.0")
    host = "0.0.0.0" if everywhere else HERE if provider == "udp" else IN_PYTHON
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
                    assert [*neighbour.options()] == neighbour.before
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


def test_a_socket_that_is_borrowed_stays_open_when_the_object_is_gone() -> None:
    """After Ctrl-C between two steps, the collector removes the object at any time."""
    with bound(HERE) as sock:
        borrowed = tcp_socket(sock.fileno())
        assert borrowed is not None
        assert borrowed.getsockname() == sock.getsockname()
        del borrowed
        gc.collect()
        assert os.fstat(sock.fileno())


def test_each_error_of_a_borrowed_socket_has_its_own_number() -> None:
    with bound(HERE) as listening, open(os.devnull) as file:
        listening.listen()
        borrowed = tcp_socket(listening.fileno())
        assert borrowed is not None
        for _ in range(2):
            with pytest.raises(OSError, match="Socket operation on non-socket"):
                BorrowedSocket(file.fileno())
            with pytest.raises(OSError, match="not connected"):
                borrowed.getpeername()


@pytest.mark.parametrize("number", [-1, 1 << 20])
def test_a_descriptor_that_is_closed_is_no_socket(number: int) -> None:
    assert tcp_socket(number) is None


def test_files_and_other_sockets_are_no_tcp_sockets() -> None:
    with socket.socket(socket.AF_UNIX) as unix, socket.socket(type=socket.SOCK_DGRAM) as udp, open(os.devnull) as file:
        assert [tcp_socket(each.fileno()) for each in (unix, udp, file)] == [None, None, None]


@pytest.mark.parametrize(
    ("address", "name", "same"),
    [
        ("fe80::1%3", "fe80::1%3", True),
        ("fe80::1%3", "fe80::1%4", False),
        ("fe80::1", "fe80::1%4", True),  # a provider may leave the scope out
        ("fe80::1%3", "fe80::2%3", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_the_same_host_on_another_interface_is_another_address(address: str, name: str, same: bool) -> None:
    assert is_at(aiofabric.Address.from_ip(address, 7), (name, 7)) is same
    assert not is_at(aiofabric.Address.from_ip(address, 8), (name, 7))
