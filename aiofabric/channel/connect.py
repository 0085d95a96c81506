"""Byte channels over connections: both sides exchange hellos in the private data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiofabric.channel.endpoint import EndpointChannel
from aiofabric.channel.frames import FRAME_COST, HEADER_SIZE, Hello
from aiofabric.errors import FabricConnectionAbortedError
from aiofabric.transport.connect import connect

if TYPE_CHECKING:
    from typing import Unpack

    from aiofabric.address import Address
    from aiofabric.cm.requests import ConnectionRequest
    from aiofabric.domain import Domain
    from aiofabric.transport.opening.keywords import StreamKeywords

__all__ = ["HELLO", "accept_channel", "connect_channel"]

RECV_COUNT: Final = 8
"""Receive buffers of a connection: 4 MiB of virtual memory; an idle connection has used no page of it."""

# 1 MiB messages of a stream, as a part of the endpoint's bandwidth: 0.5 with receives of 64 KiB, 0.6 with 256, and 0.9
# with these (medians on a machine with other load). Four frames may be under way: one is read while the next ones
# arrive.
_PAYLOAD: Final = 512 << 10
_FRAMES: Final = 4

HELLO = Hello(recv_size=HEADER_SIZE + _PAYLOAD, window=_FRAMES * (_PAYLOAD + FRAME_COST))
"""The window is half of all buffers: a slow reader keeps 2 MiB at most, and small frames find a posted receive."""


async def connect_channel(
    node: str | Address | None,
    service: str | int | None,
    *,
    hello: Hello = HELLO,
    provider: str | None = None,
    domain: Domain | None = None,
    interface: str | None = None,
    **options: Unpack[StreamKeywords],
) -> EndpointChannel:
    """Connect to a listener whose side calls :func:`accept_channel`.

    Cancelling closes the incomplete connection. Raises: like `aiofabric.connect`; FabricConnectionAbortedError if the
    other side is not a byte channel, or one of another kind.
    """
    endpoint = await connect(
        node,
        service,
        provider=provider,
        domain=domain,
        interface=interface,
        param=hello.pack(),
        recv_size=hello.recv_size,
        recv_count=RECV_COUNT,
        **options,
    )
    try:
        return EndpointChannel(endpoint, hello, Hello.unpack(endpoint.param, kind=hello.kind))
    except BaseException:
        endpoint.abort()
        raise


async def accept_channel(request: ConnectionRequest, *, hello: Hello = HELLO) -> EndpointChannel:
    """Accept a request of :func:`connect_channel`; a request of another kind is rejected.

    Cancelling closes the connection. Raises: FabricConnectionAbortedError if the request was rejected, with the reason
    that was sent to its sender, or if the sender went away.
    """
    try:
        theirs = Hello.unpack(request.param, kind=hello.kind)
    except FabricConnectionAbortedError as error:
        try:
            request.reject(param=error.detail.encode())
        except ValueError:  # the provider carries less private data: verbs 55 bytes
            request.reject()
        raise
    endpoint = await request.accept(param=hello.pack(), recv_size=hello.recv_size, recv_count=RECV_COUNT)
    return EndpointChannel(endpoint, hello, theirs)
