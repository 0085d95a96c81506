"""Virtual connections to a raw address of the fabric: the query goes through the fabric."""

# Privates: the table of answered queries has a bound that nothing public shows.

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Address,
    Caps,
    Domain,
    EndpointType,
    EpAttr,
    Fabric,
    FabricConnectionAbortedError,
    FabricConnectionError,
    FabricConnectionRefusedError,
    FabricError,
    Hints,
    NoProviderError,
)
from aiofabric.transport.opening.selection import find, find_connectable
from aiofabric.transport.virtual import multiplexer as multiplexer
from aiofabric.transport.virtual.protocol import QUERY, QUERY_REPLY
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import handle_of
from tests.fixtures.peers import skip_without, where

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
ONE_LOOP = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])
RDM = Hints(ep_attr=EpAttr(type=EndpointType.RDM))


@pytest.fixture(params=["shm", "tcp;ofi_rxm", "tcp", "udp;ofi_rxd"])
def provider(request: pytest.FixtureRequest) -> str:
    """Two of them have IP addresses on either libfabric, so that a raw address looks like a host and a port."""
    name: str = request.param
    skip_without(name, Caps.MSG | Caps.TAGGED)
    return name


def connect(address: Address, provider: str, **options: Any) -> Any:
    return aiofabric.connect(address, raw=True, provider=provider, hints=RDM, **options)


def another_host() -> int:
    return 4711


async def serve(parent: Parent, provider: str, elsewhere: bool = False) -> None:
    """Accept, with private data both ways, until told otherwise; friends only."""
    if elsewhere:
        multiplexer.host_mark = another_host  # type: ignore[attr-defined]
    async with aiofabric.listen(HERE, 0, provider=provider, hints=RDM) as listener, anyio.create_task_group() as tasks:

        async def echo(request: aiofabric.ConnectionRequest) -> None:
            if request.param == b"unknown":
                request.reject(param=b"go away")
                return
            async with await request.accept(param=request.param + b"!") as endpoint:
                async for message in endpoint:
                    await endpoint.send(message)

        async def accept() -> None:
            async for request in listener:
                tasks.start_soon(echo, request)

        tasks.start_soon(accept)
        parent.tell(listener.fabric_address)
        while await parent.areceive():
            parent.tell(len(handle_of(listener).multiplexer.address_queries._answered))
        tasks.cancel_scope.cancel()


async def test_private_data_and_messages(provider: str, child: Callable[..., Child]) -> None:
    peer = child(serve, provider)
    address: Address = await peer.areceive()
    with anyio.fail_after(30):
        for n in range(3):
            async with await connect(address, provider, param=b"friend") as endpoint:
                assert endpoint.param == b"friend!"
                for size in (0, 1, 5000, 60_000):
                    await endpoint.send(bytes([n]) * size)
                    assert await endpoint.recv() == bytes([n]) * size
    peer.tell(False)
    await peer.aresult()


@ONE_LOOP
async def test_an_address_of_shared_memory_is_raw_by_itself(child: Callable[..., Child]) -> None:
    skip_without("shm", Caps.MSG | Caps.TAGGED)
    peer = child(serve, "shm")
    address: Address = await peer.areceive()
    with anyio.fail_after(30):
        for place in (address, str(address)):
            async with await aiofabric.connect(place, provider="shm", param=b"friend") as endpoint:
                assert endpoint.param == b"friend!"
    peer.tell(False)
    await peer.aresult()


@ONE_LOOP
async def test_rejected(provider: str, child: Callable[..., Child]) -> None:
    address = await child(serve, provider).areceive()
    with anyio.fail_after(30), pytest.raises(FabricConnectionRefusedError) as caught:
        await connect(address, provider, param=b"unknown")
    assert caught.value.param == b"go away"


@ONE_LOOP
async def test_killed_peer_is_missed_within_a_second(provider: str, child: Callable[..., Child]) -> None:
    peer = child(serve, provider)
    with anyio.fail_after(30):
        async with await connect(await peer.areceive(), provider, param=b"friend") as endpoint:
            await endpoint.send(b"alive?")
            assert await endpoint.recv() == b"alive?"
            peer.kill()
            with pytest.raises(FabricConnectionError), anyio.fail_after(1):
                await endpoint.recv()


@ONE_LOOP
async def test_nobody_there_ends_at_the_callers_deadline(provider: str, child: Callable[..., Child]) -> None:
    peer = child(serve, provider)
    address = await peer.areceive()
    peer.kill()
    with pytest.raises((TimeoutError, FabricError)), anyio.fail_after(0.5):
        await connect(address, provider)


