"""Scalable endpoints: contexts that share an address, and that a sender selects by index."""

# Doubles: no provider refuses a context on request.

import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Caps, EndpointType, FabricError, NotSupportedError, Peer, ScalableEndpoint
from aiofabric._ffi import constants, lib
from aiofabric.testing import live_resources
from tests.fixtures.internals import source_of
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
    async with scalable(receive=3, transmit=2) as (one, other, peer, back):
        assert (one.info.ep_attr.tx_ctx_cnt, one.info.ep_attr.rx_ctx_cnt) == (2, 3)
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


async def test_the_number_of_the_peer_s_contexts_is_the_peer_s() -> None:
    """fi_av(3): 2 ^ rx_ctx_bits is at least the rx_ctx_cnt of the endpoint that is addressed."""
    async with (
        aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets", receive=1) as one,
        aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets", receive=5) as other,
    ):
        peer, back = await one.add_peer(other.local_address), await other.add_peer(one.local_address)
        for index in (4, 0, 3):
            await one.transmit[0].send(bytes([index]), to=peer.context(index))
            message = await other.receive[index].recv()
            assert (message, message.source) == (bytes([index]), back)
        await other.transmit[0].send(b"back", to=back.context(0))
        assert await one.receive[0].recv() == b"back"


async def test_an_ordinary_endpoint_names_a_context() -> None:
    """fi_getinfo(3), FI_NAMED_RX_CTX: an initiator can target a specific receive context."""
    caps = Caps.MSG | Caps.TAGGED | Caps.NAMED_RX_CTX
    async with scalable() as (one, _, _, _), peers("sockets", caps) as (plain, _, _, _):
        peer = await plain.add_peer(one.local_address)
        await plain.send(b"two", to=peer.context(2))
        assert await one.receive[2].recv() == b"two"
        await plain.send_tagged(b"one", 7, to=peer.context(1))
        assert await one.receive[1].recv_tagged(7) == b"one"
        await plain.send(b"zero", to=peer)
        assert await one.receive[0].recv() == b"zero"


async def test_an_endpoint_without_the_capability_names_none() -> None:
    async with scalable() as (one, _, _, _), peers("sockets", Caps.MSG) as (plain, _, _, _):
        peer = await plain.add_peer(one.local_address)
        with pytest.raises(ValueError, match=r"has 0 bits .*: open the endpoint with Caps\.NAMED_RX_CTX"):
            peer.context(2)


async def test_contexts_are_named_within_their_number() -> None:
    async with scalable(receive=3) as (one, _, peer, _):
        assert peer.context(1) is peer.context(1)
        with pytest.raises(ValueError, match="there is no receive context 16: its address vector has 4 bits"):
            peer.context(16)
        one.vector.remove(peer)
        with pytest.raises(ValueError, match="was removed"):
            peer.context(0)


async def test_each_context_has_attributes_of_its_own() -> None:
    """fi_endpoint(3), fi_tx_context: attr holds the attributes of one context; each may have others."""
    async with (
        aiofabric.open_scalable_endpoint(
            "127.0.0.1",
            provider="sockets",
            transmit=[{}, {"inject_size": 16}],
            receive=[{"size": 16}, {}, {"size": 64}],
        ) as one,
        aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets") as other,
    ):
        peer, back = await other.add_peer(one.local_address), await one.add_peer(other.local_address)
        assert [each.info.tx_attr.inject_size for each in one.transmit] == [one.info.tx_attr.inject_size, 16]
        assert [each.info.rx_attr.size for each in one.receive] == [16, one.info.rx_attr.size, 64]
        for index, receiving in enumerate(one.receive):
            for number in range(100):  # more than any has receives
                await other.transmit[0].send(bytes([number]), to=peer.context(index))
                assert await receiving.recv() == bytes([number])
        for sending in one.transmit:
            for size in (8, 100, 5000):
                await sending.send(bytes(size), to=back)
                assert len(await other.receive[0].recv()) == size
        impossible: dict[str, dict[str, Any]] = {  # the provider looks at what the context has
            "fi_tx_context": {"transmit": [{"inject_size": 2 * one.info.tx_attr.inject_size}]},
            "fi_rx_context": {"receive": [{"size": 2 * one.info.rx_attr.size}]},
        }
        for call, options in impossible.items():
            with pytest.raises(FabricError, match=rf"{call}: .*FI_ENODATA"):
                await aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets", **options).__aenter__()


async def test_each_context_has_a_queue_of_its_own() -> None:
    """fi_endpoint(3): each context of a scalable endpoint may be bound to a completion queue of its own."""
    options: dict[str, Any] = {"provider": "sockets", "receive": 3, "transmit": 2, "own_queues": True}
    async with (
        aiofabric.open_scalable_endpoint("127.0.0.1", **options) as one,
        aiofabric.open_scalable_endpoint("127.0.0.1", **options) as other,
    ):
        assert len({source_of(context) for context in (*one.transmit, *one.receive)}) == 5
        peer, back = await one.add_peer(other.local_address), await other.add_peer(one.local_address)

        async def send(index: int) -> None:
            for size in (8, 5000):
                await one.transmit[index % 2].send(bytes([index]) * size, to=peer.context(index))

        async with anyio.create_task_group() as tasks:
            for index in range(3):
                tasks.start_soon(send, index)
            for index in (2, 0, 1):
                for size in (8, 5000):
                    message = await other.receive[index].recv()
                    assert message == bytes([index]) * size
                    assert message.source in (back, None)  # sockets may not know a new connection's address yet
        other.receive[1].close()  # its queue goes with the endpoint
        await one.transmit[0].send(b"still", to=peer.context(2))
        assert await other.receive[2].recv() == b"still"


@pytest.mark.parametrize("side", ["transmit", "receive"])
async def test_attributes_of_contexts_are_checked(side: str) -> None:
    for odd, error, words in (
        (0, ValueError, f"{side}=0: a scalable endpoint needs at least one context"),
        ([], ValueError, "at least one context"),
        ("2", TypeError, f"{side} must be a number of contexts, or a list"),
        (True, TypeError, "must be a number of contexts"),
        ([{"sise": 3}], TypeError, "sise"),
        ([7], TypeError, "or a dictionary of its fields, not 7"),
    ):
        with pytest.raises(error, match=words):
            await aiofabric.open_scalable_endpoint(provider="sockets", **{side: odd}).__aenter__()  # type: ignore[arg-type]


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
        assert all(source_of(context).closed for context in (*other.transmit, *other.receive))


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


@pytest.mark.parametrize("call", ["fi_scalable_ep_bind", "fi_enable", "fi_getname", "fi_tx_context", "fi_rx_context"])
async def test_a_scalable_endpoint_that_cannot_be_opened_leaves_nothing(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = live_resources()
    with monkeypatch.context() as patch:
        patch.setattr(lib, call, lambda *_: -constants.FI_EIO)
        with pytest.raises(FabricError, match=call):
            await aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets").__aenter__()
    assert live_resources() == before


async def test_contexts_that_were_open_before_a_failure_are_closed() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(FabricError):
            await aiofabric.open_scalable_endpoint(
                "127.0.0.1", provider="sockets", transmit=[{}, {"inject_size": 1 << 20}]
            ).__aenter__()
        gc.collect()
    assert [each for each in told if each.category is ResourceWarning] == []
