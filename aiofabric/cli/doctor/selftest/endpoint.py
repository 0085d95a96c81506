"""The two endpoints of a check, connected or paired: the measuring side opens one, the other side the other."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiofabric
from aiofabric.address import Address
from aiofabric.cli.doctor.selftest.options import CONNECTED, DATAGRAM, CheckOptions
from aiofabric.errors import NoProviderError
from aiofabric.flags import AddressFormat, EndpointType
from aiofabric.info import EpAttr, FabricAttr, Hints, getinfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiofabric.cli.doctor.selftest.control import Control

__all__ = ["PeerEndpoint", "listening", "open_link"]


class PeerEndpoint:
    """An endpoint, and the keyword argument that names its peer if it has no connection."""

    def __init__(self, endpoint: Any, to: aiofabric.Peer | None = None) -> None:
        self.endpoint = endpoint
        self.to = {} if to is None else {"to": to}
        self.send = partial(endpoint.send, **self.to)
        self.receive = endpoint.recv


@asynccontextmanager
async def open_link(control: Control, options: CheckOptions, **endpoint: Any) -> AsyncIterator[PeerEndpoint]:
    """Open this side's endpoint, and exchange addresses with the other side."""
    opened = _connected if options.kind == CONNECTED else _connectionless
    async with opened(control, options, endpoint) as link:
        yield link


@asynccontextmanager
async def _connected(control: Control, options: CheckOptions, endpoint: dict[str, Any]) -> AsyncIterator[PeerEndpoint]:
    if control.leads:
        there = await control.receive()
        opened = await aiofabric.connect(there["host"], there["port"], provider=options.provider, **endpoint)
    else:
        async with listening(control, options) as listener:
            request = await listener.accept_request()
            opened = await request.accept(**endpoint)
    async with opened:
        yield PeerEndpoint(opened)


@asynccontextmanager
async def listening(control: Control, options: CheckOptions) -> AsyncIterator[aiofabric.Listener]:
    """Listen, and tell the other side where."""
    # A provider without connected endpoints, or without IP addresses, finds its peers by TCP.
    node = _place(options.provider, EndpointType.MSG, control.host) or control.host
    async with aiofabric.listen(node, 0, provider=options.provider) as listener:
        await control.send(host=listener.address.host, port=listener.address.port)
        yield listener


@asynccontextmanager
async def _connectionless(
    control: Control, options: CheckOptions, endpoint: dict[str, Any]
) -> AsyncIterator[PeerEndpoint]:
    kind = EndpointType.DGRAM if options.kind == DATAGRAM else EndpointType.RDM
    other = _address_in(await control.receive()) if control.leads else None
    hints = Hints(dest_addr=other, fabric_attr=FabricAttr(prov_name=options.provider))  # the interface that reaches it
    node = None if control.leads else _place(options.provider, kind, control.host)
    async with aiofabric.open_endpoint(kind, node, hints=hints, **endpoint) as opened:
        here = opened.local_address
        await control.send(format=int(here.format), raw=here.raw.hex())
        yield PeerEndpoint(opened, await opened.add_peer(other or _address_in(await control.receive())))


def _address_in(message: dict[str, Any]) -> Address:
    return Address(AddressFormat(message["format"]), bytes.fromhex(message["raw"]))


def _place(provider: str, kind: EndpointType, host: str) -> str | None:
    """The local address to use: the host's by which the other side came, if the provider has it; else its first one."""
    hints = Hints(ep_attr=EpAttr(type=kind), fabric_attr=FabricAttr(prov_name=provider))
    try:
        found = [info.src_addr for info in getinfo(hints=hints) if info.fabric_attr.prov_name == provider]
    except NoProviderError:
        return None
    hosts = [address.host for address in found if address is not None and address.family]
    return host if host in hosts else next(iter(hosts), None)
