"""A web application, and the two servers that run it."""

# Privates: hypercorn's server does not show its listener.

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import hypercorn
import uvicorn

from aiofabric.integrations import hypercorn as ours_hypercorn
from aiofabric.integrations import uvicorn as ours_uvicorn

SERVERS = ["uvicorn", "hypercorn"]


class App:
    """Echoes bodies; remembers how many requests each connection brought, and its lifespan.

    ``/never`` does not answer and ends with its client; ``/late`` answers when ``answer`` is set.
    ``left`` is set when a client has gone before its answer.
    """

    def __init__(self, *, refuses_to_start: bool = False) -> None:
        self.requests: Counter[Any] = Counter()
        self.lifespan: list[str] = []
        self.asked, self.answer, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._refuses_to_start = refuses_to_start

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        assert scope["state"] == {"started": True}
        self.requests[tuple(scope["client"])] += 1
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            body += message["body"]
            more = message["more_body"]
        self.asked.set()
        if scope["path"] == "/never":
            await receive()  # until the client is gone
            self.left.set()
            return
        if scope["path"] == "/late":
            await self.answer.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"version", scope["http_version"].encode())]}
        )
        await send({"type": "http.response.body", "body": bytes(body) or b"empty"})

    async def _live(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        for event in ("startup", "shutdown"):
            message = await receive()
            assert message["type"] == f"lifespan.{event}"
            self.lifespan.append(event)
            scope["state"]["started"] = True
            if self._refuses_to_start:
                await send({"type": "lifespan.startup.failed", "message": "not today"})
                return
            await send({"type": f"lifespan.{event}.complete"})


class Running:
    """A server that listens, until ``stop`` is called."""

    def __init__(self, server: Any, stop: Callable[[], object], scheme: str) -> None:
        host, port = server.address
        self.port = port
        self.url = f"{scheme}://{host}:{port}"
        self.stop = stop
        self._listener: Any = server.servers[0] if isinstance(server, uvicorn.Server) else server._server

    @property
    def listens(self) -> bool:
        return bool(self._listener.sockets)


def make(
    kind: str, app: App, provider: str, *, host: str = "127.0.0.1", grace: float = 20, tls: ssl.SSLContext | None = None
) -> tuple[Any, Callable[[], Awaitable[None]], Callable[[], object]]:
    """The server ``kind`` for ``app``; what runs it; and what stops it."""
    if kind == "hypercorn":
        stop = asyncio.Event()
        settings = _TlsConfig if tls else hypercorn.Config
        config = settings.from_mapping(bind=f"{host}:0", graceful_timeout=grace, errorlog=None)
        config.given = tls  # type: ignore[attr-defined]
        server = ours_hypercorn.FabricServer(app, config, provider=provider)
        return server, lambda: server.serve(shutdown_trigger=stop.wait), stop.set
    # log_config: uvicorn's own would close pytest's handlers
    given = uvicorn.Config(app, host=host, port=0, log_config=None, ws="none", timeout_graceful_shutdown=grace)  # type: ignore[arg-type]  # fractions do
    given.load()
    if tls is not None:
        tls.set_alpn_protocols(["http/1.1"])
    given.ssl = tls
    under_uvicorn = ours_uvicorn.FabricServer(given, provider=provider)
    return under_uvicorn, under_uvicorn.serve, lambda: setattr(under_uvicorn, "should_exit", True)


class _TlsConfig(hypercorn.Config):
    """With a context instead of files."""

    given: ssl.SSLContext

    def create_ssl_context(self) -> ssl.SSLContext:
        self.given.set_alpn_protocols(self.alpn_protocols)
        return self.given


@asynccontextmanager
async def serving(kind: str, app: App, provider: str, **options: Any) -> AsyncIterator[Running]:
    """The application, served until the block is left."""
    server, run, stop = make(kind, app, provider, **options)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())  # type: ignore[arg-type]  # both are coroutines
        await server.wait_started()
        try:
            yield Running(server, stop, "https" if options.get("tls") else "http")
        finally:
            stop()
