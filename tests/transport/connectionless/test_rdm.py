"""One endpoint with many peers: messages both ways, in one process and between two, over every provider that has such
endpoints.
"""

from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Caps, EndpointType, Peer, RdmEndpoint
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import source_of
from tests.fixtures.peers import RARE, RDM, peers, skip_without, where

pytestmark = pytest.mark.anyio

MIB = 1 << 20


def names_senders(provider: str) -> bool:
    """rxd names none, although it grants FI_SOURCE."""
    return not provider.endswith("ofi_rxd")


def source(provider: str, peer: Peer) -> Peer | None:
    """The source of a message of ``peer``."""
    return peer if names_senders(provider) else None


def numbered(number: int, size: int) -> bytes:
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


@pytest.mark.parametrize("options", [{}, {"recv_size": None}], ids=["pooled", "direct"])
async def test_messages_both_ways(rdm: str, options: dict[str, Any]) -> None:
    room = () if not options else (65536,)
    async with peers(rdm, **options) as (one, other, there, back):
        for size in (0, 1, 64, one.max_inject, one.max_inject + 1, 16384, 65536):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(one.send, numbered(size, size), to=there))
                tasks.start_soon(partial(other.send, numbered(size + 1, size), to=back))
                got = await other.recv(*room)
                assert got == numbered(size, size)
                assert got.source is source(rdm, back)
                got = await one.recv(*room)
                assert got == numbered(size + 1, size)
                assert got.source is source(rdm, there)


async def test_a_large_message_goes_straight_into_the_callers_memory(rdm: str) -> None:
    data, room = numbered(7, 5 * MIB), bytearray(5 * MIB)
    async with peers(rdm, recv_size=None) as (one, other, there, _), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: one.send(data, to=there))
        assert await other.recv_into(room) == len(data)
    assert room == data


async def test_an_endpoint_talks_to_itself(rdm: str) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, where(rdm), provider=rdm) as ep:
        me = await ep.add_peer(ep.local_address)
        await ep.send(b"note", to=me)
        got = await ep.recv()
        assert (got, got.source) == (b"note", source(rdm, me))


async def test_many_messages_arrive_in_order(rdm: str) -> None:
    """More than transmit limit and pool hold at once."""
    count = 3000

    async def produce(ep: RdmEndpoint, peer: Peer) -> None:
        for number in range(count):
            await ep.send(numbered(number, 4 + number % 100), to=peer)

    async with peers(rdm) as (one, other, there, _), anyio.create_task_group() as tasks:
        tasks.start_soon(produce, one, there)
        for number in range(count):
            assert await other.recv() == numbered(number, 4 + number % 100)


async def test_three_endpoints_know_who_is_who(rdm: str) -> None:
    if not names_senders(rdm):
        pytest.skip("messages over rxd name no sender")
    async with (
        peers(rdm) as (one, other, there, back),
        aiofabric.open_endpoint(EndpointType.RDM, where(rdm), provider=rdm) as third,
    ):
        known = await other.add_peer(third.local_address)
        await third.send(b"from the third", to=await third.add_peer(other.local_address))
        got = await other.recv()
        assert (got, got.source) == (b"from the third", known)
        await one.send(b"from the first", to=there)
        got = await other.recv()
        assert (got, got.source) == (b"from the first", back)


async def test_an_unknown_peers_message_has_no_source_until_he_is_known(rdm: str) -> None:
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, where(rdm), provider=rdm) as one,
        aiofabric.open_endpoint(EndpointType.RDM, where(rdm), provider=rdm) as other,
    ):
        there = await one.add_peer(other.local_address)
        await one.send(b"who am I", to=there)
        got = await other.recv()
        assert (got, got.source) == (b"who am I", None)
        back = await other.add_peer(one.local_address)
        await other.send(b"now I know", to=back)
        assert await one.recv() == b"now I know"
        await one.send(b"then answer", to=there)
        got = await other.recv()
        assert (got, got.source) == (b"then answer", source(rdm, back))


