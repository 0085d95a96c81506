"""ASGI applications over a fabric, under uvicorn (``pip install '.[http]'``).

    FabricServer(uvicorn.Config(app, host="10.0.0.1", port=8000)).run()

On the command line: ``aiofabric serve module:app``. :mod:`aiofabric.integrations.hypercorn` does the same with
Hypercorn.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from aiofabric.aio import create_server

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import FrameType

    from aiofabric.domain import Domain

__all__ = ["FabricServer"]


class FabricServer(uvicorn.Server):
    """uvicorn's server at a fabric address: the host and port of its ``Config``.

    ``provider`` and ``domain`` are those of :func:`aiofabric.aio.create_server`. It serves in one process: uvicorn's
    ``workers`` and ``reload``, and listening on a descriptor or a path, need a kernel socket.
    """

    def __init__(self, config: uvicorn.Config, *, provider: str | None = None, domain: Domain | None = None) -> None:
        super().__init__(config)
        self._provider = provider
        self._domain = domain
        self._address: tuple[str, int] | None = None
        self._decided = asyncio.Event()  # set when it listens, or has failed
        self._failure: BaseException | None = None
        self._abort: Callable[[], object] | None = None  # the connections, in the loop's next turn

    @property
    def address(self) -> tuple[str, int] | None:
        """The listening address, once ``started``; the port is the chosen one if 0 was asked for."""
        return self._address

    async def wait_started(self) -> None:
        """Wait until it listens. Raises: RuntimeError, with the reason as its cause, if :meth:`serve` ended before."""
        await self._decided.wait()
        if not self.started:
            raise RuntimeError("the server ended before it listened; the cause has the reason") from self._failure

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until ``should_exit``, SIGINT or SIGTERM, then end in order. ``sockets`` are ignored.

        A second SIGINT drops the requests under way.

        Raises: FabricError, NoProviderError.
        """
        try:
            await super().serve(sockets)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._decided.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen. uvicorn calls this."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        try:
            server = await create_server(
                self._protocol,
                self.config.host,
                self.config.port,
                provider=self._provider,
                domain=self._domain,
                ssl=self.config.ssl,
            )
        except BaseException:
            await self.lifespan.shutdown()
            raise
        self._abort = partial(asyncio.get_running_loop().call_soon_threadsafe, server.abort_clients)
        self.servers = [server]  # type: ignore[list-item]  # uvicorn wants asyncio.Server, but uses only its methods
        self._address = server.sockets[0].getsockname()
        self.started = True
        self._decided.set()
        logging.getLogger("uvicorn.error").info(
            "Listening at %s:%s over a fabric. Clients need aiofabric: curl and browsers get no answer",
            *self._address or (None, None),
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A handler of signals, which uvicorn installs."""
        super().handle_exit(sig, frame)
        if self.force_exit and self._abort is not None:
            self._abort()  # uvicorn would wait for their end

    def _protocol(self) -> asyncio.Protocol:
        protocol_class = self.config.http_protocol_class
        return protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
