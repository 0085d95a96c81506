"""The connection of a stream: it carries the metadata. Beside it, connectionless endpoints carry tagged messages.

The connection tells when the peer has gone, and the buffers are read over it (RMA). The first message of each side
names its endpoint for tagged messages, because libfabric's connected endpoints have no tags::

    bytes 0-7    b"arrow-1" and a zero
    byte  8      from the server: 1 if addresses are virtual ones, 0 if they count from the start of a buffer
    byte  9      the generation of libfabric, such as 2
    bytes 10-17  from the client: a random number, from which keys follow
    then         the provider of the endpoint, a zero, and its address as libfabric has it

Tagged messages of libfabric 1.x and 2.x reach each other only over rxm, which is what 1.x has over tcp. If the server's
message says that it is of rxm, and of another generation (or provider) than the client's, the client opens another
endpoint of rxm, and sends its message again.
"""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio.to_thread

from aiofabric import (
    Access,
    Address,
    AddressFormat,
    Caps,
    EndpointType,
    EpAttr,
    FabricAttr,
    FabricError,
    GetInfoFlags,
    Hints,
    MrMode,
    NoProviderError,
    Quirk,
    RemoteRegion,
    getinfo,
    library_version,
    open_endpoint,
)
from aiofabric.features import quirks
from aiofabric.transport.opening.keywords import endpoint_options

from .metadata import ArrowProtocolError
from .protocol import ANY_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiofabric import Info, MessageEndpoint, Peer, RdmEndpoint

__all__ = [
    "MOST_HELLO",
    "StreamHello",
    "add_peer",
    "any_type",
    "check_options",
    "key_of",
    "must_ask",
    "readable_region",
    "tagged_endpoint",
]

_START: Final = struct.Struct("<8sBBQ")
_MAGIC: Final = b"arrow-1\0"
MOST_HELLO: Final = 1024
"""Bytes of the longest first message."""

_CAPS: Final = Caps.MSG | Caps.TAGGED | Caps.SOURCE | Caps.DIRECTED_RECV
_FOR_OTHERS: Final = Caps.COLLECTIVE
"""With this, rxm of 1.x over tcp sends small tagged messages in its own form. Otherwise it sends them in a form of tcp
(rxm_msg.c, rxm_use_msg_tsend; rxm_domain.c, rxm_config_dyn_rbuf), which rxm of 2.x drops as unknown.
"""


def check_options(function: str, options: dict[str, Any]) -> None:
    """Raise TypeError or ValueError for an option of the connections that ``function`` does not have."""
    left = {name: value for name, value in options.items() if name not in ("interface", "hints", "info")}
    endpoint_options(function, left, chosen=("recv_size", "recv_count"))


class StreamHello(NamedTuple):
    """The first message of each side."""

    provider: str
    address: bytes
    nonce: int = 0
    virtual: bool = False
    generation: int = 0

    @classmethod
    def of(cls, endpoint: RdmEndpoint, *, nonce: int = 0, virtual: bool = False) -> StreamHello:
        """The first message of a side that has this endpoint."""
        generation = library_version().major
        return cls(endpoint.info.fabric_attr.prov_name, endpoint.local_address.raw, nonce, virtual, generation)

    def asks_again(self, client: StreamHello) -> bool:
        """Whether this message of a server asks the client for another endpoint, and another message."""
        differ = (self.provider, self.generation) != (client.provider, client.generation)
        return differ and _is_rxm(self.provider)

    def pack(self) -> bytes:
        """The message."""
        start = _START.pack(_MAGIC, self.virtual, self.generation, self.nonce)
        return start + self.provider.encode() + b"\0" + self.address

    @classmethod
    def unpack(cls, message: bytes) -> StreamHello:
        """Raises: ArrowProtocolError: not such a message."""
        try:
            magic, virtual, generation, nonce = _START.unpack_from(message)
        except struct.error:
            magic = b""
        provider, separator, address = message[_START.size :].partition(b"\0")
        if magic != _MAGIC or not separator or not provider.isascii() or len(message) > MOST_HELLO:
            raise ArrowProtocolError(f"the peer does not stream Arrow data; its first message begins {message[:20]!r}")
        return cls(provider.decode(), address, nonce, bool(virtual), generation)


