"""FI_MULTI_RECV as a default flag of receives is refused: four messages arrived as the first one, four times."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    SHARED_CONTEXT,
    AvType,
    Caps,
    Domain,
    EndpointOptions,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    OpFlags,
    RdmEndpoint,
    RxAttr,
    SharedReceive,
)
from tests.fixtures.peers import peers, skip_without, where
from tests.fixtures.providers import HOST, Pair

pytestmark = pytest.mark.anyio

WORDS = r"FI_MULTI_RECV cannot be a default flag of receives.*open the endpoint with multi_recv="
PROVIDERS = ["tcp;ofi_rxm", "tcp", "shm", "sm2", "sockets", "net", "udp;ofi_rxd"]
HINTS = Hints(rx_attr=RxAttr(op_flags=OpFlags.MULTI_RECV))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_connectionless(provider: str) -> None:
    """fi_msg(3): such a buffer is for many messages; those of the pool, and of a program's receives, are for one."""
    skip_without(provider, aiofabric.Caps.MSG | aiofabric.Caps.MULTI_RECV)
    options: list[dict[str, Any]] = [{}, {"recv_size": None}, {"multi_recv": 65536, "recv_size": 1000}]
    for each in options:
        with pytest.raises(ValueError, match=WORDS):
            async with aiofabric.open_endpoint(
                EndpointType.RDM, where(provider, HOST), provider=provider, hints=HINTS, **each
            ):
                pass


async def test_settings_and_aliases(rdm: str) -> None:
    async with peers(rdm) as (one, other, peer, _):
        with pytest.raises(ValueError, match=WORDS):
            other.settings.rx_flags = OpFlags.MULTI_RECV | OpFlags.COMPLETION
        with pytest.raises(ValueError, match=WORDS):
            other.alias(OpFlags.MULTI_RECV, receiving=True)
        for number in range(4):
            await one.send(bytes([number]), to=peer)
        assert [await other.recv() for _ in range(4)] == [bytes([number]) for number in range(4)]


async def test_connected(pair: Pair) -> None:
    async with pair() as (_, other):
        try:
            flags = other.settings.rx_flags
        except aiofabric.NotSupportedError as error:
            pytest.skip(str(error))
        with pytest.raises(ValueError, match=WORDS):
            other.settings.rx_flags = OpFlags.MULTI_RECV
        assert other.settings.rx_flags == flags


async def test_other_ways_to_open() -> None:
    opening = (
        aiofabric.open_scalable_endpoint("127.0.0.1", hints=HINTS),
        aiofabric.open_endpoint(EndpointType.DGRAM, "127.0.0.1", hints=HINTS),
        aiofabric.listen("127.0.0.1", hints=HINTS),
    )
    for each in opening:
        with pytest.raises(ValueError, match=WORDS):
            await each.__aenter__()
    with pytest.raises(ValueError, match=WORDS):
        await aiofabric.connect("127.0.0.1", 9, hints=HINTS)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_info_that_names_it(provider: str) -> None:
    """As providers do that are asked without hints: the endpoint opens, and its buffers are for one message each."""
    skip_without(provider, Caps.MSG | Caps.MULTI_RECV)
    kind, name = EpAttr(type=EndpointType.RDM), FabricAttr(prov_name=provider)
    info = aiofabric.getinfo(where(provider, HOST), hints=replace(HINTS, ep_attr=kind, fabric_attr=name))[0]
    assert OpFlags.MULTI_RECV in info.rx_attr.op_flags
    async with (
        RdmEndpoint(info, None, EndpointOptions(), AvType.UNSPEC) as other,
        aiofabric.open_endpoint(EndpointType.RDM, where(provider, HOST), provider=provider) as one,
    ):
        assert OpFlags.MULTI_RECV not in other.info.rx_attr.op_flags
        assert OpFlags.MULTI_RECV in info.rx_attr.op_flags  # an Info is a value: the caller's stays as it is
        peer = await one.add_peer(other.local_address)
        await other.add_peer(one.local_address)
        for number in range(4):
            await one.send(bytes([number]) * 100, to=peer)
        assert [await other.recv() for _ in range(4)] == [bytes([number]) * 100 for number in range(4)]


async def test_domain_whose_info_names_it() -> None:
    attr = EpAttr(type=EndpointType.MSG, rx_ctx_cnt=SHARED_CONTEXT)
    hints = replace(HINTS, fabric_attr=FabricAttr(prov_name="sockets"), ep_attr=attr)
    with Domain(aiofabric.getinfo("127.0.0.1", hints=hints)[0]) as domain, SharedReceive(domain) as shared:
        async with (
            aiofabric.listen("127.0.0.1", provider="sockets", shared_receive=shared, close_timeout=0) as listener,
            anyio.create_task_group() as tg,
        ):

            async def serve() -> None:
                async with await (await listener.accept_request()).accept():
                    got = [await shared.recv() for _ in range(4)]
                    assert got == [bytes([number]) * 100 for number in range(4)]
                    received.set()

            received = anyio.Event()
            tg.start_soon(serve)
            async with await aiofabric.connect(listener.address, provider="sockets", close_timeout=0) as ep:
                for number in range(4):
                    await ep.send(bytes([number]) * 100)
                await received.wait()
