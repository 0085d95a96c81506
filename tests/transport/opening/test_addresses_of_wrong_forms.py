"""Every function with an address refuses a value that is no address, or that names no host, at once and with a clear
text.
"""

# Doubles: the resolver's answer is chosen.

import errno
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from ipaddress import ip_address
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Address, EndpointType, NameResolutionError, streams
from tests.fixtures.providers import CARRIERS, over

provider = over(CARRIERS)
pytestmark = pytest.mark.anyio

Function = Callable[..., Awaitable[Any]]


def entered(function: Callable[..., AbstractAsyncContextManager[Any]]) -> Function:
    async def call(*args: Any, **options: Any) -> None:
        async with function(*args, **options):
            pass

    return call


async def add_peer(node: Any, service: Any) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider="tcp;ofi_rxm") as endpoint:
        await endpoint.add_peer(node, service)


REMOTE: dict[str, Function] = {
    "connect": aiofabric.connect,
    "connect_stream": streams.connect_stream,
    "connect_messages": streams.connect_messages,
}
LOCAL: dict[str, Function] = {
    "listen": entered(aiofabric.listen),
    "listen_stream": entered(streams.listen_stream),
    "listen_messages": entered(streams.listen_messages),
}
# Those whose provider is another one, or that are for one loop only.
OTHERS: dict[str, Function] = {
    "reserve": entered(partial(aiofabric.reserve, provider="tcp")),
    "open_endpoint": entered(partial(aiofabric.open_endpoint, EndpointType.RDM, provider="tcp;ofi_rxm")),
    "open_datagrams": partial(streams.open_datagrams, provider="udp"),
    "add_peer": add_peer,
    "connect_datagrams": partial(streams.connect_datagrams, provider="udp"),
}
FORMS = r"host name or numeric address with a port as the second argument.*'fi_sockaddr_in://127.0.0.1:7471'"

WRONG: list[tuple[Any, Any, type[Exception], str]] = [
    (("127.0.0.1", 7471), None, TypeError, r"Pass host and port apart \('127.0.0.1', 7471\)"),
    (b"127.0.0.1", 7471, TypeError, "Pass a text"),
    (7471, None, TypeError, "The port is the second argument"),
    (1.5, 7471, TypeError, "1.5 is not an address"),
    (ip_address("127.0.0.1"), 7471, TypeError, "is not an address"),
    ("", 7471, ValueError, "'' is not an address"),
    ("local\0host", 7471, ValueError, "is not an address"),
    ("127.0.0.1:7471", None, ValueError, r"pass host and port apart \('127.0.0.1', 7471\)"),
    ("localhost:7471", 80, ValueError, r"pass host and port apart \('localhost', 7471\)"),
    ("[::1]:7471", None, ValueError, r"pass host and port apart \('::1', 7471\)"),
    ("[::1]", 7471, ValueError, r"pass host and port apart \('::1'\)"),
    ("tcp://127.0.0.1:7471", None, ValueError, "is not an address"),
    ("http://127.0.0.1:7471/", None, ValueError, "is not an address"),
    ("fi_sockaddr_in://127.0.0.1:seven", None, ValueError, "is not an address"),
]
PORTS: list[tuple[Any, type[Exception], str]] = [
    (1.5, TypeError, "a port must be a number, or the name of a service, not 1.5"),
    (b"7471", TypeError, "a port must be a number"),
    (True, TypeError, "a port must be a number"),
    (-1, ValueError, "a port must be 0 to 65535, not -1"),
    ("65536", ValueError, "a port must be 0 to 65535, not 65536"),
]
NO_PORT: list[tuple[Any, Any, str]] = [
    ("127.0.0.1", None, "the port is missing, in the address '127.0.0.1'"),
    ("localhost", None, "the port is missing, in the address 'localhost'"),
    ("127.0.0.1", 0, "port 0 names no peer"),
    ("127.0.0.1", "0", "port 0 names no peer"),
    ("127.0.0.1", "", "the port is missing"),
    ("fi_sockaddr://127.0.0.1", None, "the port is missing"),
    (Address.from_ip("127.0.0.1"), None, "port 0 names no peer"),
]


