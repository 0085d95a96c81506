"""httpx over the byte streams themselves, on every loop: both ends are aiofabric's."""

import anyio
import httpx
import pytest

from aiofabric.integrations.httpcore import FabricHTTPTransport
from aiofabric.streams import FabricStream, listen_stream


@pytest.mark.anyio
async def test_ten_requests_use_one_connection() -> None:
    connections = []

    async def answer(stream: FabricStream) -> None:
        connections.append(stream)
        async with stream:
            async for request in stream:
                assert request.endswith(b"\r\n\r\n")
                await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK")

    async with listen_stream("127.0.0.1", 0, provider="tcp") as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.serve, answer)
        async with httpx.AsyncClient(transport=FabricHTTPTransport(provider="tcp")) as client:
            for _ in range(10):
                assert (await client.get(f"http://127.0.0.1:{listener.address.port}")).text == "OK"
        tg.cancel_scope.cancel()
    assert len(connections) == 1