def nobody(provider: str) -> str:
    """An address without an endpoint."""
    return f"fi_{provider}://nobody-is-here" if where(provider) is None else "fi_sockaddr_in://127.0.0.1:1"


@pytest.mark.parametrize("size", [4, 100_000], ids=["inject", "post"])
async def test_a_peer_that_never_answers_ends_at_the_callers_deadline(rdm: str, size: int) -> None:
    async with peers(rdm) as (one, other, there, back):
        dead = await one.add_peer(nobody(rdm))
        with anyio.move_on_after(0.1) as scope:
            await one.send(bytes(size), to=dead)
        if rdm != "udp;ofi_rxd" or size > 4:  # rxd takes a small message over, and tries for a minute to be rid of it
            assert scope.cancelled_caught
        assert one.statistics().queued == 0
        for number in range(10):
            await one.send(numbered(number, 100), to=there)
            assert await other.recv() == numbered(number, 100)
            await other.send(numbered(number, 100), to=back)
            assert await one.recv() == numbered(number, 100)


async def test_while_it_waits_for_a_dead_peer_the_loop_is_not_busy(rdm: str) -> None:
    """The delays grow, and others are served meanwhile."""
    async with peers(rdm) as (one, other, there, _), anyio.create_task_group() as tasks:
        dead = await one.add_peer(nobody(rdm))
        for _ in range(20):
            tasks.start_soon(lambda: one.send(bytes(100_000), to=dead))
        await anyio.wait_all_tasks_blocked()
        await one.send(b"alive", to=there)
        assert await other.recv() == b"alive"
        with anyio.fail_after(30):
            passes = 1000
            while passes > 40:  # shm is polled every 5 ms; a busy loop makes thousands
                before = source_of(one).statistics().passes
                await anyio.sleep(0.1)
                passes = source_of(one).statistics().passes - before
        tasks.cancel_scope.cancel()
    assert one.closed


async def test_removing_a_peer_ends_what_waits_for_it(rdm: str) -> None:
    """Queued sends end with an error. Buffers that the provider has stay pinned, and other peers are not affected."""
    ended: list[BaseException | None] = []

    async def send(ep: RdmEndpoint, peer: Peer) -> None:
        try:
            await ep.send(bytes(100_000), to=peer)
        except anyio.ClosedResourceError as error:
            ended.append(error)

    async with peers(rdm, recv_size=None) as (one, other, there, back), anyio.create_task_group() as tasks:
        dead = await one.add_peer(nobody(rdm))
        for _ in range(3):
            tasks.start_soon(send, one, dead)
        await anyio.wait_all_tasks_blocked()
        one.remove_peer(dead)
        await anyio.wait_all_tasks_blocked()
        if rdm != "udp;ofi_rxd":  # rxd accepts messages that no receive may ever take
            assert len(ended) == 3
        with pytest.raises(ValueError, match="was removed"):
            await one.send(b"too late", to=dead)
        with pytest.raises(ValueError, match="was removed"):
            one.remove_peer(dead)
        tasks.start_soon(lambda: one.send(b"still here", to=there))
        assert await other.recv(100) == b"still here"
        other.remove_peer(back)
        tasks.cancel_scope.cancel()


async def test_a_peer_that_was_removed_comes_back(rdm: str) -> None:
    async with peers(rdm) as (one, other, there, back):
        await one.send(b"first", to=there)
        assert (await other.recv()).source is source(rdm, back)
        other.remove_peer(back)
        one.remove_peer(there)
        again = await one.add_peer(other.local_address)
        assert again is not there
        back = await other.add_peer(one.local_address)
        await one.send(b"second", to=again)
        got = await other.recv()
        assert (got, got.source) == (b"second", source(rdm, back))


