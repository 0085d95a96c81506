"""serve_streams: a server of Arrow's Dissociated IPC protocol."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from aiofabric import listen

from .connection import MOST_HELLO, check_options
from .exposed import can_expose
from .serving import ServedStream, ServingOptions, new_tags
from .uri import StreamUri, check_host, ticket_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiofabric import Address, ConnectionRequest, Domain, Listener

    from .serving import FindStream

__all__ = ["StreamServer", "serve_streams"]

MOST_WINDOW: Final = 128

_log = logging.getLogger("aiofabric.integrations.arrow")


class StreamServer:
    """A server that listens; see `serve_streams`."""

    def __init__(self, listener: Listener, find: FindStream, options: ServingOptions, max_clients: int) -> None:
        self._listener = listener
        self._find = find
        self._options = options
        self._max_clients = max_clients
        self._clients = 0

    @property
    def address(self) -> Address:
        """Where it listens; ``address.port`` is the chosen port if 0 was asked for."""
        return self._listener.address

    @property
    def clients(self) -> int:
        """How many clients are connected now."""
        return self._clients

    def uri(self, ticket: bytes | str = b"", *, host: str | None = None) -> str:
        """The URI of the stream that ``ticket`` names: pass it to `open_stream`.

        ``host``: where clients reach this server, without a port; needed if it listens at all addresses.

        Raises:
            TypeError, ValueError: a ticket is bytes or a str, of at most 4,096 bytes; or ``host`` is needed, or wrong.
        """
        options, address = self._options, self.address
        if host is not None:
            check_host(host)
        host = host or address.host
        if host in (None, "0.0.0.0", "::"):
            raise ValueError("this server listens at all addresses: pass the one that clients reach it at, host=")
        shows = options.expose
        return str(
            StreamUri(
                host,
                address.port or 0,
                ticket_of(ticket),
                options.want_data,
                options.free_data if shows else None,
                options.handle if shows else None,
            )
        )

    async def _serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for request in self._listener:
                if self._clients >= self._max_clients:
                    with suppress(OSError, anyio.ClosedResourceError):  # the client has left
                        request.reject(param=b"this server has as many clients as it takes")
                    continue
                self._clients += 1
                tasks.start_soon(self._accept, request)

    async def _accept(self, request: ConnectionRequest) -> None:
        try:
            try:
                connection = await request.accept()
            except (OSError, anyio.ClosedResourceError) as error:
                _log.info("no connection with %s: %s", request.address, error)
                return
            await ServedStream(connection, self._find, self._options).run()
        finally:
            self._clients -= 1


@asynccontextmanager
async def serve_streams(
    find: FindStream,
    host: str | Address | None = None,
    port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    window: int = 16,
    max_shown_bytes: int = 256 << 20,
    max_clients: int = 64,
    max_chunksize: int | None = None,
    compression: str | None = None,
    expose: bool = True,
    failure_timeout: float = 60.0,
    **options: Any,
) -> AsyncIterator[StreamServer]:
    """Serve streams of record batches: ``async with serve_streams(find, host, port) as server``.

    Args:
        find: a plain or an async function. It gets a ticket, which is the path of a URI, as bytes. It returns what is
            streamed: a table, a record batch, a reader, or an iterable or async iterable of record batches. If it
            raises, or the batches do, the client gets all that was sent before, then its connection ends.
        host, port: where to listen, as for `aiofabric.listen`; port 0 or None is a free one.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        domain: open the connections on this domain.
        window: messages that may be sent to a client that has not taken them, 1 to 128.
        max_shown_bytes: bytes of buffers that one client may read at the same time. A larger batch goes alone.
        max_clients: further clients are rejected.
        max_chunksize: rows of a batch at most, if a table is streamed.
        compression: of the bodies, ``"lz4"`` or ``"zstd"``. pyarrow then makes new buffers.
        expose: let clients read the buffers of the batches out of this process (RMA). False: bodies are sent as tagged
            messages, and a batch of more buffers than ``tx_attr.iov_limit`` is copied once. They are sent, too, if the
            provider chooses the keys of memory (verbs, EFA).
        failure_timeout: seconds for a client whose stream has failed: it can take what was sent before. They begin
            again with each message that it takes.
        options: of the accepted connections, such as ``heartbeat=``; see `EndpointOptions`.

    The buffers of a batch must not change until the client has freed them or has left: the batch is kept until then.
    Leaving the block ends all streams: each client has 2 seconds to end the read that it has begun.

    A client that breaks the protocol loses its connection, and no other. Each client holds at most ``max_shown_bytes``
    or one batch, and ``window`` messages. A client can read only memory that is shown to its own connection; shm does
    not enforce that.

    Raises:
        ValueError, TypeError: a wrong value. Also: what `aiofabric.listen` raises.
    """
    if not callable(find):
        raise TypeError(f"find must be a function that gets a ticket, not {find!r}")
    for name, value, most in (
        ("window", window, MOST_WINDOW),
        ("max_shown_bytes", max_shown_bytes, 1 << 62),
        ("max_clients", max_clients, 1 << 31),
        ("max_chunksize", 1 if max_chunksize is None else max_chunksize, 1 << 62),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be a number, not {value!r}")
        if not 1 <= value <= most:
            raise ValueError(f"{name} must be 1 to {most}, not {value}")
    if compression not in (None, "lz4", "zstd"):
        raise ValueError(f"compression must be 'lz4', 'zstd' or None, not {compression!r}")
    if isinstance(failure_timeout, bool) or not isinstance(failure_timeout, int | float):
        raise TypeError(f"failure_timeout must be a number of seconds, not {failure_timeout!r}")
    if not failure_timeout >= 0:
        raise ValueError(f"failure_timeout must be at least 0 seconds, not {failure_timeout}")
    check_options("serve_streams", options)
    async with listen(
        host, port, provider=provider, domain=domain, recv_size=MOST_HELLO, recv_count=MOST_WINDOW, **options
    ) as listener:
        exposes = expose and can_expose(listener.info)
        common = ServingOptions(
            *new_tags(), window, max_shown_bytes, max_chunksize, compression, exposes, failure_timeout
        )
        server = StreamServer(listener, find, common, max_clients)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server._serve)
                try:
                    yield server
                finally:
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only(group) from None


def _only(error: BaseException) -> BaseException:
    """The one error of a group; the group if it has several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
