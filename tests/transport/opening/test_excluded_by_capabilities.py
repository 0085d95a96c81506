"""fi_getinfo(3): operations that an endpoint's capabilities exclude are refused, and nothing is posted for them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    SHARED_CONTEXT,
    Caps,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    GetInfoFlags,
    Hints,
    NotSupportedError,
    OpFlags,
    RdmEndpoint,
    RemoteRegion,
    SharedReceive,
)
from tests.fixtures.peers import peers, skip_without, where
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

PROVIDERS = ["tcp;ofi_rxm", "tcp", "shm", "sm2", "udp;ofi_rxd", "sockets", "net"]
HERE = "127.0.0.1"


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    skip_without(name, Caps.MSG | Caps.TAGGED | Caps.SEND)
    return name


async def made(call: Callable[[], Any]) -> None:
    answer = call()
    await (answer.__aenter__() if hasattr(answer, "__aenter__") else answer)


async def refused(words: str, *calls: Callable[[], Any]) -> None:
    """Each call raises at once: nothing waits for what cannot come."""
    for call in calls:
        with anyio.fail_after(5), pytest.raises(NotSupportedError, match=f"opened without {words}: add Caps"):
            await made(call)


def plain_sends(ep: Any, **to: Any) -> list[Callable[[], Any]]:
    return [
        lambda: ep.send(b"x", **to),
        lambda: ep.send(b"x", **to, remote_data=1),
        lambda: ep.try_send(b"x", **to),
        lambda: ep.send_nowait(b"x", **to),
        lambda: ep.send_when(None, b"x", **to),
    ]


def plain_receives(ep: Any) -> list[Callable[[], Any]]:
    return [
        ep.recv,
        lambda: ep.recv(10),
        ep.recv_nowait,
        lambda: ep.recv_into(bytearray(9)),
        ep.recv_view,
        ep.__anext__,
        lambda: ep.set_sink(print),
    ]


def tagged_receives(ep: Any) -> list[Callable[[], Any]]:
    return [
        lambda: ep.recv_tagged(1),
        lambda: ep.recv_tagged_into(bytearray(9), 1),
        lambda: ep.peek_tagged(1),
        lambda: ep.claim_tagged(1),
        lambda: ep.discard_tagged(1),
    ]


def reads(ep: Any, remote: RemoteRegion, to: Any) -> list[Callable[[], Any]]:
    return [
        lambda: ep.read(remote, to=to),
        lambda: ep.read_into(bytearray(64), remote, to=to),
        lambda: ep.read_into_when(None, bytearray(64), remote, to=to),
    ]


def writes(ep: Any, remote: RemoteRegion, to: Any) -> list[Callable[[], Any]]:
    return [lambda: ep.write(bytes(64), remote, to=to), lambda: ep.write_when(None, bytes(64), remote, to=to)]


def opened(provider: str, caps: Caps | None) -> Any:
    return aiofabric.open_endpoint(EndpointType.RDM, where(provider), provider=provider, caps=caps)


async def test_one_sends_and_the_other_receives(provider: str) -> None:
    """ "FI_SEND ... FI_RECV": of an endpoint for messages that names one of them only."""
    kinds = Caps.MSG | Caps.TAGGED
    async with opened(provider, kinds | Caps.SEND) as sender, opened(provider, kinds | Caps.RECV) as receiver:
        to = await sender.add_peer(receiver.local_address)
        back = await receiver.add_peer(sender.local_address)
        assert isinstance(sender, RdmEndpoint)
        assert (type(sender).__name__, sender.recv_size, sender.recv_count) == ("RdmEndpoint", None, 0)
        assert sender.statistics().receives == 0
        await refused("FI_RECV", *plain_receives(sender), *tagged_receives(sender))
        await refused("FI_SEND", *plain_sends(receiver, to=back), lambda: receiver.batch(to=back))
        await refused("FI_SEND", lambda: receiver.send_tagged(b"x", 1, to=back))
        with anyio.fail_after(10):
            for size in (9, 5000, 60_000):
                async with anyio.create_task_group() as tg:
                    tg.start_soon(partial(sender.send, bytes(size), to=to))
                    assert len(await receiver.recv()) == size
            await sender.send_tagged(b"tagged", 7, to=to)
            assert await receiver.recv_tagged(7) == b"tagged"


async def test_without_tags(provider: str) -> None:
    async with peers(provider, Caps.MSG) as (one, other, there, _):
        words = r"FI_TAGGED \| FI_(SEND|RECV)"
        await refused(words, lambda: one.send_tagged(b"x", 1, to=there), *tagged_receives(one))
        async with one.batch(to=there) as batch:
            await refused(words, lambda: batch.send(b"x", tag=1))
            await batch.send(b"plain")
        assert await other.recv() == b"plain"


async def test_without_plain_messages(provider: str) -> None:
    async with peers(provider, Caps.TAGGED) as (one, other, there, _):
        assert other.statistics().pool is None
        await refused(r"FI_MSG \| FI_(SEND|RECV)", *plain_sends(one, to=there), *plain_receives(other))
        async with one.batch(to=there) as batch:
            await refused(r"FI_MSG \| FI_SEND", lambda: batch.send(b"x"))
            await batch.send(b"tagged", tag=4)
        assert await other.recv_tagged(4, max_bytes=100) == b"tagged"


@pytest.mark.parametrize("name", ["tcp;ofi_rxm", "tcp", "shm", "sockets", "udp;ofi_rxd"])
async def test_memory_in_one_direction(name: str) -> None:
    """ "FI_READ ... FI_WRITE ... FI_REMOTE_READ ... FI_REMOTE_WRITE"."""
    for mine, theirs, missing in (
        (Caps.READ, Caps.REMOTE_READ, "FI_WRITE"),
        (Caps.WRITE, Caps.REMOTE_WRITE, "FI_READ"),
    ):
        caps = Caps.MSG | Caps.RMA
        skip_without(name, caps | mine)
        async with opened(name, caps | mine) as one, opened(name, caps | theirs) as other:
            to, back = await one.add_peer(other.local_address), await other.add_peer(one.local_address)
            nothing = RemoteRegion(0, 0, 64)
            await refused(missing, *(writes(one, nothing, to) if mine == Caps.READ else reads(one, nothing, to)))
            await refused("FI_READ", *reads(other, nothing, back))
            await refused("FI_WRITE", *writes(other, nothing, back))


async def test_connections() -> None:
    """A connection of which one end only sends, and the other only receives; it still ends in order."""
    provider = require("tcp")
    got = []

    async def serve(listener: Any) -> None:
        async with await (await listener.accept_request()).accept() as ep:
            await refused("FI_SEND", *plain_sends(ep), ep.batch)
            got.extend([bytes(message) async for message in ep])

    receiving, sending = Hints(caps=Caps.MSG | Caps.RECV), Hints(caps=Caps.MSG | Caps.SEND)
    async with (
        aiofabric.listen(HERE, provider=provider, hints=receiving) as listener,
        anyio.create_task_group() as tg,
    ):
        tg.start_soon(serve, listener)
        async with await aiofabric.connect(listener.address, hints=sending) as ep:
            assert ep.recv_size is None
            await refused("FI_RECV", *plain_receives(ep))
            for number in range(100):
                await ep.send(b"%d" % number * 1000)
    assert got == [b"%d" % number * 1000 for number in range(100)]


async def test_aliases() -> None:
    async with peers("sockets", Caps.MSG | Caps.SEND) as (one, _, _, _):
        with one.alias(OpFlags.DELIVERY_COMPLETE) as alias:
            await refused("FI_RECV", *plain_receives(alias))


async def test_virtual_connections_need_both_directions() -> None:
    for caps in (Caps.SEND, Caps.RECV):
        hints = Hints(caps=Caps.TAGGED | caps)
        with pytest.raises(NotSupportedError, match=r"connections over tagged messages.*opened without FI_"):
            async with aiofabric.listen(where("shm"), provider="shm", hints=hints):
                pass


async def test_shared_receive_context() -> None:
    hints = Hints(
        caps=Caps.MSG | Caps.SEND,
        fabric_attr=FabricAttr(prov_name="sockets"),
        ep_attr=EpAttr(type=EndpointType.MSG, rx_ctx_cnt=SHARED_CONTEXT),
    )
    domain = Domain(aiofabric.getinfo(HERE, hints=hints)[0])
    with domain, pytest.raises(NotSupportedError, match="opened without FI_RECV: add Caps"):
        SharedReceive(domain)


async def test_contexts_of_scalable_endpoints() -> None:
    hints = Hints(caps=Caps.MSG | Caps.SEND)
    async with aiofabric.open_scalable_endpoint(HERE, provider=require("sockets"), hints=hints, receive=2) as ep:
        await refused("FI_RECV", *plain_receives(ep.receive[1]))
        await refused(r"FI_TAGGED \| FI_SEND", lambda: ep.transmit[0].send_tagged(b"x", 1))


async def test_nothing_is_left_out_unasked(provider: str) -> None:
    async with opened(provider, None) as ep:
        assert type(ep) is RdmEndpoint


@pytest.mark.parametrize("name", ["tcp;ofi_rxm", "shm", "sockets"])
async def test_the_contexts_of_an_endpoint_may_have_fewer_capabilities(name: str) -> None:
    """fi_endpoint(3), tx_attr.caps and rx_attr.caps: a subset of the endpoint's."""
    require(name)
    hints = Hints(
        caps=Caps.MSG | Caps.TAGGED | Caps.RMA,
        fabric_attr=FabricAttr(prov_name=name),
        ep_attr=EpAttr(type=EndpointType.RDM),
    )
    place = where(name)
    offers = aiofabric.getinfo(place, hints=hints, flags=GetInfoFlags.SOURCE if place else GetInfoFlags(0))
    sends = offers[0].replace(tx_attr={"caps": Caps.MSG | Caps.SEND}, rx_attr={"caps": Caps.TAGGED | Caps.RECV})
    async with aiofabric.open_endpoint(EndpointType.RDM, info=sends) as ep:
        peer = await ep.add_peer(ep.local_address)
        remote = RemoteRegion(key=1, address=0, length=1)
        await refused(r"FI_TAGGED \| FI_SEND", lambda: ep.send_tagged(b"x", tag=1, to=peer))
        await refused(r"FI_MSG \| FI_RECV", *plain_receives(ep))
        await refused(r"FI_RMA \| FI_READ", lambda: ep.read(remote, to=peer))
        await refused(r"FI_RMA \| FI_WRITE", lambda: ep.write(b"x", remote, to=peer))
