"""FabricListener: accepted connections as streams, with anyio's interface."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from anyio.abc import Listener as AnyListener

from aiofabric.arguments import check_type
from aiofabric.channel.connect import HELLO, accept_channel
from aiofabric.cm.acceptor import Acceptor
from aiofabric.cm.listener import Listener
from aiofabric.streams.attributes import address_attributes
from aiofabric.streams.byte import FabricStream
from aiofabric.streams.message import MAX_MESSAGE_SIZE, MessageStream, message_hello
from aiofabric.transport.connect import listen
from aiofabric.transport.opening.keywords import stream_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import Unpack

    from anyio.abc import TaskGroup

    from aiofabric.address import Address
    from aiofabric.channel.endpoint import EndpointChannel
    from aiofabric.channel.frames import Hello
    from aiofabric.cm.requests import ConnectionRequest
    from aiofabric.domain import Domain
    from aiofabric.transport.opening.keywords import StreamKeywords

__all__ = ["FabricListener", "listen_messages", "listen_stream"]

T_Stream = TypeVar("T_Stream")


class FabricListener(AnyListener[T_Stream], Generic[T_Stream]):
    """Accepts streams. Works in anyio's MultiListener and TLSListener.

    Entered from :func:`listen_stream` or :func:`listen_messages`. Closing it leaves the accepted streams open.
    """

    def __init__(self, listener: Listener, hello: Hello, make_stream: Callable[[EndpointChannel], T_Stream]) -> None:
        check_type("listener", listener, Listener)
        self._listener = listener
        self._requests = Acceptor(listener)
        self._hello = hello
        self._make_stream = make_stream
        self._accepting = anyio.ResourceGuard("accepting connections from")
        self._address = listener.address
        self._info = listener.info

    @property
    def address(self) -> Address:
        """The listening address; ``address.port`` is the chosen port if 0 was asked for."""
        return self._address

    async def accept(self) -> T_Stream:
        """The next stream. A client with another protocol is rejected; one that has left is skipped. A request that
        cannot be accepted (EMFILE) is rejected and logged, and the next one is taken a moment later.

        Cancelling loses no request, except one whose acceptance has begun.

        Raises: ClosedResourceError, BusyResourceError.
        """
        with self._accepting:
            while True:
                stream = await self._handshake(await self._requests.next_request())
                if stream is not None:
                    return stream

    async def serve(self, handler: Callable[[T_Stream], Any], task_group: TaskGroup | None = None) -> None:
        """Run ``handler`` in a task of its own for each stream, until cancelled or closed.

        A client that is slow to connect does not delay others, and a request that cannot be accepted ends nothing. The
        handler must close its stream.

        Args:
            handler: a coroutine function, called with the stream.
            task_group: the task group of the tasks; by default a group that lives as long as this call.

        Raises: ClosedResourceError, BusyResourceError; without ``task_group`` in an ExceptionGroup, like anyio's.
        """

        async def begin(request: ConnectionRequest) -> None:
            stream = await self._handshake(request)
            if stream is not None:
                await handler(stream)

        async with AsyncExitStack() as stack:
            if task_group is None:
                task_group = await stack.enter_async_context(anyio.create_task_group())
            with self._accepting:
                while True:
                    task_group.start_soon(begin, await self._requests.next_request())

    async def _handshake(self, request: ConnectionRequest) -> T_Stream | None:
        channel = await self._requests.accept(request, partial(accept_channel, request, hello=self._hello))
        return None if channel is None else self._make_stream(channel)

    async def aclose(self) -> None:
        """Stop listening; requests that wait to be accepted are rejected."""
        await self._listener.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return address_attributes(self._info, self._address)


@asynccontextmanager
async def listen_stream(
    local_host: str | Address | None = None,
    local_port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    backlog: int = 128,
    interface: str | None = None,
    **options: Unpack[StreamKeywords],
) -> AsyncIterator[FabricListener[FabricStream]]:
    """Listen for streams: ``async with listen_stream(host, port) as listener``.

    Args:
        local_host: the local address; None for all addresses.
        local_port: port number or service name; 0 or None for a free port (``listener.address.port``).
        provider: by name; by default the first that offers connections at this address.
        domain: open the accepted streams on this domain.
        backlog: number of requests that may wait to be accepted; further requests are rejected.
        interface: listen at this network interface (``"eth0"``) or device; by default at ``local_host``.
        options: of the accepted streams: ``heartbeat``, ``close_timeout``, ``waiting``, ``busy_poll``, ``cancel_grace``
            and ``prepare``, as for `aiofabric.listen`.

    Raises: OSError (the address is in use, or is not an address of this machine), NoProviderError.
    """
    chosen = stream_options("listen_stream", options)
    async with listen(
        local_host, local_port, provider=provider, domain=domain, backlog=backlog, interface=interface, **chosen
    ) as listener:
        yield FabricListener(listener, HELLO, FabricStream)


@asynccontextmanager
async def listen_messages(
    local_host: str | Address | None = None,
    local_port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    backlog: int = 128,
    packing: bool = True,
    max_message_size: int = MAX_MESSAGE_SIZE,
    interface: str | None = None,
    **options: Unpack[StreamKeywords],
) -> AsyncIterator[FabricListener[MessageStream]]:
    """Listen for :func:`connect_messages`; arguments as for :func:`listen_stream`, and:

    Args:
        packing: let small messages share a frame, if the client also wants it.
        max_message_size: bytes of the longest message to receive; a peer is told.
    """
    hello = message_hello(packing=packing, max_message_size=max_message_size)
    chosen = stream_options("listen_messages", options)
    async with listen(
        local_host, local_port, provider=provider, domain=domain, backlog=backlog, interface=interface, **chosen
    ) as listener:
        yield FabricListener(listener, hello, MessageStream)
