"""An endpoint is opened with exactly the caller's info= and domain=. Options that contradict them are refused."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Address,
    Bind,
    Caps,
    Counter,
    Domain,
    DomainAttr,
    EndpointType,
    EpAttr,
    Fabric,
    FabricAttr,
    FabricError,
    GetInfoFlags,
    Hints,
    Info,
    Mode,
    NoProviderError,
    NotSupportedError,
    Order,
    Threading,
    getinfo,
)
from tests.fixtures.children import Child, Parent
from tests.fixtures.peers import RARE, RDM, skip_without, where
from tests.fixtures.providers import HOST, require

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
CONNECTING = [("tcp", EndpointType.MSG), ("shm", EndpointType.RDM), ("tcp;ofi_rxm", EndpointType.RDM)]
RELIABLE = [*RDM, *RARE]
LONG = bytes(range(256)) * 160


def offer(provider: str, kind: EndpointType = EndpointType.RDM, caps: Caps | None = None) -> Info:
    """The first offer of a provider, at a local address."""
    hints = Hints(caps=caps or Caps(0), fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    here = where(provider, HOST)
    return getinfo(here, flags=GetInfoFlags.SOURCE if here else GetInfoFlags(0), hints=hints)[0]


# -- endpoints without connections


async def talk(one: Any, other: Any) -> None:
    peer = await one.add_peer(other.local_address)
    with anyio.fail_after(10):
        for data in (b"short", LONG[: other.max_message_size]):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(one.send, data, to=peer))
                assert await other.recv() == data


async def open_two(parent: Parent, provider: str, kind: EndpointType, caps: Caps) -> None:
    info = offer(provider, kind, caps).replace(tx_attr={"msg_order": Order(0)}, rx_attr={"msg_order": Order(0)})
    async with (
        aiofabric.open_endpoint(kind, info=info) as one,
        aiofabric.open_endpoint(kind, info=info) as other,
    ):
        assert one.info == other.info == info
        assert one.info.tx_attr.msg_order == 0
        await talk(one, other)


@pytest.mark.parametrize("caps", [Caps(0), Caps.MSG, Caps.MSG | Caps.SOURCE], ids=str)
@pytest.mark.parametrize(
    ("provider", "kind"), [*((name, EndpointType.RDM) for name in RELIABLE), ("udp", EndpointType.DGRAM)]
)
def test_an_endpoint_is_opened_with_the_caller_s_info(
    child: Callable[..., Child], provider: str, kind: EndpointType, caps: Caps
) -> None:
    """The application can reset the ordering bits it does not require before creating the endpoint.

    Nothing is added to its capabilities.
    """
    skip_without(provider, caps or Caps.MSG, kind)
    child(open_two, provider, kind, caps).result()


async def open_on_a_domain(parent: Parent, provider: str, kind: EndpointType) -> None:
    offers = getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind)))
    info = next(each for each in offers if each.src_addr is None or each.src_addr.host in (HERE, None))
    with Domain(info) as first, Domain(info) as second:
        counters: dict[Counter, Bind] = {}
        try:
            counters[Counter(first)] = Bind.SEND
        except NotSupportedError:
            assert provider == "udp"
        async with (
            aiofabric.open_endpoint(kind, domain=first, counters=counters) as one,
            aiofabric.open_endpoint(kind, domain=second) as other,
        ):
            assert one.info.caps == other.info.caps == info.caps
            await talk(one, other)
            for counter in counters:
                assert await counter.wait(2) >= 2


@pytest.mark.parametrize(
    ("provider", "kind"), [*((name, EndpointType.RDM) for name in RELIABLE), ("udp", EndpointType.DGRAM)]
)
def test_a_domain_s_endpoints_have_its_capabilities(
    child: Callable[..., Child], provider: str, kind: EndpointType
) -> None:
    """1.17's rxm crashed at the first message: the endpoint had FI_SOURCE and FI_DIRECTED_RECV, the domain had not."""
    skip_without(provider, Caps.MSG, kind)
    child(open_on_a_domain, provider, kind).result()


@pytest.mark.parametrize("provider", RELIABLE)
async def test_an_endpoint_with_more_than_its_domain_is_refused(provider: str) -> None:
    skip_without(provider, Caps.MSG | Caps.TAGGED)
    with Domain(offer(provider, caps=Caps.MSG)) as domain:
        missing = Caps.TAGGED & ~domain.info.caps
        assert missing
        for wish in (
            {"caps": Caps.MSG | Caps.TAGGED},
            {"hints": Hints(caps=Caps.TAGGED)},
            {"info": offer(provider, caps=Caps.MSG | Caps.TAGGED)},
        ):
            with pytest.raises(ValueError, match=r"the endpoint needs FI_TAGGED.*was opened without"):
                await aiofabric.open_endpoint(EndpointType.RDM, domain=domain, **wish).__aenter__()


