"""ASGI applications over a fabric, under Hypercorn: HTTP/1.1 and HTTP/2 (``pip install '.[http]'``).

    config = hypercorn.Config.from_mapping(bind="10.0.0.1:8000")
    await FabricServer(app, config).serve()

On the command line: ``aiofabric serve --server hypercorn module:app``.

Hypercorn's own worker opens its listeners itself, without a way to replace them. So this module is another worker, made
of the same parts: the application's lifespan, and a handler for each connection with a StreamReader and a StreamWriter.
Hypercorn documents neither; a test checks that the used parts exist.
"""

from __future__ import annotations

import asyncio
from random import randint
from typing import TYPE_CHECKING, Any, cast

import anyio
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.utils import wrap_app

from aiofabric.aio import start_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn import Config
    from hypercorn.typing import Framework

    from aiofabric.aio import Server
    from aiofabric.domain import Domain

__all__ = ["FabricServer"]


class FabricServer:
    """Hypercorn's server at a fabric address: the one ``bind`` of its ``Config``, a host and a port.

    ``app`` is any ASGI application, or a WSGI one. ``provider`` and ``domain`` are those of
    :func:`aiofabric.aio.create_server`. With a certificate in the ``Config`` it uses TLS. Without one, only clients
    that know in advance that the server has HTTP/2 can use HTTP/2. It serves in one process: Hypercorn's ``workers``
    and ``use_reloader``, and listening on a descriptor, a path or QUIC, need a kernel socket.

    Raises: ValueError (``bind`` is not one host and port).
    """

    def __init__(
        self, app: Callable[..., Any], config: Config, *, provider: str | None = None, domain: Domain | None = None
    ) -> None:
        self._app = wrap_app(cast("Framework", app), config.wsgi_max_body_size, None)
        self._config = config
        self._host, self._port = _host_and_port(config)
        self._provider = provider
        self._domain = domain
        self._server: Server | None = None
        self._address: tuple[str, int] | None = None
        self._decided = asyncio.Event()  # set when it listens, or has failed
        self._failure: BaseException | None = None

    @property
    def started(self) -> bool:
        """Whether it listens, or has listened."""
        return self._server is not None

    @property
    def address(self) -> tuple[str, int] | None:
        """The listening address, once ``started``; the port is the chosen one if 0 was asked for."""
        return self._address

    async def wait_started(self) -> None:
        """Wait until it listens. Raises: RuntimeError, with the reason as its cause, if :meth:`serve` ended before."""
        await self._decided.wait()
        if not self.started:
            raise RuntimeError("the server ended before it listened; the cause has the reason") from self._failure

    async def serve(self, *, shutdown_trigger: Callable[[], Awaitable[object]] | None = None) -> None:
        """Start the application and serve until ``shutdown_trigger`` returns or this is cancelled.

        Either one ends it in order: no new connections are accepted, requests in progress get ``graceful_timeout``
        seconds (``Config``), then the application's lifespan ends.

        Raises: FabricError, NoProviderError; Hypercorn's LifespanFailureError and LifespanTimeoutError.
        """
        try:
            await self._live(shutdown_trigger)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._decided.set()

    async def _live(self, shutdown_trigger: Callable[[], Awaitable[object]] | None) -> None:
        state: dict[str, Any] = {}
        lifespan = Lifespan(self._app, self._config, asyncio.get_running_loop(), state)
        application = asyncio.create_task(lifespan.handle_lifespan())
        try:
            await lifespan.wait_for_startup()
            if application.done():
                application.result()  # raises if the application refuses to start; it may also not support lifespans
            try:
                await self._serve(state, shutdown_trigger)
            finally:
                with anyio.CancelScope(shield=True):
                    await lifespan.wait_for_shutdown()
        finally:
            application.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([application])
        if not application.cancelled():
            application.result()

    async def _serve(self, state: dict[str, Any], shutdown_trigger: Callable[[], Awaitable[object]] | None) -> None:
        config, loop = self._config, asyncio.get_running_loop()
        limit = config.max_requests
        context = WorkerContext(None if limit is None else limit + randint(0, config.max_requests_jitter))
        handlers: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await TCPServer(self._app, loop, config, context, state, reader, writer)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = loop.create_task(handle(reader, writer))
            handlers.add(task)
            task.add_done_callback(handlers.discard)

        ssl = config.create_ssl_context()
        server = self._server = await start_server(
            connected,
            self._host,
            self._port,
            provider=self._provider,
            domain=self._domain,
            ssl=ssl,
            ssl_handshake_timeout=config.ssl_handshake_timeout if ssl else None,
        )
        self._address = server.sockets[0].getsockname()
        self._decided.set()
        # The first future completes once max_requests were served.
        reasons: list[asyncio.Future[Any]] = [asyncio.ensure_future(context.terminate.wait())]
        if shutdown_trigger is not None:
            reasons.append(asyncio.ensure_future(shutdown_trigger()))
        try:
            await config.log.info(
                "Listening at %s:%s over a fabric. Clients need aiofabric: curl and browsers get no answer",
                *self._address or (None, None),
            )
            ended, _ = await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            for reason in ended:
                reason.result()
        finally:
            for reason in reasons:
                reason.cancel()
            with anyio.CancelScope(shield=True):
                server.close()
                await context.terminated.set()  # ends idle connections
                if handlers:
                    await asyncio.wait(handlers, timeout=config.graceful_timeout)
                server.abort_clients()
                for handler in handlers:
                    handler.cancel()
                await server.wait_closed()


def _host_and_port(config: Config) -> tuple[str, int]:
    match config.bind:
        case [bind] if not config.quic_bind and not config.insecure_bind:
            host, _, port = bind.rpartition(":")
            if port.isdecimal() and not host.startswith("unix") and "/" not in host:
                return host.strip("[]"), int(port)
    raise ValueError(f"a fabric server listens at one host:port, not at {config.bind}")
