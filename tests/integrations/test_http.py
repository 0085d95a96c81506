"""httpx against uvicorn and Hypercorn over a fabric: keep-alive, concurrency, large bodies, time limits and ends."""

# Privates: httpx does not show the pool of a transport.

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from aiofabric import aio
from aiofabric.integrations.httpcore import FabricBackend, FabricHTTPTransport
from aiofabric.streams import listen_stream
from tests.fixtures.certificates import NAME, Tls
from tests.integrations.web import SERVERS, App, serving

if TYPE_CHECKING:
    import httpcore

pytestmark = pytest.mark.asyncio

LARGE = 8 * 1024 * 1024 + 1
VERSIONS = [("uvicorn", False), ("hypercorn", False), ("hypercorn", True)]
IDS = ["uvicorn", "hypercorn", "hypercorn-http2"]


@pytest.fixture(params=VERSIONS, ids=IDS)
def version(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """A server, and whether HTTP/2 is spoken with it."""
    which: tuple[str, bool] = request.param
    return which


def client(provider: str, http2: bool = False, **options: Any) -> httpx.AsyncClient:
    transport = FabricHTTPTransport(provider=provider, http1=not http2, http2=http2, **options)
    return httpx.AsyncClient(transport=transport, timeout=20)


async def test_ten_requests_use_one_connection(version: tuple[str, bool], carrier: str) -> None:
    kind, http2 = version
    app = App()
    async with serving(kind, app, carrier) as web, client(carrier, http2) as http:
        for number in range(10):
            answer = await http.post(web.url, content=b"%d" % number)
            assert answer.text == str(number)
            assert answer.headers["version"] == ("2" if http2 else "1.1")
    assert list(app.requests.values()) == [10]


async def test_a_hundred_concurrent_requests(version: tuple[str, bool], carrier: str) -> None:
    kind, http2 = version
    app = App()
    async with serving(kind, app, carrier) as web, client(carrier, http2) as http:
        answers = await asyncio.gather(*(http.post(web.url, content=b"%d" % number) for number in range(100)))
    assert [answer.text for answer in answers] == [str(number) for number in range(100)]
    assert app.requests.total() == 100
    assert len(app.requests) == 1 or not http2


async def test_large_bodies_both_ways(version: tuple[str, bool], carrier: str) -> None:
    kind, http2 = version
    body = bytes(range(256)) * (LARGE // 256) + b"!"
    async with serving(kind, App(), carrier) as web, client(carrier, http2) as http:
        assert (await http.post(web.url, content=body)).content == body


async def test_an_answer_that_does_not_come_is_a_read_timeout(version: tuple[str, bool], carrier: str) -> None:
    kind, http2 = version
    app = App()
    async with serving(kind, app, carrier) as web, client(carrier, http2) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"{web.url}/never", timeout=httpx.Timeout(20, read=0.1))
        assert (await http.get(web.url)).text == "empty"
        if not http2:  # httpcore gives such a stream up without telling the server
            await asyncio.wait_for(app.left.wait(), 5)


async def test_a_cancelled_request_leaves_the_client_usable(version: tuple[str, bool], carrier: str) -> None:
    kind, http2 = version
    app = App()
    async with serving(kind, app, carrier) as web, client(carrier, http2) as http:
        asking = asyncio.create_task(http.get(f"{web.url}/never"))
        await asyncio.wait_for(app.asked.wait(), 5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await http.get(web.url)).text == "empty"
        if not http2:  # httpcore gives such a stream up without telling the server
            await asyncio.wait_for(app.left.wait(), 5)


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_connection_that_the_server_ended_is_not_used_again(kind: str, carrier: str) -> None:
    async with client(carrier) as http:
        async with serving(kind, App(), carrier) as web:
            assert (await http.get(web.url)).text == "empty"
        pool: httpcore.AsyncConnectionPool = http._transport._pool  # type: ignore[attr-defined]
        (connection,) = pool.connections
        with anyio.fail_after(5):
            while not connection.has_expired():
                await anyio.lowlevel.checkpoint()
        with pytest.raises(httpx.ConnectError):  # a new connection was tried
            await http.get(web.url)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
async def test_httpx_speaks_tls_over_a_fabric(kind: str, http2: bool, tls: Tls, carrier: str) -> None:
    app = App()
    async with (
        serving(kind, app, carrier, tls=tls.server) as web,
        httpx.AsyncClient(transport=FabricHTTPTransport(provider=carrier, verify=tls.client, http2=http2)) as http,
    ):
        for number in range(3):
            answer = await http.post(web.url, content=b"%d" % number, extensions={"sni_hostname": NAME})
            assert answer.text == str(number)
            assert answer.http_version == ("HTTP/2" if http2 and kind == "hypercorn" else "HTTP/1.1")
    assert list(app.requests.values()) == [3]


async def test_nobody_listening_is_a_connect_error(carrier: str) -> None:
    async with serving("uvicorn", App(), carrier) as web:
        pass
    async with client(carrier) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(web.url)


async def test_a_peer_that_leaves_without_an_answer_is_a_protocol_error(carrier: str) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await aio.start_server(leave, "127.0.0.1", 0, provider=carrier)
    host, port = server.sockets[0].getsockname() or ("", 0)
    async with client(carrier) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(f"http://{host}:{port}")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("what", ["client_addr", "server_addr"])
async def test_httpcore_learns_the_addresses(what: str, carrier: str) -> None:
    async with listen_stream("127.0.0.1", 0, provider=carrier) as listener:
        accepting = asyncio.create_task(listener.accept())
        stream = await FabricBackend(provider=carrier).connect_tcp("127.0.0.1", listener.address.port or 0)
        async with await accepting:
            assert stream.get_extra_info(what)[0] == "127.0.0.1"
            assert not stream.get_extra_info("is_readable")
            await stream.aclose()