@asynccontextmanager
async def tagged_endpoint(connection: MessageEndpoint, theirs: StreamHello | None = None) -> AsyncIterator[RdmEndpoint]:
    """An endpoint for tagged messages, in the network of a connection. ``theirs``: the peer's message, if it has come.

    Raises: NoProviderError, FabricError.
    """
    own = connection.info
    host = None
    if own.addr_format is not AddressFormat.ADDR_STR and connection.local_address is not None:
        host = connection.local_address.host
    name, caps = own.fabric_attr.prov_name, _CAPS
    if theirs is not None:
        name = theirs.provider
        if theirs.generation != library_version().major:
            caps |= _FOR_OTHERS
    try:
        info = await anyio.to_thread.run_sync(_registering, name, host, caps)
    except NoProviderError:
        if caps == _CAPS:
            raise
        info = await anyio.to_thread.run_sync(_registering, name, host, _CAPS)  # `add_peer` says why that fails
    if info is None:
        opening = open_endpoint(EndpointType.RDM, host, provider=name, caps=_CAPS, recv_size=None)
    else:
        opening = open_endpoint(EndpointType.RDM, info=info, recv_size=None)
    async with opening as endpoint:
        yield endpoint


def _registering(provider: str, host: str | None, caps: Caps) -> Info | None:
    """The offer of rxm with FI_MR_LOCAL: aiofabric registers the memory of large messages then. None if it is not rxm.

    Otherwise rxm does, and if the peer dies, it deregisters nothing (rxm_cq.c, rxm_handle_comp_error): the domain then
    stays open, with its descriptors, until the process ends. 1.17's tcp has no such endpoints without rxm.
    """
    kind, fabric = EpAttr(type=EndpointType.RDM), FabricAttr(prov_name=provider)
    flags = GetInfoFlags(0) if host is None else GetInfoFlags.SOURCE
    info = getinfo(host, hints=Hints(caps=caps, ep_attr=kind, fabric_attr=fabric), flags=flags)[0]
    if not _is_rxm(info.fabric_attr.prov_name):
        return None
    mode = info.domain_attr.mr_mode | MrMode.LOCAL
    return info.replace(domain_attr=replace(info.domain_attr, mr_mode=mode))


def must_ask(endpoint: RdmEndpoint) -> bool:
    """Whether a message may not arrive before its receive is posted: if its sender dies, this process crashes."""
    return bool(quirks(endpoint.info) & (Quirk.LATE_RECEIVE_CRASHES | Quirk.CUT_MESSAGE_CRASHES))


def any_type(endpoint: RdmEndpoint) -> int:
    """The bits of a body's tag that a receive ignores. Collective operations use the highest bit of tags."""
    return ANY_TYPE & (1 << 63) - 1 if Caps.COLLECTIVE in endpoint.info.caps else ANY_TYPE


def _is_rxm(provider: str) -> bool:
    return "ofi_rxm" in provider.split(";")


async def add_peer(endpoint: RdmEndpoint, hello: StreamHello, connection: MessageEndpoint) -> Peer:
    """The peer's endpoint for tagged messages, which must be of the same provider and library, and at the peer's host.

    Raises: ArrowProtocolError: it is not.
    """
    provider, generation = endpoint.info.fabric_attr.prov_name, library_version().major
    if hello.provider != provider or not (hello.generation == generation or _is_rxm(provider)):
        raise ArrowProtocolError(
            f"the peer has tagged messages of {hello.provider}, libfabric {hello.generation}, and this side those of "
            f"{provider}, libfabric {generation}: both sides need one provider and, if it is not rxm, one generation "
            "of libfabric"
        )
    try:
        there = Address(endpoint.local_address.format, hello.address)
        host, peer = there.host, None if connection.peer_address is None else connection.peer_address.host
        if host is not None and peer is not None and host.partition("%")[0] != peer.partition("%")[0]:
            raise ArrowProtocolError(f"the peer is at {peer}, and names an endpoint at {host}")
        return await endpoint.add_peer(there)
    except (ValueError, FabricError) as error:
        raise ArrowProtocolError(f"the peer names an endpoint that cannot be reached: {error}") from error


_MASK: Final = (1 << 64) - 1


def key_of(secret: int, address: int, length: int) -> int:
    """The key under which the server registers a buffer; ``secret``: of one connection."""
    return (secret + address * 0x9E37_79B9_7F4A_7C15 + length * 0xC2B2_AE3D_27D4_EB4F) & _MASK


def readable_region(secret: int, address: int, length: int, virtual: bool) -> RemoteRegion:
    """The server's memory that a client may read.

    Raises: ArrowProtocolError: no memory can be there.
    """
    if address + length > 1 << 64:
        raise ArrowProtocolError(f"a buffer of {length} bytes at {address:#x}")
    key = key_of(secret, address, length)
    return RemoteRegion(address if virtual else 0, key, length, access=Access.REMOTE_READ)
