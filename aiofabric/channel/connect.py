"""Byte channels from connections: the exchange of hellos in the private data of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiofabric.channel.endpoint import EndpointChannel
from aiofabric.channel.frames import FRAME_COST, HEADER_SIZE, Hello
from aiofabric.errors import FabricConnectionAbortedError
from aiofabric.transport.connect import connect

if TYPE_CHECKING:
    from aiofabric.address import Address
    from aiofabric.cm.requests import ConnectionRequest
    from aiofabric.domain import Domain

__all__ = ["HELLO", "accept_channel", "connect_channel"]

RECV_COUNT: Final = 16
"""Receive buffers of a connection: 1 MiB, of which an idle one has touched nothing."""

_PAYLOAD: Final = 65536

HELLO = Hello(recv_size=HEADER_SIZE + _PAYLOAD, window=RECV_COUNT * (_PAYLOAD + FRAME_COST))
"""A frame holds what ``receive()`` returns by default, and a slow reader keeps as many as there are buffers."""


async def connect_channel(
    node: str | Address | None,
    service: str | int | None,
    *,
    hello: Hello = HELLO,
    provider: str | None = None,
    domain: Domain | None = None,
) -> EndpointChannel:
    """Connect to a listener whose side calls :func:`accept_channel`.

    Cancelling closes what was begun. Raises: as `aiofabric.connect`; FabricConnectionAbortedError when the
    other side is no byte channel, or one of another kind.
    """
    endpoint = await connect(
        node,
        service,
        provider=provider,
        domain=domain,
        param=hello.pack(),
        recv_size=hello.recv_size,
        recv_count=RECV_COUNT,
    )
    try:
        return EndpointChannel(endpoint, hello, Hello.unpack(endpoint.param, kind=hello.kind))
    except BaseException:
        endpoint.abort()
        raise


async def accept_channel(request: ConnectionRequest, *, hello: Hello = HELLO) -> EndpointChannel:
    """Accept a request of :func:`connect_channel`; one that comes from something else is rejected.

    Cancelling closes the connection. Raises: FabricConnectionAbortedError when the request was rejected, with
    the reason that its sender was given, or when its sender went away.
    """
    try:
        theirs = Hello.unpack(request.param, kind=hello.kind)
    except FabricConnectionAbortedError as error:
        request.reject(param=error.detail.encode())
        raise
    endpoint = await request.accept(param=hello.pack(), recv_size=hello.recv_size, recv_count=RECV_COUNT)
    return EndpointChannel(endpoint, hello, theirs)
