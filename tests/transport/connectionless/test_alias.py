"""Aliases of endpoints: the same endpoint with other default flags."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import Caps, FabricConnectionResetError, MessageEndpoint, NotSupportedError, OpFlags
from tests.fixtures.internals import source_of
from tests.fixtures.peers import peers
from tests.fixtures.providers import VIRTUAL, Pair, connected_pair, require
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

BIG = bytes(5000)


@asynccontextmanager
async def sockets_pair() -> AsyncIterator[tuple[MessageEndpoint, MessageEndpoint]]:
    """The one provider here that has aliases."""
    accepted = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen("127.0.0.1", provider="sockets") as listener, anyio.create_task_group() as tg:
        tg.start_soon(accept, listener)
        active = await aiofabric.connect(listener.address, provider="sockets")
    async with active, accepted[0] as passive:
        yield active, passive


async def test_an_alias_has_flags_of_its_own() -> None:
    async with sockets_pair() as (active, passive):
        async with active.alias(OpFlags.DELIVERY_COMPLETE) as alias:
            assert alias.settings.tx_flags == OpFlags.DELIVERY_COMPLETE
            assert active.settings.tx_flags == OpFlags.TRANSMIT_COMPLETE
            await alias.send(BIG)
            await active.send(b"after")
            assert await passive.recv() == BIG
            assert await passive.recv() == b"after"
            await passive.send(b"to both")
            assert await alias.recv() == b"to both"
        assert not active.closed
        await active.send(b"still there")
        assert await passive.recv() == b"still there"


async def test_an_alias_inherits_the_flags_that_its_endpoint_has_now() -> None:
    changed = OpFlags.DELIVERY_COMPLETE
    async with sockets_pair() as (active, passive):
        active.settings.tx_flags = changed
        active.settings.rx_flags = received = OpFlags.COMPLETION
        for given, sends, receives in (
            ({}, changed, received),
            ({"receiving": True}, changed, received),
            ({"flags": OpFlags.INJECT_COMPLETE}, OpFlags.INJECT_COMPLETE, received),
            ({"flags": OpFlags(0), "receiving": True}, changed, OpFlags(0)),
        ):
            arguments: dict[str, Any] = given
            async with active.alias(**arguments) as alias:
                assert (alias.settings.tx_flags, alias.settings.rx_flags) == (sends, receives)
                await alias.send(BIG)
                assert alias.statistics().injected == 0
                await alias.send(b"small")
                assert alias.statistics().injected == (sends != changed)  # fi_inject knows no delivery
                assert [await passive.recv(), await passive.recv()] == [BIG, b"small"]


async def test_what_an_alias_sends_it_sends_itself() -> None:
    async with sockets_pair() as (active, passive), active.alias(OpFlags.COMPLETION) as alias:
        await alias.send(b"by the alias")
        assert (alias.statistics().injected, active.statistics().injected) == (1, 0)
        await active.send(b"by the endpoint")
        assert (alias.statistics().injected, active.statistics().injected) == (1, 1)
        assert [await passive.recv(), await passive.recv()] == [b"by the alias", b"by the endpoint"]


async def test_closing_the_endpoint_closes_its_aliases_first() -> None:
    async with sockets_pair() as (active, _):
        alias = active.alias(OpFlags.COMPLETION)
        active.close()
        assert alias.closed
        with pytest.raises(ClosedResourceError):
            await alias.send(BIG)


async def test_what_was_posted_through_a_closed_alias_goes_on() -> None:
    async with sockets_pair() as (active, passive):
        alias = active.alias(OpFlags.TRANSMIT_COMPLETE)
        answered: list[BaseException | None] = []
        for _ in range(8):
            alias.send_nowait(bytes(60_000), answered.append)
        alias.close()
        for _ in range(8):
            assert len(await passive.recv()) == 60_000
        with anyio.fail_after(5):
            while len(answered) < 8:
                await source_of(active).driver.yield_to_loop()
        assert answered == [None] * 8


async def test_the_loss_of_the_peer_is_the_alias_s_too() -> None:
    async with sockets_pair() as (active, passive):
        alias = active.alias(OpFlags.COMPLETION)
        passive.close()
        with pytest.raises(FabricConnectionResetError):
            await active.recv()
        with pytest.raises(FabricConnectionResetError):
            await alias.send(BIG)
        assert alias.closed


async def test_aliases_of_connectionless_endpoints() -> None:
    async with peers("sockets", Caps.MSG) as (one, other, peer, back):
        async with one.alias(OpFlags.DELIVERY_COMPLETE) as alias:
            await alias.send(BIG, to=peer)
            assert await other.recv() == BIG
            await other.send(b"back", to=back)
            assert await alias.recv() == b"back"
        await one.send(b"on", to=peer)
        assert await other.recv() == b"on"


async def test_tcp_has_none(pair: Pair) -> None:
    async with pair() as (active, _):
        with pytest.raises(NotSupportedError, match=r"fi_ep_alias: .*FI_ENOSYS"):
            active.alias(OpFlags.COMPLETION)


async def test_a_closed_endpoint_has_no_alias() -> None:
    """The native endpoint is freed: libfabric would read its memory."""
    async with sockets_pair() as (active, _):
        active.close()
        with pytest.raises(ClosedResourceError):
            active.alias(OpFlags.DELIVERY_COMPLETE)
        with pytest.raises(ClosedResourceError):
            active.alias(OpFlags(0), receiving=True)


async def test_a_receive_through_a_closed_alias_ends_with_the_peer_that_it_names() -> None:
    ended: list[ClosedResourceError] = []

    async def receive(ep: aiofabric.RdmEndpoint, source: aiofabric.Peer) -> None:
        with pytest.raises(ClosedResourceError, match="was removed") as caught:
            await ep.recv_tagged(1, source=source, max_bytes=10)
        ended.append(caught.value)

    async with peers("sockets") as (one, other, there, back), anyio.create_task_group() as tasks:
        again = await other.add_peer(other.local_address)
        alias = other.alias(OpFlags.COMPLETION, receiving=True)
        tasks.start_soon(receive, alias, back)
        tasks.start_soon(receive, alias, back)
        await until(lambda: alias.statistics().receives == 2)
        alias.close()
        other.remove_peer(again)
        await anyio.wait_all_tasks_blocked()
        assert not ended
        other.remove_peer(back)
        await until(lambda: len(ended) == 2)
        back = await other.add_peer(one.local_address)
        await one.send_tagged(b"still here", 1, to=there)
        assert await other.recv_tagged(1, source=back, max_bytes=10) == b"still here"


@pytest.mark.parametrize("provider", VIRTUAL)
async def test_a_connection_over_connectionless_endpoints_has_no_alias(provider: str) -> None:
    async with connected_pair(require(provider)) as (active, passive):
        with pytest.raises(NotSupportedError, match=f"provider {provider} has no connected endpoints of its own"):
            active.alias(OpFlags.COMPLETION)
        await active.send(b"still here")
        assert await passive.recv() == b"still here"