@ONE_LOOP
async def test_unknown_peers_that_ask_nonsense(provider: str, child: Callable[..., Child]) -> None:
    """Frames of all lengths, with addresses that no endpoint has, in unexpected answers; then an honest client."""
    peer = child(serve, provider)
    address: Address = await peer.areceive()
    chance = random.Random(provider)
    nobody = [
        Address.from_ip(HERE, chance.randrange(1024, 65536)).raw if address.family else b"fi_shm://nobody-%d\0" % n
        for n in range(100)
    ]
    with anyio.fail_after(30):
        async with aiofabric.open_endpoint(EndpointType.RDM, where(provider), provider=provider) as unknown:
            there = await unknown.add_peer(address)
            for n, raw in enumerate(nobody):
                number = n.to_bytes(8, "big")
                for words in (b"\1" + number + raw, b"\2" + number + raw, chance.randbytes(n * 7), b"\1" + number):
                    tag = chance.choice([QUERY, QUERY, QUERY_REPLY, QUERY | n])
                    await unknown.send_tagged(words, tag, to=there)
        async with await connect(address, provider, param=b"friend") as endpoint:
            await endpoint.send(b"still there?")
            assert await endpoint.recv() == b"still there?"
    peer.tell(True)
    assert 0 < await peer.areceive() <= 64
    peer.tell(False)
    await peer.aresult()


async def impostor(parent: Parent, provider: str, answer: bytes) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, where(provider), provider=provider) as endpoint:
        parent.tell(endpoint.local_address)
        question = await endpoint.recv_tagged(QUERY)
        asker = await endpoint.add_peer(bytes(question[9:]))
        await endpoint.send_tagged(question[:9] + answer, QUERY_REPLY, to=asker)
        await parent.areceive()


@ONE_LOOP
@pytest.mark.parametrize("answer", [b"\0\0", b"\0", b"\0\1\xff\xfe"], ids=["no port", "half a port", "no host"])
async def test_answers_that_make_no_sense(provider: str, answer: bytes, child: Callable[..., Child]) -> None:
    address = await child(impostor, provider, answer).areceive()
    with anyio.fail_after(30), pytest.raises(FabricConnectionAbortedError, match="no listener") as caught:
        await connect(address, provider)
    assert caught.value.errno == errno.EPROTO


@ONE_LOOP
async def test_other_hosts_are_reached_by_what_reaches_them(provider: str, child: Callable[..., Child]) -> None:
    peer = child(serve, provider, True)
    address = await peer.areceive()
    with anyio.fail_after(30):
        if address.family:
            await (await connect(address, provider)).aclose()
        else:
            with pytest.raises(FabricConnectionRefusedError, match="of this host only"):
                await connect(address, provider)


@ONE_LOOP
async def test_one_listener_for_each_address(provider: str) -> None:
    listen = partial(aiofabric.listen, HERE, 0, provider=provider, hints=RDM)
    async with listen() as one, listen() as other:
        assert one.fabric_address == one.fabric_address
        with pytest.raises(FabricError, match="domain= of its own") as caught:
            str(other.fabric_address)
        assert caught.value.errno == errno.EADDRINUSE
        fabric = Fabric(one.info)
        with fabric, Domain(one.info, fabric) as domain:
            async with listen(domain=domain) as third:
                assert third.fabric_address != one.fabric_address
    async with listen() as again:
        assert again.fabric_address != again.address


async def test_where_the_provider_has_connections_it_is_the_same_address() -> None:
    async with aiofabric.listen(HERE, 0, provider="tcp") as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            async with await (await listener.accept_request()).accept() as endpoint:
                await endpoint.send(b"welcome")

        tasks.start_soon(accept)
        assert listener.fabric_address == listener.address
        with anyio.fail_after(5):
            async with await aiofabric.connect(str(listener.fabric_address), raw=True, provider="tcp") as endpoint:
                assert await endpoint.recv() == b"welcome"


@ONE_LOOP
async def test_what_is_no_raw_address() -> None:
    with pytest.raises(TypeError, match="a raw address must be"):
        await aiofabric.connect(HERE, 7471, raw=True)
    with pytest.raises(NoProviderError):
        await aiofabric.connect("fi_nobodys://address")


async def test_a_name_that_nobody_has_is_refused() -> None:
    skip_without("shm", Caps.MSG | Caps.TAGGED)
    with anyio.fail_after(10), pytest.raises(FabricConnectionRefusedError, match="No endpoint of this host has"):
        await aiofabric.connect("fi_shm://nobody-has-this-name")


@ONE_LOOP
@pytest.mark.parametrize("passive", [False, True])
@pytest.mark.parametrize("name", ["shm", "sm2"])
async def test_a_text_address_is_of_its_own_provider(name: str, passive: bool) -> None:
    """shm and sm2 accept each other's."""
    skip_without(name, Caps.MSG)
    own = (await find(None, None, kind=EndpointType.RDM, provider=name)).src_addr
    assert own is not None
    info = await find(own, None, kind=EndpointType.RDM, hints=Hints(caps=Caps.MSG), passive=passive)
    assert info.fabric_attr.prov_name == name
    assert (info.src_addr if passive else info.dest_addr) == own


@ONE_LOOP
@pytest.mark.parametrize("name", ["shm", "sm2"])
async def test_an_address_without_a_provider_chooses_the_provider_of_its_format(name: str) -> None:
    """Each of the two would also accept the other's."""
    skip_without(name, Caps.MSG | Caps.TAGGED)
    address = Address.from_str(f"fi_{name}://somewhere")
    info = await find_connectable(address, None, provider=None, domain=None, hints=None)
    assert info.fabric_attr.prov_name == name