async def refused(
    function: Function, node: Any, service: Any, kind: type[Exception], words: str, **options: Any
) -> None:
    with anyio.fail_after(5), pytest.raises(kind, match=words) as caught:
        await function(node, service, **options)
    assert type(caught.value) is kind


@pytest.mark.parametrize("name", [*REMOTE, *LOCAL])
async def test_wrong_forms(provider: str, name: str) -> None:
    function = (REMOTE | LOCAL)[name]
    for node, service, kind, words in WRONG:
        await refused(function, node, service, kind, f"{words}.*{FORMS}", provider=provider)
    for service, kind, words in PORTS:
        await refused(function, "127.0.0.1", service, kind, words, provider=provider)


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - {"add_peer"}))
async def test_wrong_forms_of_other_endpoints(name: str) -> None:
    for node, service, kind, words in WRONG:
        await refused(OTHERS[name], node, service, kind, f"{words}.*{FORMS}")
    for service, kind, words in PORTS:
        await refused(OTHERS[name], "127.0.0.1", service, kind, words)


@pytest.mark.parametrize("name", REMOTE)
async def test_nobody_is_connected_to_without_a_port(provider: str, name: str) -> None:
    for node, service, words in NO_PORT:
        await refused(REMOTE[name], node, service, ValueError, f"{words}.*{FORMS}", provider=provider)
    await refused(
        REMOTE[name], None, 7471, TypeError, f"the address of the peer is missing.*{FORMS}", provider=provider
    )


@pytest.mark.once
def test_getinfo_takes_the_same_forms() -> None:
    for node, service, kind, words in WRONG:
        with pytest.raises(kind, match=words):
            aiofabric.getinfo(node, service)
    with pytest.raises(TypeError, match="dest_addr or src_addr of its hints"):
        aiofabric.getinfo(Address.from_ip("127.0.0.1", 7471))  # type: ignore[arg-type]


def unknown(*args: Any, **options: Any) -> Any:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize("name", [*REMOTE, *LOCAL, "reserve", "add_peer"])
async def test_name_that_does_not_resolve(provider: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to be FI_EADDRNOTAVAIL: "the address is none of this host's"."""
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    functions = REMOTE | LOCAL | OTHERS
    options = {} if name in OTHERS else {"provider": provider}
    with pytest.raises(socket.gaierror, match=r"no\.such:7471: The name does not resolve \[EAI_NONAME\]") as caught:
        await functions[name]("no.such", 7471, **options)
    assert type(caught.value) is NameResolutionError
    assert isinstance(caught.value, aiofabric.FabricError)
    assert caught.value.errno == socket.EAI_NONAME
    assert "spelling" in caught.value.cure


@pytest.mark.parametrize("function", [aiofabric.connect, entered(aiofabric.listen)], ids=["connect", "listen"])
async def test_service_that_nobody_knows(provider: str, function: Function) -> None:
    for node in ("127.0.0.1", "localhost"):
        with pytest.raises(NameResolutionError, match=r"no such service name.*port as a number"):
            await function(node, "no-such-service", provider=provider)


async def test_port_in_use_is_named(provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        with pytest.raises(OSError, match=f"at {listener.address}: .*in use") as caught:
            await entered(aiofabric.listen)("127.0.0.1", listener.address.port, provider=provider)
    assert caught.value.errno == errno.EADDRINUSE


async def test_port_in_use_of_a_connectionless_endpoint_is_named() -> None:
    rxm: Any = {"type": EndpointType.RDM, "provider": "tcp;ofi_rxm"}  # 1.17's udp leaks its socket when it fails
    async with aiofabric.open_endpoint(node="127.0.0.1", service=0, **rxm) as endpoint:
        where = endpoint.local_address
        with pytest.raises(OSError, match=f"at {where}: .*in use"):
            await entered(aiofabric.open_endpoint)(node="127.0.0.1", service=where.port, **rxm)
