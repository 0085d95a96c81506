"""Datagrams over a fabric with anyio's interface: a datagram may be lost, duplicated or late, but never truncated.

A provider reports a datagram's source only if it already knows the sender. So each datagram carries its sender's
address before its data, and the receiver can answer.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from anyio import TypedAttributeProvider
from anyio.abc import UnreliableObjectStream
from anyio.lowlevel import checkpoint

from aiofabric.address import Address, is_numeric
from aiofabric.errors import MessageTooLongError
from aiofabric.flags import AvType, Caps, EndpointType
from aiofabric.info import Hints
from aiofabric.info.place import check_remote
from aiofabric.memory import bytes_of
from aiofabric.resource import leave_block
from aiofabric.streams.attributes import address_attributes
from aiofabric.transport.connectionless.endpoint import DatagramEndpoint
from aiofabric.transport.opening.options import EndpointOptions
from aiofabric.transport.opening.selection import find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Buffer

    from aiofabric.address_vector import Peer
    from aiofabric.domain import Domain
    from aiofabric.info import Info

__all__ = ["ConnectedDatagramStream", "DatagramStream", "Place", "connect_datagrams", "open_datagrams"]

Place: TypeAlias = Any
"""``(host, port)`` if the fabric has IP addresses, as for anyio's sockets; otherwise an `Address`."""

_MARK: Final = 0xAF
_PEERS_MOST: Final = 1024  # in the address vector; a further one replaces the oldest


@dataclass(frozen=True, slots=True)
class DatagramStatistics:
    """Datagrams that were sent, received, and dropped because their source was not the connected peer or not a
    stream."""

    sent: int
    received: int
    dropped: int


class _Datagrams(TypedAttributeProvider):
    """An endpoint for datagrams of this format: a mark, the length of the sender's address, the address, the data."""

    def __init__(self, endpoint: DatagramEndpoint, remote: Address | None = None) -> None:
        if not isinstance(getattr(endpoint, "max_message_size", None), int):
            raise TypeError(f"endpoint must be a DatagramEndpoint, not {endpoint!r:.100}")
        self._endpoint = endpoint
        self._info = endpoint.info
        self._local = local = endpoint.local_address
        self._remote = remote
        self._header = bytes((_MARK, len(local.raw))) + local.raw
        self._sending = anyio.ResourceGuard("sending to")
        self._receiving = anyio.ResourceGuard("receiving from")
        self._sent = self._received = self._dropped = 0

    @property
    def max_datagram_size(self) -> int:
        """Bytes of the longest datagram."""
        return self._endpoint.max_message_size - len(self._header)

    async def _send(self, data: Buffer, place: Place) -> None:
        view = bytes_of(data)
        with self._sending:
            await checkpoint()
            if self._endpoint.closed:
                raise anyio.ClosedResourceError
            if len(view) > self.max_datagram_size:
                detail = f"The datagram has {len(view)} bytes; at most {self.max_datagram_size} can be sent"
                raise MessageTooLongError(errno.EMSGSIZE, "send", detail=detail)
            await self._endpoint.send(self._header + view, to=await self._peer_at(place))
            self._sent += 1

    async def _peer_at(self, place: Place) -> Peer:
        endpoint = self._endpoint
        if isinstance(place, Address):
            peer = endpoint.vector.insert(place)
        else:
            host, port = str(place[0]), place[1]
            by_number = is_numeric(host)
            peer = (
                endpoint.vector.insert(Address.from_ip(host, port))
                if by_number
                else await endpoint.add_peer(host, port)
            )
        if len(endpoint.vector) > _PEERS_MOST:
            endpoint.remove_peer(next(iter(endpoint.vector)))
        return peer

    async def _receive(self) -> tuple[bytes, Address]:
        with self._receiving:
            await checkpoint()
            while True:
                datagram = await self._endpoint.recv()
                source = self._source_of(datagram)
                if source is not None and self._remote in (None, source):
                    self._received += 1
                    return datagram[2 + datagram[1] :], source
                self._dropped += 1

    def _source_of(self, datagram: bytes) -> Address | None:
        """The sender's address; None if the datagram does not come from a stream of this kind."""
        size = len(self._local.raw)
        if datagram[:2] != self._header[:2] or len(datagram) < 2 + size:
            return None
        source = Address(self._local.format, datagram[2 : 2 + size])
        return source if source.family == self._local.family else None

    async def aclose(self) -> None:
        """Close the endpoint. Datagrams that were not received are lost."""
        self._endpoint.close()
        await checkpoint()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await leave_block(exc, self.aclose)

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return address_attributes(self._info, self._local, self._remote)

    def statistics(self) -> DatagramStatistics:
        """Counters; see `DatagramStatistics`."""
        return DatagramStatistics(sent=self._sent, received=self._received, dropped=self._dropped)


