"""connect_stream and connect_messages, and connect_stream as anyio's Connectable."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from anyio import ConnectionFailed
from anyio.abc import ByteStreamConnectable

from aiofabric.channel.connect import connect_channel
from aiofabric.streams.byte import FabricStream
from aiofabric.streams.message import MAX_MESSAGE_SIZE, MessageStream, message_hello
from aiofabric.transport.opening.keywords import stream_options

if TYPE_CHECKING:
    from typing import Unpack

    from aiofabric.address import Address
    from aiofabric.domain import Domain
    from aiofabric.transport.opening.keywords import StreamKeywords

__all__ = ["FabricConnectable", "connect_messages", "connect_stream"]


async def connect_stream(
    remote_host: str | Address,
    remote_port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    interface: str | None = None,
    **options: Unpack[StreamKeywords],
) -> FabricStream:
    """Connect to a :func:`listen_stream` or :func:`aiofabric.aio.create_server` at a fabric address.

    Args:
        remote_host: host name, numeric address, FI_ADDR_STR text or `Address`.
        remote_port: port number or service name.
        provider: by name; by default the first that reaches the host.
        domain: open the stream on this domain instead of one that the loop shares.
        interface: the network interface (``"eth0"``, ``"ib0"``) or the device (``"mlx5_0"``) to use; by default the
            first of the provider.
        options: ``heartbeat``, ``close_timeout``, ``waiting``, ``busy_poll``, ``cancel_grace`` and ``prepare``, as for
            `aiofabric.connect`.

    Cancelling closes the incomplete connection. Set time limits with `anyio.fail_after`.

    Raises: FabricConnectionRefusedError and other connection errors, NoProviderError.
    """
    chosen = stream_options("connect_stream", options)
    return FabricStream(
        await connect_channel(remote_host, remote_port, provider=provider, domain=domain, interface=interface, **chosen)
    )


async def connect_messages(
    remote_host: str | Address,
    remote_port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    packing: bool = True,
    max_message_size: int = MAX_MESSAGE_SIZE,
    interface: str | None = None,
    **options: Unpack[StreamKeywords],
) -> MessageStream:
    """Connect to a :func:`listen_messages`; arguments as for :func:`connect_stream`, and:

    Args:
        packing: let small messages share a frame, if the listener also wants it.
        max_message_size: bytes of the longest message to receive; the peer is told.

    Raises: like :func:`connect_stream`.
    """
    hello = message_hello(packing=packing, max_message_size=max_message_size)
    chosen = stream_options("connect_messages", options)
    return MessageStream(
        await connect_channel(
            remote_host, remote_port, hello=hello, provider=provider, domain=domain, interface=interface, **chosen
        )
    )


@dataclass
class FabricConnectable(ByteStreamConnectable):
    """:func:`connect_stream` as a value, for programs that take an anyio connectable, such as TLSConnectable.

    Args:
        host: host name, numeric address, FI_ADDR_STR text or `Address`.
        port: port number or service name.
        provider: as for :func:`connect_stream`.
        domain: as for :func:`connect_stream`.
        interface: as for :func:`connect_stream`.
    """

    host: str | Address
    port: int | str | None = None
    _: KW_ONLY
    provider: str | None = None
    domain: Domain | None = None
    interface: str | None = None

    async def connect(self) -> FabricStream:
        """Connect. Raises: anyio's ConnectionFailed, whose cause has the details."""
        try:
            return await connect_stream(
                self.host, self.port, provider=self.provider, domain=self.domain, interface=self.interface
            )
        except OSError as error:
            raise ConnectionFailed(f"error connecting to {self.host}:{self.port}: {error}") from error