async def open_raised(parent: Parent, provider: str, kind: EndpointType) -> None:
    info = offer(provider, kind)
    for part in ("tx_attr", "rx_attr"):
        attr = getattr(info, part)
        for field in fields(attr):
            if type(field.default) is int:
                more = 3 * max(getattr(attr, field.name), 1)
                parent.tell(f"{part}.{field.name}={more}")
                with suppress(FabricError):
                    await talk_whole(info.replace(**{part: {field.name: more}}), kind)
    parent.tell("done")


async def talk_whole(info: Info, kind: EndpointType) -> None:
    async with (
        aiofabric.open_endpoint(kind, info=info) as one,
        aiofabric.open_endpoint(kind, info=info) as other,
    ):
        await talk(one, other)
        data = bytes(min(one.max_inject, 60_000))  # if the array is too large, the provider copies too much
        await one.send(data, to=await one.add_peer(other.local_address))
        with anyio.fail_after(10):
            assert await other.recv() == data


@pytest.mark.parametrize(
    ("provider", "kind"), [*((name, EndpointType.RDM) for name in RELIABLE), ("udp", EndpointType.DGRAM)]
)
def test_a_size_above_the_offer_is_refused_or_works(
    child: Callable[..., Child], provider: str, kind: EndpointType
) -> None:
    skip_without(provider, Caps.MSG, kind)
    opening = child(open_raised, provider, kind)
    while opening.receive() != "done":
        pass


# -- connections


async def connect_two(parent: Parent, provider: str, kind: EndpointType) -> None:
    info = offer(provider, kind).replace(tx_attr={"msg_order": Order(0)}, rx_attr={"size": 32})
    async with aiofabric.listen(HERE, info=info) as listener, anyio.create_task_group() as tasks:
        assert listener.info.tx_attr == info.tx_attr

        async def answer() -> None:
            async with await (await listener.accept_request()).accept() as accepted:
                assert accepted.info.caps == info.caps
                assert accepted.info.tx_attr.msg_order == 0
                await accepted.send(await accepted.recv())

        tasks.start_soon(answer)
        async with await aiofabric.connect(listener.address, info=info) as endpoint:
            assert (endpoint.info.caps, endpoint.info.tx_attr, endpoint.info.rx_attr) == (
                (info.caps, info.tx_attr, info.rx_attr)
            )
            await endpoint.send(LONG)
            assert await endpoint.recv() == LONG


@pytest.mark.parametrize(("provider", "kind"), CONNECTING)
def test_both_ends_of_a_connection_are_opened_with_the_caller_s_info(
    child: Callable[..., Child], provider: str, kind: EndpointType
) -> None:
    require(provider)
    child(connect_two, provider, kind).result()


async def connect_on_domains(parent: Parent, provider: str, kind: EndpointType) -> None:
    with Domain(offer(provider, kind)) as first, Domain(offer(provider, kind)) as second:
        async with aiofabric.listen(HERE, domain=first) as listener, anyio.create_task_group() as tasks:

            async def answer() -> None:
                async with await (await listener.accept_request()).accept() as accepted:
                    assert accepted.info.caps & ~first.info.caps == 0
                    await accepted.send(await accepted.recv())

            tasks.start_soon(answer)
            async with await aiofabric.connect(listener.address, domain=second) as endpoint:
                assert endpoint.info.caps & ~second.info.caps == 0
                await endpoint.send(LONG)
                assert await endpoint.recv() == LONG


@pytest.mark.parametrize(("provider", "kind"), CONNECTING)
def test_connections_on_a_domain_have_its_capabilities(
    child: Callable[..., Child], provider: str, kind: EndpointType
) -> None:
    require(provider)
    child(connect_on_domains, provider, kind).result()


async def test_the_info_names_the_addresses_where_nobody_else_does(provider: str) -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=EndpointType.MSG))
    local = getinfo(HERE, 0, flags=GetInfoFlags.SOURCE, hints=hints)[0]
    async with aiofabric.listen(info=local) as listener, anyio.create_task_group() as tasks:
        assert listener.address.host == HERE

        async def accept() -> None:
            await (await (await listener.accept_request()).accept()).aclose()

        tasks.start_soon(accept)
        towards = getinfo(HERE, listener.address.port, hints=hints)[0]
        async with await aiofabric.connect(info=towards) as endpoint:
            assert endpoint.peer_address == listener.address
    with pytest.raises(TypeError, match="the address of the peer is missing"):
        await aiofabric.connect(info=towards.replace(dest_addr=None))


