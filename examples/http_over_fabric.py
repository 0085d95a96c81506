"""httpx talks to a web application under uvicorn, with a fabric where the TCP sockets would be."""

import asyncio
from typing import Any

import httpx
import uvicorn

from aiofabric.integrations.httpcore import FabricHTTPTransport
from aiofabric.integrations.uvicorn import FabricServer

clients: set[tuple[str, int]] = set()  # host and port of everyone who asked


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Any ASGI application would do: FastAPI, Starlette, Django."""
    clients.add(tuple(scope["client"]))
    name = scope["path"].removeprefix("/").replace("-", " ")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"hello, {name}".encode()})


async def main() -> None:
    server = FabricServer(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await server.wait_started()
    assert server.address is not None
    host, port = server.address
    async with httpx.AsyncClient(transport=FabricHTTPTransport()) as client:
        for number in range(10):
            response = await client.get(f"http://{host}:{port}/request-{number}")
            print(response.status_code, response.text)
    print(f"{len(clients)} connection")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
