"""Serve a web application with Hypercorn over a fabric instead of TCP sockets, and send requests with httpx.

For uvicorn see aiofabric.integrations.uvicorn. On the command line, ``aiofabric serve`` runs either of them.
"""

import asyncio
from typing import Any

import httpx
from hypercorn import Config

from aiofabric.integrations.httpcore import FabricHTTPTransport
from aiofabric.integrations.hypercorn import FabricServer

clients: set[tuple[str, int]] = set()  # host and port of each client


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Any ASGI application works: FastAPI, Starlette, Django."""
    if scope["type"] == "lifespan":
        return
    clients.add(tuple(scope["client"]))
    name = scope["path"].removeprefix("/").replace("-", " ")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"hello, {name}".encode()})


async def main() -> None:
    server = FabricServer(app, Config.from_mapping(bind="127.0.0.1:0", loglevel="WARNING"))
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve())
        await server.wait_started()
        assert server.address is not None
        host, port = server.address
        async with httpx.AsyncClient(transport=FabricHTTPTransport()) as client:
            for number in range(10):
                response = await client.get(f"http://{host}:{port}/request-{number}")
                print(response.status_code, response.text)
        print(f"{len(clients)} connection")
        serving.cancel()  # ends the server in order


if __name__ == "__main__":
    asyncio.run(main())
