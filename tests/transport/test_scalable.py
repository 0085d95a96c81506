"""Scalable endpoints: contexts that share an address, named by whoever sends to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Caps, EndpointType, NotSupportedError, Peer, ScalableEndpoint
from tests.fixtures.peers import peers

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def scalable(
    receive: int = 3, transmit: int = 2
) -> AsyncIterator[tuple[ScalableEndpoint, ScalableEndpoint, Peer, Peer]]:
    """Two scalable endpoints of the one provider that has them, and each one's number of the other."""
    options = {"provider": "sockets", "receive": receive, "transmit": transmit}
    async with (
        aiofabric.open_scalable_endpoint("127.0.0.1", **options) as one,  # type: ignore[arg-type]
        aiofabric.open_scalable_endpoint("127.0.0.1", **options) as other,  # type: ignore[arg-type]
    ):
        yield one, other, await one.add_peer(other.local_address), await other.add_peer(one.local_address)


async def test_a_message_goes_to_the_context_that_is_named() -> None:
    async with scalable() as (one, other, peer, _):
        for index in (2, 0, 1):
            await one.transmit[0].send(f"for {index}".encode(), to=peer.context(index))
        for index in range(3):
            assert await other.receive[index].recv() == f"for {index}".encode()


async def test_every_transmit_context_sends() -> None:
    async with scalable() as (one, other, peer, back):
        for index, context in enumerate(one.transmit):
            await context.send(bytes([index]) * 10_000, to=peer.context(index))
            message = await other.receive[index].recv()
            assert message == bytes([index]) * 10_000
            assert message.source is back


async def test_tagged_messages() -> None:
    async with scalable() as (one, other, peer, _):
        await one.transmit[1].send_tagged(b"seven", 7, to=peer.context(1))
        await one.transmit[1].send_tagged(b"eight", 8, to=peer.context(1))
        assert await other.receive[1].recv_tagged(8) == b"eight"
        assert await other.receive[1].recv_tagged(7) == b"seven"


async def test_an_ordinary_endpoint_reaches_the_first_context() -> None:
    async with scalable() as (one, _, _, _), peers("sockets", Caps.MSG) as (plain, _, _, _):
        await plain.send(b"hello", to=await plain.add_peer(one.local_address))
        assert await one.receive[0].recv() == b"hello"


async def test_contexts_are_named_within_their_number() -> None:
    async with scalable(receive=3) as (one, _, peer, _):
        assert peer.context(1) is peer.context(1)
        with pytest.raises(ValueError, match="there is no receive context 4: its address vector has 2 bits"):
            peer.context(4)
        one.vector.remove(peer)
        with pytest.raises(ValueError, match="was removed"):
            peer.context(0)


async def test_a_context_can_be_closed_alone() -> None:
    async def wait() -> None:
        with pytest.raises(ClosedResourceError):
            await other.receive[1].recv()

    async with scalable() as (one, other, peer, _):
        async with anyio.create_task_group() as tg:
            tg.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            other.receive[1].close()
        await one.transmit[0].send(b"still", to=peer.context(0))
        assert await other.receive[0].recv() == b"still"
        assert not other.closed


async def test_closing_closes_the_contexts() -> None:
    async def wait() -> None:
        with pytest.raises(ClosedResourceError):
            await other.receive[2].recv()

    async with scalable() as (_, other, _, _), anyio.create_task_group() as tg:
        tg.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        other.close()
        assert all(context.closed for context in (*other.transmit, *other.receive))
        assert repr(other).startswith("<ScalableEndpoint closed at ")


async def test_cancelling_a_receive_loses_nothing() -> None:
    async with scalable() as (one, other, peer, _):
        with anyio.move_on_after(0.01):
            await other.receive[0].recv()
        await one.transmit[0].send(b"late", to=peer)
        assert await other.receive[0].recv() == b"late"


async def test_a_provider_without_them_says_so() -> None:
    with pytest.raises((NotSupportedError, aiofabric.NoProviderError)):
        async with aiofabric.open_scalable_endpoint("127.0.0.1", provider="udp", type=EndpointType.DGRAM):
            pass
