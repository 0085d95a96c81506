"""httpx over the byte streams, on every loop: both ends are aiofabric's."""

# Privates: httpx does not show the pool of a transport.

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpx
import pytest

from aiofabric.integrations.httpcore import FabricHTTPTransport
from aiofabric.streams import FabricStream, listen_stream

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK"
LARGE = 4 * 1024 * 1024 + 1


@asynccontextmanager
async def serving(answer: Callable[[FabricStream], Awaitable[object]], provider: str) -> AsyncIterator[str]:
    """The URL at which ``answer`` handles every connection."""
    async with listen_stream("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.address.port}"
        tg.cancel_scope.cancel()


def client(provider: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=FabricHTTPTransport(provider=provider), timeout=20)


async def test_ten_requests_use_one_connection(carrier: str) -> None:
    connections = []

    async def answer(stream: FabricStream) -> None:
        connections.append(stream)
        async with stream:
            async for request in stream:
                assert request.endswith(b"\r\n\r\n")
                await stream.send(OK)

    async with serving(answer, carrier) as url, client(carrier) as http:
        for _ in range(10):
            assert (await http.get(url)).text == "OK"
    assert len(connections) == 1


async def test_a_connection_that_ended_while_it_was_idle_is_not_used_again(carrier: str) -> None:
    connections = []

    async def answer(stream: FabricStream) -> None:
        connections.append(stream)
        async with stream:
            await stream.receive()
            await stream.send(OK)

    async with serving(answer, carrier) as url, client(carrier) as http:
        for number in range(3):
            assert (await http.get(url)).text == "OK"
            pool = http._transport._pool  # type: ignore[attr-defined]
            with anyio.fail_after(5):
                while not all(each.has_expired() for each in pool.connections):
                    await anyio.lowlevel.checkpoint()
            assert len(connections) == number + 1


async def test_large_bodies_both_ways(carrier: str) -> None:
    body = bytes(range(256)) * (LARGE // 256) + b"!"

    async def answer(stream: FabricStream) -> None:
        async with stream:
            received = b""
            while not received.endswith(body):
                received += await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
            await stream.send(body)

    async with serving(answer, carrier) as url, client(carrier) as http:
        assert (await http.post(url, content=body)).content == body


async def test_a_deadline_and_a_cancel_end_the_connection_of_their_request(carrier: str) -> None:
    asked, ended = anyio.Event(), []

    async def answer(stream: FabricStream) -> None:
        async with stream:
            async for request in stream:  # never answers
                if b"/cancel" in request:
                    asked.set()
        ended.append(stream)

    async with serving(answer, carrier) as url, client(carrier) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(url, timeout=httpx.Timeout(20, read=0.05))
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tg:
                tg.start_soon(http.get, f"{url}/cancel")
                await asked.wait()
                tg.cancel_scope.cancel()
            while len(ended) < 2:
                await anyio.lowlevel.checkpoint()
