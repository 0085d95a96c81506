"""One address vector for several endpoints (fi_av(3), fi_endpoint(3)), and the operations that end when a peer is
removed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    AddressVector,
    AvType,
    Caps,
    DatagramEndpoint,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    NotSupportedError,
    OpFlags,
    RdmEndpoint,
    getinfo,
)
from tests.fixtures.children import Child, Parent
from tests.fixtures.peers import peers, skip_without, where
from tests.fixtures.providers import HOST

pytestmark = pytest.mark.anyio

KINDS = [
    *((name, EndpointType.RDM) for name in ("tcp;ofi_rxm", "tcp", "udp;ofi_rxd", "sockets")),
    ("udp", EndpointType.DGRAM),
]


def open_domain(provider: str, kind: EndpointType) -> Domain:
    caps = Caps.MSG | Caps.SOURCE  # with tags tcp's endpoints of one domain mix their messages up
    skip_without(provider, caps, kind)
    hints = Hints(caps=caps, fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    return Domain(getinfo(where(provider, HOST), hints=hints)[0])


@asynccontextmanager
async def three(
    domain: Domain, kind: EndpointType
) -> AsyncIterator[tuple[AddressVector, list[RdmEndpoint | DatagramEndpoint]]]:
    """An address vector, two endpoints that share it, and one that has its own."""
    node = where(domain.provider, HOST)
    with AddressVector(domain) as vector:
        async with (
            aiofabric.open_endpoint(kind, node, address_vector=vector) as one,
            aiofabric.open_endpoint(kind, node, address_vector=vector) as two,
            aiofabric.open_endpoint(kind, node, domain=domain) as other,
        ):
            yield vector, [one, two, other]


async def share(parent: Parent, provider: str, kind: EndpointType) -> None:
    with open_domain(provider, kind) as domain:
        async with three(domain, kind) as (vector, [one, two, other]):
            assert one.vector is two.vector is vector
            peer = await one.add_peer(other.local_address)
            assert await two.add_peer(other.local_address) is peer
            assert list(vector) == [peer]
            with anyio.fail_after(15):
                for each in (one, two):
                    back = await other.add_peer(each.local_address)
                    for data in (b"there", bytes(1400)):
                        await each.send(data, to=peer)
                        assert await other.recv() == data
                        await other.send(data, to=back)
                        message = await each.recv()
                        assert message == data
                        assert message.source in (peer, None)
            one.remove_peer(peer)
            for each in (one, two):
                with pytest.raises(ValueError, match="was removed"):
                    await each.send(b"x", to=peer)
            again = await two.add_peer(other.local_address)
            one.close()
            assert not vector.closed
            with anyio.fail_after(15):
                await two.send(b"again", to=again)
                assert await other.recv() == b"again"
            vector.close()
            assert two.closed
            assert not other.closed


@pytest.mark.parametrize(("provider", "kind"), KINDS)
def test_endpoints_share_an_address_vector(child: Callable[..., Child], provider: str, kind: EndpointType) -> None:
    """fi_endpoint(3): an address vector may be bound to several endpoints of its domain."""
    open_domain(provider, kind).close()
    child(share, provider, kind).result()


@pytest.mark.parametrize("provider", ["shm", "sm2"])
async def test_over_shared_memory_each_endpoint_has_its_own(provider: str) -> None:
    with (
        open_domain(provider, EndpointType.RDM) as domain,
        AddressVector(domain) as vector,
        pytest.raises(NotSupportedError, match="in one process need an address vector each"),
    ):
        await aiofabric.open_endpoint(EndpointType.RDM, address_vector=vector).__aenter__()


async def test_an_endpoint_closes_its_own_vector_and_no_other() -> None:
    kind = EndpointType.RDM
    with open_domain("sockets", kind) as domain, AddressVector(domain) as vector:
        node = where("sockets", HOST)
        async with aiofabric.open_endpoint(kind, node, domain=domain) as own:
            assert not own.vector.closed
        async with aiofabric.open_endpoint(kind, node, address_vector=vector) as shared:
            assert shared.vector is vector
        assert (own.vector.closed, vector.closed) == (True, False)


async def test_a_vector_that_does_not_fit_is_refused() -> None:
    kind = EndpointType.RDM
    with open_domain("sockets", kind) as domain, open_domain("sockets", kind) as elsewhere:
        vector = AddressVector(domain)
        for options, error, words in (
            ({"domain": elsewhere, "address_vector": vector}, ValueError, "is not of the domain of the endpoint"),
            ({"av_type": AvType.TABLE, "address_vector": vector}, ValueError, "leave out av_type"),
            ({"address_vector": domain}, TypeError, "address_vector must be an AddressVector or None"),
        ):
            with pytest.raises(error, match=words):
                await aiofabric.open_endpoint(kind, **options).__aenter__()
        vector.close()
        with pytest.raises(ClosedResourceError):
            await aiofabric.open_endpoint(kind, address_vector=vector).__aenter__()


# -- removal


async def remove(parent: Parent, provider: str) -> None:
    async with peers(provider, Caps.MSG) as (one, other, peer, _):
        await one.send(b"first", to=peer)
        assert await other.recv() == b"first"
        one.vector.remove(peer)
        with pytest.raises(ValueError, match="was removed"):
            await one.send(b"second", to=peer)


@pytest.mark.parametrize("provider", ["tcp;ofi_rxm", "tcp", "udp;ofi_rxd", "shm", "sockets", "sm2"])
def test_nothing_is_sent_to_a_peer_that_the_vector_has_removed(child: Callable[..., Child], provider: str) -> None:
    """fi_av(3): an address must not be used after its removal. rxm crashed: the endpoint had the number still."""
    skip_without(provider, Caps.MSG)
    child(remove, provider).result()


async def test_an_alias_forgets_a_peer_as_well() -> None:
    async with peers("sockets") as (one, other, peer, _):
        with one.alias(OpFlags(0)) as alias:
            await alias.send(b"first", to=peer)
            assert await other.recv() == b"first"
            one.remove_peer(peer)
            with pytest.raises(ValueError, match="was removed"):
                await alias.send(b"second", to=peer)


async def test_the_contexts_of_a_peer_go_with_it() -> None:
    async with (
        aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets", receive=2) as one,
        aiofabric.open_scalable_endpoint("127.0.0.1", provider="sockets", receive=2) as other,
    ):
        peer = await one.add_peer(other.local_address)
        second = peer.context(1)
        await one.transmit[0].send(b"first", to=second)
        assert await other.receive[1].recv() == b"first"
        one.vector.remove(peer)
        with pytest.raises(ValueError, match="was removed"):
            await one.transmit[0].send(b"second", to=second)


async def send_and_stay(parent: Parent, receiver: bytes, size: int) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as one, anyio.create_task_group() as tasks:
        peer = await one.add_peer(receiver)
        parent.tell(one.local_address.raw)
        tasks.start_soon(lambda: one.send_tagged(bytes(size), 7, to=peer))
        await anyio.wait_all_tasks_blocked()
        while one.statistics().queued:  # noqa: ASYNC110 - no event tells that the provider has it
            await anyio.sleep(0.001)
        parent.tell("posted")
        await parent.areceive()
        tasks.cancel_scope.cancel()


async def remove_the_sender(parent: Parent, size: int) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as one:
        parent.tell(one.local_address.raw)
        peer = await one.add_peer(await parent.areceive())
        parent.tell("added")
        with anyio.move_on_after(0.3):  # the provider reads its queue meanwhile
            await one.recv_tagged(8, max_bytes=8)
        one.remove_peer(peer)
        message = await one.recv_tagged(7, max_bytes=size)
        assert (len(message), message.source) == (size, None)
        assert (await one.add_peer(peer.address)).native == peer.native


@pytest.mark.parametrize("size", [1000, 20_000])
def test_a_message_waits_longer_than_its_sender_is_a_peer(child: Callable[..., Child], size: int) -> None:
    """shm read it from memory that fi_av_remove had unmapped."""
    skip_without("shm", Caps.TAGGED)
    receiving = child(remove_the_sender, size)
    sending = child(send_and_stay, receiving.receive(), size)
    receiving.tell(sending.receive())
    assert receiving.receive() == "added"
    assert sending.receive() == "posted"
    receiving.result()
    sending.tell("enough")
    sending.result()


async def test_kept_numbers_of_removed_peers_leave_room_for_others() -> None:
    skip_without("shm", Caps.MSG)
    if aiofabric.library_version() < (1, 18):
        pytest.skip("1.17's shm never uses the number of a name for another one")
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as one:
        for number in range(300):  # an endpoint can have 256
            one.vector.remove(one.vector.insert(f"fi_shm://removed-{number}"))
        for number in range(240):
            one.vector.insert(f"fi_shm://stays-{number}")
        assert len(one.vector) == 240
