"""httpx against uvicorn over a fabric: keep-alive, concurrency, large bodies, time limits and ends."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import httpx
import pytest
import uvicorn

from aiofabric import aio
from aiofabric.integrations.asgi import FabricServer
from aiofabric.integrations.httpcore import FabricBackend, FabricHTTPTransport
from aiofabric.streams import listen_stream
from tests.fixtures.certificates import NAME, Tls

if TYPE_CHECKING:
    import httpcore

pytestmark = pytest.mark.asyncio

LARGE = 8 * 1024 * 1024 + 1


class App:
    """Echoes bodies; remembers how many requests each connection brought; ``/never`` does not answer."""

    def __init__(self) -> None:
        self.requests: Counter[Any] = Counter()

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        self.requests[tuple(scope["client"])] += 1
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        if scope["path"] == "/never":
            await receive()  # until the client is gone
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(body) or b"empty"})


@asynccontextmanager
async def serving(app: App, tls: Tls | None = None) -> AsyncIterator[str]:
    # log_config: uvicorn's own would close pytest's handlers
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
    if tls is not None:
        config.load()
        config.ssl = tls.server
    server = FabricServer(config, provider="tcp")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        await server.wait_started()
        assert server.address is not None
        host, port = server.address
        try:
            yield f"{'https' if tls else 'http'}://{host}:{port}"
        finally:
            server.should_exit = True


def client(**options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=FabricHTTPTransport(provider="tcp", **options), timeout=20)


async def test_ten_requests_use_one_connection() -> None:
    app = App()
    async with serving(app) as url, client() as http:
        for number in range(10):
            assert (await http.post(url, content=b"%d" % number)).text == str(number)
    assert list(app.requests.values()) == [10]


async def test_a_connection_that_the_server_ended_is_not_used_again() -> None:
    app = App()
    async with client() as http:
        async with serving(app) as url:
            assert (await http.get(url)).text == "empty"
            port = int(url.rpartition(":")[2])
        pool: httpcore.AsyncConnectionPool = http._transport._pool  # type: ignore[attr-defined]
        (connection,) = pool.connections
        with anyio.fail_after(5):
            while not connection.has_expired():
                await anyio.lowlevel.checkpoint()
        with pytest.raises(httpx.ConnectError):  # a new connection was tried
            await http.get(f"http://127.0.0.1:{port}")


async def test_a_hundred_concurrent_requests() -> None:
    app = App()
    async with serving(app) as url, client() as http:
        answers = await asyncio.gather(*(http.post(url, content=b"%d" % number) for number in range(100)))
    assert [answer.text for answer in answers] == [str(number) for number in range(100)]
    assert app.requests.total() == 100


async def test_large_bodies_both_ways() -> None:
    body = bytes(range(256)) * (LARGE // 256) + b"!"
    async with serving(App()) as url, client() as http:
        assert (await http.post(url, content=body)).content == body


async def test_an_answer_that_does_not_come_is_a_read_timeout() -> None:
    async with serving(App()) as url, client() as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"{url}/never", timeout=0.05)
        assert (await http.get(url)).text == "empty"


async def test_nobody_listening_is_a_connect_error() -> None:
    async with serving(App()) as url:
        pass
    async with client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)


async def test_a_peer_that_leaves_without_an_answer_is_a_protocol_error() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await aio.start_server(leave, "127.0.0.1", 0, provider="tcp")
    host, port = server.sockets[0].getsockname() or ("", 0)
    async with client() as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(f"http://{host}:{port}")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("what", ["client_addr", "server_addr"])
async def test_httpcore_learns_the_addresses(what: str) -> None:
    async with listen_stream("127.0.0.1", 0, provider="tcp") as listener:
        accepting = asyncio.create_task(listener.accept())
        stream = await FabricBackend(provider="tcp").connect_tcp("127.0.0.1", listener.address.port or 0)
        async with await accepting:
            assert stream.get_extra_info(what)[0] == "127.0.0.1"
            assert not stream.get_extra_info("is_readable")
            await stream.aclose()


async def test_httpx_speaks_tls_over_a_fabric(tls: Tls) -> None:
    app = App()
    async with serving(app, tls=tls) as url, client(verify=tls.client) as http:
        for number in range(3):
            answer = await http.post(url, content=b"%d" % number, extensions={"sni_hostname": NAME})
            assert answer.text == str(number)
    assert list(app.requests.values()) == [3]