class DatagramStream(_Datagrams, UnreliableObjectStream[tuple[bytes, Place]]):
    """Datagrams from and to any peer, each with its address, like anyio's UDPSocket; from :func:`open_datagrams`.

    One task may send and one may receive; a second gets :exc:`anyio.BusyResourceError`.
    """

    async def send(self, item: tuple[Buffer, Place]) -> None:
        """Send ``(data, place)``: any contiguous buffer of at most ``max_datagram_size`` bytes.

        A place is ``(host, port)``, as :meth:`receive` returns it, or an `Address`. Returns when the caller may change
        the memory; it does not mean that the datagram has arrived. If the call is cancelled before, it has sent the
        whole datagram or nothing.

        Raises: MessageTooLongError, ClosedResourceError, BusyResourceError; FabricError (no such host), ValueError
        (an address of another format than this fabric's).
        """
        await self._send(*item)

    async def sendto(self, data: Buffer, host: Any, port: int | None = None) -> None:
        """Like ``send((data, (host, port)))``; the host may be a complete `Address`."""
        await self._send(data, (host, port or 0) if not isinstance(host, Address) else host)

    async def receive(self) -> tuple[bytes, Place]:
        """Receive a datagram and its sender's address. Cancelling loses nothing.

        Datagrams that do not come from a stream of this kind are dropped.

        Raises: ClosedResourceError, BusyResourceError.
        """
        data, source = await self._receive()
        return data, source if source.host is None else (source.host, source.port or 0)


class ConnectedDatagramStream(_Datagrams, UnreliableObjectStream[bytes]):
    """Datagrams from and to one peer, like anyio's ConnectedUDPSocket; from :func:`connect_datagrams`.

    Connecting sends nothing, so the peer need not exist yet. Otherwise like `DatagramStream`.
    """

    _remote: Address

    async def send(self, item: Buffer) -> None:
        """Send one datagram; see `DatagramStream.send`."""
        await self._send(item, self._remote)

    async def receive(self) -> bytes:
        """Receive the next datagram of the peer; datagrams of others are dropped. Cancelling loses nothing."""
        return (await self._receive())[0]


async def open_datagrams(
    local_host: str | Address | None = None,
    local_port: int | str | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
) -> DatagramStream:
    """Send and receive datagrams: ``async with await open_datagrams(host, port) as stream``.

    Args:
        local_host: the local address, which peers must be able to answer to; by default the provider's choice.
        local_port: port number or service name; 0 or None for a free port.
        provider: by name (``"udp"``); by default the first that has datagrams.
        domain: open the endpoint on this domain instead of one that the loop shares.

    Raises: OSError (the address is in use, or is not an address of this machine), NoProviderError; ValueError
    (``0.0.0.0`` or ``::``, to which peers cannot answer).
    """
    passive = local_host is not None or local_port is not None
    find_local = partial(find, kind=EndpointType.DGRAM, caps=Caps.MSG, provider=provider, domain=domain)
    return DatagramStream(_open(await find_local(local_host, local_port, passive=passive), domain))


async def connect_datagrams(
    remote_host: str | Address,
    remote_port: int | str | None = None,
    *,
    local_host: str | Address | None = None,
    local_port: int = 0,
    provider: str | None = None,
    domain: Domain | None = None,
) -> ConnectedDatagramStream:
    """Send datagrams to one peer, and receive only from it.

    Args:
        remote_host: host name, numeric address, FI_ADDR_STR text or `Address`.
        remote_port: port number or service name.
        local_host: the local address, numeric or an `Address`; by default the one that reaches the remote host.
        local_port: port number; 0 for a free port.
        provider: by name (``"udp"``); by default the first that has datagrams and reaches the host.
        domain: open the endpoint on this domain instead of one that the loop shares.

    Raises: like :func:`open_datagrams`.
    """
    check_remote(remote_host, remote_port)
    search = partial(
        find, remote_host, remote_port, kind=EndpointType.DGRAM, caps=Caps.MSG, provider=provider, domain=domain
    )
    info = await search()
    if local_host is not None or local_port:
        local = local_host
        if not isinstance(local, Address):
            assert info.src_addr is not None
            local = Address.from_ip(str(local_host or info.src_addr.host), local_port)
        info = await search(hints=Hints(src_addr=local))
    assert info.dest_addr is not None
    return ConnectedDatagramStream(_open(info, domain), info.dest_addr)


def _open(info: Info, domain: Domain | None) -> DatagramEndpoint:
    endpoint = DatagramEndpoint(info, domain, EndpointOptions(), AvType.UNSPEC)
    host = endpoint.local_address.host
    if host is not None and ip_address(host.partition("%")[0]).is_unspecified:
        endpoint.close()
        raise ValueError(
            f"each datagram carries its sender's address, and peers cannot answer to {host}: pass one local "
            "address as local_host="
        )
    return endpoint