@pytest.mark.parametrize("options", [{}, {"recv_size": None}], ids=["pooled", "direct"])
async def test_closing_ends_whatever_is_under_way(rdm: str, options: dict[str, Any]) -> None:
    ended: list[str] = []

    async def expect_the_end(what: str, call: Any) -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await call()
        ended.append(what)

    async with peers(rdm, **options) as (one, _, there, _), anyio.create_task_group() as tasks:
        room = () if not options else (100,)
        dead = await one.add_peer(nobody(rdm))
        tasks.start_soon(expect_the_end, "recv", lambda: one.recv(*room))
        tasks.start_soon(expect_the_end, "recv_tagged", lambda: one.recv_tagged(1, max_bytes=100))
        tasks.start_soon(expect_the_end, "recv_tagged from", lambda: one.recv_tagged(1, source=there, max_bytes=100))
        tasks.start_soon(expect_the_end, "send to a dead peer", lambda: one.send(bytes(100_000), to=dead))
        await anyio.wait_all_tasks_blocked()
        assert not ended
        one.close()
    assert sorted(ended) == ["recv", "recv_tagged", "recv_tagged from", "send to a dead peer"]
    with pytest.raises(anyio.ClosedResourceError):
        await one.send(b"", to=there)
    with pytest.raises(anyio.ClosedResourceError):
        await one.add_peer(nobody(rdm))


@pytest.mark.parametrize("name", ["tcp", "udp;ofi_rxd"])  # 2.x's rxm loses its sockets when it is closed like this
async def test_closing_amid_large_messages(name: str) -> None:
    async with peers(name, recv_size=None) as (one, _, there, _), anyio.create_task_group() as tasks:

        async def send() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await one.send(bytes(4 * MIB), to=there)

        for _ in range(5):
            tasks.start_soon(send)
        while one.statistics().sends < 5:
            await anyio.lowlevel.checkpoint()
        one.close()


@pytest.mark.parametrize("name", ["net", "sockets"])
async def test_providers_that_are_rarely_used(name: str) -> None:
    async with peers(name) as (one, other, there, back):
        for size in (0, 100, 60_000):
            await one.send(numbered(1, size), to=there)
            got = await other.recv()
            assert (got, got.source) == (numbered(1, size), back)
            await other.send_tagged(numbered(2, size), 5, to=back)
            tagged = await one.recv_tagged(5)
            assert (tagged, tagged.source, tagged.tag) == (numbered(2, size), there, 5)


async def echo(parent: Parent, provider: str) -> int:
    """Answer until an empty message comes; return how many did."""
    async with aiofabric.open_endpoint(EndpointType.RDM, where(provider), provider=provider) as ep:
        parent.tell(ep.local_address)
        peer = await ep.add_peer(await parent.areceive())
        parent.tell("known")
        count = 0
        while message := await ep.recv():
            assert message.source is source(provider, peer)
            await ep.send(message, to=peer)
            count += 1
        await ep.send(b"", to=peer)
        await parent.areceive()
    return count


@pytest.mark.parametrize("name", [*RDM, *RARE])
async def test_two_processes(name: str, child: Any) -> None:
    skip_without(name, Caps.MSG)
    other: Child = child(echo, name)
    async with aiofabric.open_endpoint(EndpointType.RDM, where(name), provider=name) as ep:
        peer = await ep.add_peer(await other.areceive())
        other.tell(ep.local_address)
        assert await other.areceive() == "known"
        sizes = (1, 64, 4096, 4097, 16385, 65536)
        for size in sizes:
            await ep.send(numbered(size, size), to=peer)
            got = await ep.recv()
            assert (got, got.source) == (numbered(size, size), source(name, peer))
        await ep.send(b"", to=peer)
        assert await ep.recv() == b""
        other.tell("over")
        assert await other.aresult() == len(sizes)


async def test_its_state_is_open_until_it_is_closed(rdm: str) -> None:
    async with peers(rdm) as (one, _, _, _):
        assert (one.state, one.closed, one.statistics().state) == ("open", False, "open")
        one.close()
        assert (one.state, one.closed) == ("closed", True)