async def test_an_address_of_another_format_is_not_reached(provider: str) -> None:
    """A host's name may lead to addresses of both formats: the one that the info has is taken."""
    info = offer(provider, EndpointType.MSG)
    with pytest.raises(NoProviderError, match="addresses of this info are FI_SOCKADDR_IN"):
        await aiofabric.connect(Address.from_ip("::1", 9), info=info)
    with pytest.raises(NoProviderError, match="addresses of this info are FI_SOCKADDR_IN"):
        await aiofabric.listen(Address.from_ip("::1", 0), info=info).__aenter__()
    async with aiofabric.listen("localhost", info=info) as listener:
        assert listener.address.host == HERE


@pytest.mark.parametrize("provider", ["shm", "tcp;ofi_rxm"])
async def test_connections_over_an_info_without_tags_are_refused(provider: str) -> None:
    info = offer(require(provider), caps=Caps.MSG)
    with pytest.raises(NotSupportedError, match="opened without FI_TAGGED"):
        await aiofabric.listen(HERE, info=info).__aenter__()


async def test_a_datagram_info_connects_nobody() -> None:
    info = offer("udp", EndpointType.DGRAM)
    with pytest.raises(ValueError, match="the info is of FI_EP_DGRAM"):
        await aiofabric.connect(HERE, 9, info=info)


async def test_a_reservation_is_used_with_the_info(provider: str) -> None:
    info = offer(provider, EndpointType.MSG)
    async with aiofabric.reserve(HERE, provider=provider) as reservation:
        address = reservation.address
        async with aiofabric.listen(reservation=reservation, info=info) as listener:
            assert listener.address == address
    assert info.handle is None


# -- scalable endpoints


async def test_a_scalable_endpoint_is_opened_with_the_caller_s_info() -> None:
    hints = Hints(
        caps=Caps.MSG | Caps.NAMED_RX_CTX | Caps.SOURCE,
        fabric_attr=FabricAttr(prov_name="sockets"),
        ep_attr=EpAttr(type=EndpointType.RDM, tx_ctx_cnt=2, rx_ctx_cnt=2),
    )
    info = getinfo(HERE, flags=GetInfoFlags.SOURCE, hints=hints)[0].replace(tx_attr={"msg_order": Order(0)})
    async with (
        aiofabric.open_scalable_endpoint(info=info, transmit=2, receive=2) as one,
        aiofabric.open_scalable_endpoint(info=info, transmit=2, receive=2) as other,
    ):
        assert one.info == info
        peer = await one.add_peer(other.local_address)
        await one.transmit[1].send(b"x", to=peer.context(1))
        assert await other.receive[1].recv() == b"x"
    with pytest.raises(ValueError, match=r"does not have what the hints ask for \(ep_attr.rx_ctx_cnt=3"):
        await aiofabric.open_scalable_endpoint(info=info, transmit=2, receive=3).__aenter__()


# -- what does not fit together


@pytest.fixture
def tcp() -> Info:
    return offer("tcp", EndpointType.MSG)


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"provider": "udp"}, r"provider='udp' contradicts info=, which is of tcp"),
    ({"hints": Hints(caps=Caps.ATOMIC)}, r"does not have what the hints ask for \(caps=FI_ATOMIC\)"),
    ({"hints": Hints(ep_attr=EpAttr(type=EndpointType.RDM))}, r"ep_attr.type=FI_EP_RDM"),
    ({"hints": Hints(domain_attr=DomainAttr(name="eth7"))}, r"domain_attr.name='eth7'"),
    ({"hints": Hints(domain_attr=DomainAttr(cq_cnt=1 << 40))}, r"domain_attr.cq_cnt=1099511627776"),
    ({"hints": Hints(fabric_attr=FabricAttr(prov_name="shm"))}, r"fabric_attr.prov_name='shm'"),
    ({"hints": Hints(src_addr=Address.from_ip(HERE, 9))}, r"src_addr=fi_sockaddr_in://127.0.0.1:9"),
]


@pytest.mark.parametrize(("wish", "words"), CONTRADICTIONS, ids=[words for _, words in CONTRADICTIONS])
async def test_what_contradicts_the_info_is_refused(tcp: Info, wish: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        await aiofabric.connect(HERE, 9, info=tcp, **wish)
    with pytest.raises(ValueError, match=words):
        await aiofabric.listen(HERE, info=tcp, **wish).__aenter__()


async def test_a_provider_that_contradicts_the_hints_is_refused() -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name="shm"))
    with pytest.raises(ValueError, match="provider='tcp' contradicts the hints, which name shm"):
        await aiofabric.open_endpoint(EndpointType.RDM, provider="tcp", hints=hints).__aenter__()
    with pytest.raises(ValueError, match="provider='tcp' contradicts the hints, which name shm"):
        await aiofabric.connect(HERE, 9, provider="tcp", hints=hints)


