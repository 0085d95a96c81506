"""Functions that asyncio has too refuse the same arguments with its words. Wrong addresses have our own errors."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from aiofabric import aio
from tests.fixtures.certificates import Tls
from tests.transport.opening.test_addresses_of_wrong_forms import FORMS, WRONG

pytestmark = pytest.mark.asyncio

Function = Callable[..., Awaitable[Any]]

OURS: dict[str, Function] = {
    "create_connection": partial(aio.create_connection, asyncio.Protocol),
    "open_connection": aio.open_connection,
    "create_server": partial(aio.create_server, asyncio.Protocol),
    "start_server": partial(aio.start_server, print),
}


def theirs(name: str) -> Function:
    loop = asyncio.get_running_loop()
    functions: dict[str, Function] = {
        "create_connection": partial(loop.create_connection, asyncio.Protocol),
        "open_connection": asyncio.open_connection,
        "create_server": partial(loop.create_server, asyncio.Protocol),
        "start_server": partial(asyncio.start_server, print),
    }
    return functions[name]


@pytest.mark.once
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((), {}),
        (("127.0.0.1", 9), {"ssl_handshake_timeout": 3.0}),
        (("127.0.0.1", 9), {"ssl_shutdown_timeout": 3.0}),
        (("127.0.0.1", 9), {"server_hostname": "localhost"}),
    ],
    ids=["no address", "handshake", "shutdown", "hostname"],
)
async def test_same_refusal(name: str, args: Any, options: dict[str, Any]) -> None:
    if "server_hostname" in options and name.endswith("server"):
        pytest.skip("only clients have it")
    said = []
    for function in (theirs(name), partial(OURS[name])):
        with pytest.raises(ValueError) as caught:
            await function(*args, **options)
        said.append(str(caught.value))
    uvloops = not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
    assert said[0] == said[1] or uvloops


@pytest.mark.once
@pytest.mark.parametrize("name", ["create_server", "start_server"])
async def test_tls_is_a_context(name: str) -> None:
    with pytest.raises(TypeError, match="ssl argument must be an SSLContext or None"):
        await OURS[name]("127.0.0.1", 0, ssl=True, provider="tcp")


@pytest.mark.once
@pytest.mark.parametrize("name", ["create_connection", "open_connection"])
async def test_a_client_may_ask_for_the_default_context(name: str, tls: Tls) -> None:
    """Its certificates do not include the one of this server."""

    def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await aio.start_server(plain, "127.0.0.1", 0, provider="tcp", ssl=tls.server)
    async with server:
        _, port = server.sockets[0].getsockname() or ("", 0)
        with pytest.raises(ssl.SSLCertVerificationError):
            await OURS[name]("127.0.0.1", port, ssl=True, provider="tcp")


@pytest.mark.parametrize("name", OURS)
async def test_addresses_of_wrong_forms(name: str) -> None:
    for node, service, kind, words in WRONG:
        if node and not (name.endswith("server") and isinstance(node, tuple)):  # a server takes several hosts
            with pytest.raises(kind, match=f"{words}.*{FORMS}"):
                await OURS[name](node, service, provider="tcp")


@pytest.mark.parametrize("host", [None, ""])
async def test_server_without_a_host_listens_everywhere(host: str | None) -> None:
    server = await aio.create_server(asyncio.Protocol, host, 0, provider="tcp")
    server.close()
    await server.wait_closed()
