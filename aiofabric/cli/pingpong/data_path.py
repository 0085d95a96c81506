"""The data path over the fabric: one endpoint, connected or paired with the other side's."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import aiofabric
from aiofabric.address import Address
from aiofabric.cli.pingpong.control import SAME_KIND, TIMEOUT, ControlError
from aiofabric.cli.pingpong.report import LARGEST
from aiofabric.flags import Caps, EndpointType
from aiofabric.info import DomainAttr, EpAttr, FabricAttr, Hints, getinfo

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from aiofabric.cli.pingpong.control import Control

__all__ = ["DataPath", "hints_of", "open_data_path"]

_TAG = 1234
_SMALLEST_RECEIVE = 64  # bytes: the last message must fit, also if the others are smaller
_RECEIVES = 2  # posted at once; at most one message is in flight


class DataPath(Protocol):
    """Messages to the other side and back."""

    largest: int

    async def send(self, message: Any, /) -> None: ...
    async def receive(self) -> memoryview: ...


@asynccontextmanager
async def open_data_path(options: argparse.Namespace, control: Control) -> AsyncIterator[DataPath]:
    """Open an endpoint for the options and exchange addresses."""
    opened = _connected if options.kind is EndpointType.MSG else _connectionless
    async with opened(options, hints_of(options), control) as data_path:
        yield data_path


def hints_of(options: argparse.Namespace) -> Hints:
    """The requirements of the options on a provider."""
    return Hints(
        caps=Caps.TAGGED if options.mode == "tagged" else Caps.MSG,
        src_addr=Address.from_ip(options.source) if options.source else None,
        ep_attr=EpAttr(type=options.kind),
        domain_attr=DomainAttr(name=options.domain),
        fabric_attr=FabricAttr(prov_name=options.provider, name=options.fabric),
    )


def _receives(options: argparse.Namespace) -> dict[str, Any]:
    largest = options.size if isinstance(options.size, int) else LARGEST
    return {"recv_size": max(largest, _SMALLEST_RECEIVE), "recv_count": _RECEIVES}


@asynccontextmanager
async def _connected(options: argparse.Namespace, hints: Hints, control: Control) -> AsyncIterator[DataPath]:
    receives = _receives(options)
    if control.is_client:
        server = await control.receive_name()
        try:
            async with asyncio.timeout(TIMEOUT):
                endpoint = await aiofabric.connect(server, hints=hints, **receives)
        except TimeoutError:
            raise ControlError(f"no connection to {server} after {TIMEOUT:.0f} s: {SAME_KIND}") from None
    else:
        # An address that the other host can reach: that of the first interface, not a wildcard.
        here = hints.src_addr or getinfo(hints=hints)[0].src_addr
        async with aiofabric.listen(here, hints=hints, **receives) as listener:
            await control.send_name(listener.address)
            request = await _request(listener, control)
            endpoint = await request.accept()
    async with endpoint:
        yield _Connected(endpoint)


async def _request(listener: aiofabric.Listener, control: Control) -> aiofabric.ConnectionRequest:
    """The request of the client, which sends its first control message when the connection is there."""
    request = asyncio.ensure_future(listener.accept_request())
    spoke = asyncio.ensure_future(control.spoke.wait())
    try:
        await asyncio.wait((request, spoke), return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            raise ControlError(f"the other side does not connect: {SAME_KIND}")
        return request.result()
    finally:
        for each in (request, spoke):
            each.cancel()
        await asyncio.wait((request, spoke))


class _Connected:
    def __init__(self, endpoint: aiofabric.MessageEndpoint) -> None:
        self.largest = endpoint.max_message_size
        self.send = endpoint.send
        self._receive = endpoint.recv

    async def receive(self) -> memoryview:
        return memoryview(await self._receive())


@asynccontextmanager
async def _connectionless(options: argparse.Namespace, hints: Hints, control: Control) -> AsyncIterator[DataPath]:
    other = await control.receive_name() if control.is_client else None
    hints = replace(hints, dest_addr=other)  # selects the interface that reaches it
    receives = _receives(options)
    async with aiofabric.open_endpoint(options.kind, hints=hints, **receives) as endpoint:
        await control.send_name(endpoint.local_address)
        peer = await endpoint.add_peer(other or await control.receive_name())
        if options.mode == "tagged":
            yield _Tagged(endpoint, peer, receives["recv_size"])
        else:
            yield _Connectionless(endpoint, peer)


class _Connectionless:
    def __init__(self, endpoint: Any, peer: aiofabric.Peer) -> None:
        self.largest = endpoint.max_message_size
        self.send = partial(endpoint.send, to=peer)
        self._receive = endpoint.recv

    async def receive(self) -> memoryview:
        return memoryview(await self._receive())


class _Tagged:
    def __init__(self, endpoint: Any, peer: aiofabric.Peer, room: int) -> None:
        self.largest = endpoint.max_message_size
        self.send = partial(endpoint.send_tagged, tag=_TAG, to=peer)
        self._room = memoryview(bytearray(room))
        self._receive = partial(endpoint.recv_tagged_into, self._room, _TAG)

    async def receive(self) -> memoryview:
        return self._room[: (await self._receive()).length]
