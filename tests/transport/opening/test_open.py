"""The opening of endpoints: flags, traffic classes, and types that no provider has."""

# Doubles: no provider refuses a domain on request.

import os
import socket
from collections.abc import Iterator

import anyio
import pytest

import aiofabric
from aiofabric import (
    Caps,
    EndpointType,
    FabricError,
    Hints,
    MessageEndpoint,
    NoProviderError,
    NotSupportedError,
    OpFlags,
    TrafficClass,
)
from aiofabric._ffi import constants, lib
from aiofabric.cm.workarounds.provider_sockets import connected_socket
from aiofabric.testing import live_resources
from tests.fixtures.internals import descriptor_of
from tests.fixtures.peers import skip_without
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("provider", ["tcp;ofi_rxm", "udp;ofi_rxd", "sockets"])
async def test_a_provider_without_flags_of_opening_says_so(provider: str) -> None:
    skip_without(provider, aiofabric.Caps.MSG)
    opening = aiofabric.open_endpoint(
        EndpointType.RDM, "127.0.0.1", provider=provider, open_flags=OpFlags.PEER_TRANSFER
    )
    with pytest.raises(NotSupportedError, match=f"The provider {provider} cannot open endpoints with FI_PEER_TRANSFER"):
        await opening.__aenter__()


@pytest.mark.parametrize(
    ("provider", "caps"),
    [("shm", Caps.MSG | Caps.MULTICAST), ("sm2", Caps.MSG | Caps.RMA), ("udp;ofi_rxd", Caps.COLLECTIVE)],
)
async def test_capabilities_that_were_asked_for_are_there_or_nothing_is_opened(provider: str, caps: Caps) -> None:
    skip_without(provider, Caps.MSG)
    with pytest.raises(NoProviderError, match="would match without"):
        await aiofabric.open_endpoint(EndpointType.RDM, provider=provider, caps=caps).__aenter__()


async def test_a_connection_is_opened_without_flags_or_not_at_all(pair: Pair) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with pair(open_flags=OpFlags.PEER_TRANSFER):
            pass
    assert caught.group_contains(
        NotSupportedError, match="fi_endpoint2.*tcp cannot open endpoints with FI_PEER_TRANSFER"
    )


@pytest.mark.parametrize("kind", [EndpointType.SOCK_STREAM, EndpointType.SOCK_DGRAM], ids=str)
async def test_socket_endpoints_are_refused_by_the_providers(kind: EndpointType) -> None:
    with pytest.raises(NotSupportedError, match=f"No provider has .*type={kind}.*would match without ep_attr.type"):
        await aiofabric.open_endpoint(kind).__aenter__()


def _sockets() -> Iterator[socket.socket]:
    """Every connected TCP socket of this process, the provider's included."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.exists(path) and os.readlink(path).startswith("socket:"):
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family == socket.AF_INET and found.type == socket.SOCK_STREAM:
                    yield found


def _nodelay(endpoint: MessageEndpoint) -> list[bool]:
    """Whether the socket under an endpoint sends small segments at once."""
    address = endpoint.local_address
    assert address is not None
    return [
        bool(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        for each in _sockets()
        if each.getsockname() == (address.host, address.port)
    ]


def _code_point(endpoint: MessageEndpoint) -> int:
    found = connected_socket(descriptor_of(endpoint), endpoint.local_address, endpoint.peer_address)
    assert found is not None
    return found.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2


@pytest.mark.parametrize("tclass", [*TrafficClass, TrafficClass.from_dscp(46)], ids=str)
@pytest.mark.parametrize("level", ["tx_attr", "domain_attr"])
async def test_the_provider_obeys_a_traffic_class(provider: str, tclass: TrafficClass, level: str) -> None:
    """tcp leaves Nagle's algorithm on for bulk data, and off for everything else."""
    hints = Hints()
    getattr(hints, level).tclass = tclass
    async with aiofabric.listen("127.0.0.1", provider=provider) as listener, anyio.create_task_group() as tasks:

        async def answer() -> None:
            async with await (await listener.accept_request()).accept() as accepted:
                await accepted.send(await accepted.recv())
                await accepted.recv()

        tasks.start_soon(answer)
        async with await aiofabric.connect(listener.address, provider=provider, hints=hints) as endpoint:
            assert endpoint.info.tx_attr.tclass == tclass
            assert _nodelay(endpoint) == [tclass != TrafficClass.BULK_DATA]
            assert _code_point(endpoint) == (tclass.dscp or 0)
            await endpoint.send(b"there and back")
            assert await endpoint.recv() == b"there and back"
            await endpoint.send(b"bye")


async def test_a_domain_that_cannot_be_opened_leaves_no_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    before = live_resources()
    with monkeypatch.context() as patch:
        patch.setattr(lib, "fi_domain", lambda *_: -constants.FI_EIO)
        with pytest.raises(FabricError, match="fi_domain"):
            await aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider="udp;ofi_rxd").__aenter__()
    assert live_resources() == before
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider="udp;ofi_rxd") as endpoint:
        assert endpoint.state == "open"