async def test_what_agrees_with_the_info_is_taken(tcp: Info) -> None:
    hints = Hints(caps=Caps.MSG, tx_attr=tcp.tx_attr, domain_attr=DomainAttr(name="lo"))
    async with aiofabric.listen(HERE, info=tcp, provider="tcp", hints=hints) as listener:
        assert listener.info.tx_attr == tcp.tx_attr


@pytest.mark.parametrize("name", ["tcp;ofi_rxm", "ofi_rxm;tcp", "ofi_rxm", "tcp"])
async def test_a_layer_s_name_agrees_with_the_whole(name: str) -> None:
    """fi_fabric(3): prov_name may name the layers of a provider; what libfabric finds for a name agrees with it."""
    info = offer("tcp;ofi_rxm")
    async with aiofabric.open_endpoint(EndpointType.RDM, info=info, provider=name) as endpoint:
        assert endpoint.info == info
    with Domain(info) as domain:
        async with aiofabric.open_endpoint(EndpointType.RDM, domain=domain, provider=name) as endpoint:
            assert endpoint.domain is domain


async def test_what_contradicts_the_domain_is_refused(tcp: Info) -> None:
    """Before, the domain was used, and the other options were ignored."""
    with Domain(tcp) as domain:
        for wish, words in (
            ({"provider": "shm"}, "provider='shm' contradicts domain=, which is of tcp"),
            ({"hints": Hints(fabric_attr=FabricAttr(prov_name="shm"))}, r"hints= \(provider shm\) contradicts domain="),
            (
                {"hints": Hints(fabric_attr=FabricAttr(name="10.7.0.0/16"))},
                r"hints= \(fabric 10.7.0.0/16\) contradicts",
            ),
            ({"hints": Hints(domain_attr=DomainAttr(name="eth7"))}, r"hints= \(domain eth7\) contradicts domain="),
            ({"info": offer("udp", EndpointType.DGRAM)}, r"info= \(provider udp.*\) contradicts domain="),
        ):
            with pytest.raises(ValueError, match=words):
                await aiofabric.open_endpoint(EndpointType.DGRAM, domain=domain, **wish).__aenter__()


async def test_the_kind_of_endpoint_is_the_info_s(tcp: Info) -> None:
    with pytest.raises(ValueError, match="the info is of FI_EP_MSG, but the endpoint to open is FI_EP_RDM"):
        await aiofabric.open_endpoint(EndpointType.RDM, info=tcp).__aenter__()


async def test_a_domain_with_other_attributes_is_another_domain() -> None:
    """The domain is part of what the caller chose: endpoints share one where they chose the same."""
    info = offer("tcp;ofi_rxm", caps=Caps.MSG)  # with tags 2.x gives each endpoint its own
    other = info.replace(domain_attr={"threading": Threading.DOMAIN})
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, info=info) as first,
        aiofabric.open_endpoint(EndpointType.RDM, info=info) as second,
        aiofabric.open_endpoint(EndpointType.RDM, info=other) as third,
    ):
        assert first.domain is second.domain
        assert third.domain is not first.domain
        assert third.domain.info.domain_attr.threading == Threading.DOMAIN


async def test_what_is_no_info_is_refused(tcp: Info) -> None:
    for odd in ("x", 3, None, Hints(), tcp.native):
        with pytest.raises(TypeError, match="an Info, as getinfo"):
            Domain(odd)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="an Info, as getinfo"):
            Fabric(odd)  # type: ignore[arg-type]
    for odd in ("x", 3, tcp):
        with pytest.raises(TypeError, match="fabric must be an open Fabric or None"):
            Domain(tcp, odd)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="info must be an Info, as getinfo"):
        await aiofabric.connect(HERE, 9, info=Hints())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="provider must be a provider's name"):
        await aiofabric.reserve(HERE, provider=7).__aenter__()  # type: ignore[arg-type]


async def test_a_mode_that_aiofabric_does_not_do_is_refused(tcp: Info) -> None:
    """fi_getinfo(3): an application that does not have a mode that the provider needs cannot use the endpoint."""
    chosen = tcp.replace(mode=Mode(1 << 51))
    with pytest.raises(NotSupportedError, match=r"does not support\. Take an info of getinfo\(hints=Hints\(\)\)$"):
        Domain(chosen)
    with pytest.raises(NotSupportedError, match="which aiofabric does not support"):
        await aiofabric.connect(HERE, 9, info=chosen)
    with Domain(tcp) as domain, pytest.raises(NotSupportedError, match="which aiofabric does not support"):
        await aiofabric.connect(HERE, 9, info=chosen, domain=domain)
