"""Which Info is chosen, from the arguments of connect, listen and open_endpoint. Nothing is opened but domains."""

# Doubles: a libfabric that lists its providers in another order; one that has no offer for a port in use, like verbs.

from typing import Any

import pytest

import aiofabric
from aiofabric import Address, Caps, EndpointType, EpAttr, Hints, Info, NoProviderError, TrafficClass
from aiofabric.info import DomainAttr, FabricAttr, TxAttr
from aiofabric.info.discovery import offers
from aiofabric.transport.opening import resolution, selection

pytestmark = [pytest.mark.anyio, pytest.mark.once]

MSG, RDM, DGRAM = EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM
NAMED = ("net", "sockets")  # used by name only


async def find(node: Any = "127.0.0.1", service: Any = 5, **arguments: Any) -> Info:
    return await selection.find(node, service, **arguments)


async def find_connectable(node: Any = "127.0.0.1", service: Any = 5, **arguments: Any) -> Info:
    unset: dict[str, Any] = {"provider": None, "domain": None, "hints": None}
    return await selection.find_connectable(node, service, **(unset | arguments))


def chosen(info: Info) -> tuple[str, EndpointType]:
    return info.fabric_attr.prov_name, info.ep_attr.type


# -- providers


@pytest.mark.parametrize("kind", [MSG, RDM, DGRAM])
async def test_a_provider_that_is_used_by_name_only_is_not_the_first_choice(
    kind: EndpointType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever libfabric lists first."""
    assert (await find(kind=kind)).fabric_attr.prov_name not in NAMED
    monkeypatch.setattr(selection, "offers", lambda *args, **keywords: offers(*args, **keywords)[::-1])
    assert (await find(kind=kind)).fabric_attr.prov_name not in NAMED


@pytest.mark.parametrize(
    "place",
    [
        ("127.0.0.1", 7),
        ("127.0.0.1", "7"),
        ("fi_sockaddr://127.0.0.1:7", None),
        (Address.from_ip("127.0.0.1", 7), None),
    ],
)
async def test_a_port_in_use_changes_no_choice(place: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its use is an error of opening the listener, and no reason to listen over another provider."""

    def binding(node: Any, service: Any, hints: Hints, **keywords: Any) -> list[Info]:
        used = service in (7, "7") or str(node).endswith(":7") or str(hints.src_addr).endswith(":7")
        return [] if used and hints.ep_attr.type == MSG else offers(node, service, hints=hints, **keywords)

    monkeypatch.setattr(selection, "offers", binding)
    info = await find_connectable(*place, passive=True)
    assert info.ep_attr.type == MSG
    assert info.src_addr == Address.from_ip("127.0.0.1", 7)


async def test_a_provider_that_is_used_by_name_only_is_better_than_none() -> None:
    info = await find(kind=MSG, hints=Hints(caps=Caps.MSG | Caps.ATOMIC))
    assert info.fabric_attr.prov_name == "sockets"


@pytest.mark.parametrize("name", ["sockets", "tcp"])
async def test_a_named_provider_is_used(name: str) -> None:
    assert (await find(kind=MSG, provider=name)).fabric_attr.prov_name == name
    named = Hints(fabric_attr=FabricAttr(prov_name=name))
    assert (await find(kind=MSG, hints=named)).fabric_attr.prov_name == name


# -- capabilities


async def test_messages_and_remote_memory_are_asked_for_where_nothing_else_is_said() -> None:
    info = await find(kind=MSG)
    assert info.caps & (Caps.MSG | Caps.RMA) == Caps.MSG | Caps.RMA


async def test_an_endpoint_type_without_remote_memory_is_found_all_the_same() -> None:
    info = await find(kind=DGRAM)
    assert (info.fabric_attr.prov_name, info.caps & Caps.RMA) == ("udp", Caps(0))


async def test_the_hints_name_all_capabilities() -> None:
    info = await find(kind=MSG, hints=Hints(caps=Caps.MSG))
    assert not info.caps & Caps.RMA


@pytest.mark.parametrize("caps", [Caps.MSG, Caps.MSG | Caps.RMA])
async def test_a_domain_s_capabilities_are_asked_for(caps: Caps) -> None:
    offer = await find(kind=MSG, hints=Hints(caps=caps))
    with aiofabric.Domain(offer) as domain:
        info = await find(kind=MSG, domain=domain)
    assert info.caps & (Caps.MSG | Caps.RMA) == caps
    assert info.domain_attr.name == offer.domain_attr.name
    assert info.fabric_attr.name == offer.fabric_attr.name


async def test_what_a_domain_has_too_much_for_a_type_is_left_out() -> None:
    """Datagrams have no remote memory, but the domain was opened with it."""
    offer = await find(kind=RDM, provider="sockets", hints=Hints(caps=Caps.MSG | Caps.RMA))
    with aiofabric.Domain(offer) as domain:
        info = await find(kind=DGRAM, caps=Caps.MSG | Caps.MULTICAST, domain=domain)
    assert info.caps & (Caps.MSG | Caps.RMA | Caps.TAGGED) == Caps.MSG


# -- addresses


@pytest.mark.parametrize("provider", [None, "tcp"])
async def test_the_address_is_the_peer_s_or_the_local_one(provider: str | None) -> None:
    assert (await find(kind=MSG, provider=provider)).dest_addr == Address.from_ip("127.0.0.1", 5)
    theirs = await find_connectable(provider=provider)
    assert theirs.dest_addr == Address.from_ip("127.0.0.1", 5)
    ours = await find_connectable(provider=provider, passive=True)
    assert (ours.src_addr, ours.dest_addr) == (Address.from_ip("127.0.0.1", 5), None)


async def test_without_a_service_the_local_port_is_free() -> None:
    ours = await find(None, None, kind=MSG, provider="tcp", passive=True)
    assert ours.src_addr is not None
    assert ours.src_addr.port == 0


async def test_a_uri_has_its_own_port() -> None:
    ours = await find("fi_sockaddr_in://127.0.0.1:7", None, kind=MSG, provider="tcp", passive=True)
    assert ours.src_addr == Address.from_ip("127.0.0.1", 7)


@pytest.mark.parametrize("passive", [False, True])
async def test_a_whole_address_is_used_as_it_is(passive: bool) -> None:
    address = Address.from_ip("127.0.0.1", 7)
    info = await find(address, None, kind=MSG, passive=passive)
    assert (info.src_addr if passive else info.dest_addr) == address


@pytest.mark.parametrize("passive", [False, True])
async def test_a_chosen_info_gets_the_address(passive: bool) -> None:
    offer = await find(service=0, kind=MSG, provider="tcp")
    info = await find(kind=MSG, info=offer, passive=passive)
    assert (info.src_addr if passive else info.dest_addr) == Address.from_ip("127.0.0.1", 5)
    assert info.domain_attr.name == offer.domain_attr.name
    again = await find(Address.from_ip("127.0.0.1", 9), None, kind=MSG, info=info, passive=passive)
    assert (again.src_addr if passive else again.dest_addr) == Address.from_ip("127.0.0.1", 9)


@pytest.mark.parametrize(("node", "service"), [(None, 5), ("0.0.0.0", None)])
async def test_a_part_of_an_address_is_set_in_a_chosen_info(node: Any, service: Any) -> None:
    offer = await find(None, None, kind=MSG, provider="tcp", passive=True)
    info = await find(node, service, kind=MSG, info=offer, passive=True)
    assert info.src_addr is not None
    assert info.src_addr.port == (service or 0)


@pytest.mark.parametrize(("provider", "kind"), [("tcp", MSG), ("udp", DGRAM), ("sockets", RDM)])
async def test_a_port_alone_is_a_port_of_the_chosen_interface(provider: str, kind: EndpointType) -> None:
    hints = Hints(ep_attr=EpAttr(type=kind), fabric_attr=FabricAttr(prov_name=provider))
    interfaces = [(each.src_addr.host, each) for each in aiofabric.getinfo(hints=hints) if each.src_addr is not None]
    loopback = [(host, each) for host, each in interfaces if host in ("127.0.0.1", "::1")]
    assert loopback
    for host, offer in loopback:
        info = await find(None, 5, kind=kind, info=offer, passive=True)
        assert info == offer.replace(src_addr=Address.from_ip(host, 5))


async def test_a_chosen_info_keeps_its_address_if_none_is_given() -> None:
    offer = await find(kind=MSG)
    assert await find(None, None, kind=MSG, info=offer) is offer
    assert await find_connectable(None, None, info=offer) is offer


async def test_an_address_of_another_format_is_no_address_of_a_chosen_info() -> None:
    offer = await find(kind=MSG)
    with pytest.raises(NoProviderError, match="address"):
        await find(Address.from_ip("::1", 5), None, kind=MSG, info=offer)


async def test_a_number_needs_no_thread() -> None:
    """The answer comes before the first step of the loop."""
    asked = selection.find("127.0.0.1", 5, kind=MSG)
    with pytest.raises(StopIteration):
        asked.send(None)


# -- connections over both types of endpoints


async def test_connections_are_made_with_connected_endpoints_if_there_are_any() -> None:
    assert chosen(await find_connectable()) == ("tcp", MSG)
    assert chosen(await find_connectable(provider="sockets")) == ("sockets", MSG)


@pytest.mark.parametrize("name", ["shm", "tcp;ofi_rxm"])
async def test_otherwise_with_tagged_messages(name: str) -> None:
    info = await find_connectable(provider=name)
    assert chosen(info) == (name, RDM)
    assert info.caps & (Caps.TAGGED | Caps.RMA) == Caps.TAGGED | Caps.RMA
    assert not info.caps & Caps.MSG


async def test_the_host_is_no_address_of_a_provider_that_has_others() -> None:
    unnamed, named = await find_connectable(None, 5, provider="shm"), await find_connectable(provider="shm")
    assert (named.src_addr, named.dest_addr) == (unnamed.src_addr, unnamed.dest_addr)


async def test_a_raw_address_of_a_connectionless_endpoint_is_the_peer_s() -> None:
    theirs = Address.from_str("fi_shm://somebody")
    info = await find_connectable(theirs, None, provider="shm")
    assert chosen(info) == ("shm", RDM)
    assert info.dest_addr == theirs


async def test_hints_for_connectionless_endpoints_are_obeyed() -> None:
    info = await find_connectable(hints=Hints(ep_attr=EpAttr(type=RDM)))
    assert info.ep_attr.type == RDM
    assert Caps.TAGGED in info.caps


async def test_a_domain_for_connectionless_endpoints_is_obeyed() -> None:
    offer = await find(kind=RDM, provider="sockets", hints=Hints(caps=Caps.TAGGED | Caps.RMA))
    with aiofabric.Domain(offer) as domain:
        assert chosen(await find_connectable(domain=domain)) == ("sockets", RDM)


async def test_hints_come_before_the_domain() -> None:
    offer = await find(kind=RDM, provider="sockets", hints=Hints(caps=Caps.MSG | Caps.TAGGED | Caps.RMA))
    with aiofabric.Domain(offer) as domain:
        info = await find_connectable(domain=domain, hints=Hints(ep_attr=EpAttr(type=MSG)))
    assert chosen(info) == ("sockets", MSG)


async def test_few_capabilities_are_asked_for_though_the_domain_has_more() -> None:
    offer = await find(kind=MSG, provider="sockets", hints=Hints(caps=Caps.MSG | Caps.RMA | Caps.TAGGED | Caps.ATOMIC))
    with aiofabric.Domain(offer) as domain:
        info = await find_connectable(domain=domain)
    assert info.caps & (Caps.MSG | Caps.RMA | Caps.TAGGED | Caps.ATOMIC) == Caps.MSG | Caps.RMA


async def test_tags_are_added_to_the_hints_of_connectionless_endpoints() -> None:
    info = await find_connectable(provider="tcp;ofi_rxm", hints=Hints(caps=Caps.MSG | Caps.RMA))
    assert info.caps & (Caps.MSG | Caps.RMA | Caps.TAGGED) == Caps.MSG | Caps.RMA | Caps.TAGGED


@pytest.mark.parametrize("passive", [False, True])
async def test_the_host_selects_the_interface_of_a_connectionless_endpoint(passive: bool) -> None:
    """Its port is free: the peer is found over TCP."""
    info = await find_connectable("127.0.0.1", 5, provider="tcp;ofi_rxm", passive=passive)
    assert info.src_addr == Address.from_ip("127.0.0.1", 0)
    uri = await find_connectable("fi_sockaddr_in://127.0.0.1:5", None, provider="tcp;ofi_rxm", passive=passive)
    assert uri.src_addr == Address.from_ip("127.0.0.1", 0)
    whole = await find_connectable(Address.from_ip("127.0.0.1", 5), None, provider="tcp;ofi_rxm", passive=passive)
    assert whole.src_addr == Address.from_ip("127.0.0.1", 0)


async def test_a_chosen_info_for_connectionless_endpoints_is_used_as_it_is() -> None:
    offer = await find(kind=RDM, provider="tcp;ofi_rxm")
    assert await find_connectable(info=offer) is offer


async def test_a_chosen_info_for_connected_endpoints_gets_the_address() -> None:
    offer = await find(service=0, kind=MSG, provider="tcp")
    assert (await find_connectable(info=offer)).dest_addr == Address.from_ip("127.0.0.1", 5)
    assert (await find_connectable(info=offer, passive=True)).src_addr == Address.from_ip("127.0.0.1", 5)


async def test_datagrams_make_no_connections() -> None:
    offer = await find(kind=DGRAM)
    with pytest.raises(ValueError, match="FI_EP_DGRAM"):
        await find_connectable(info=offer)


async def test_an_info_of_another_type_is_refused() -> None:
    offer = await find(kind=DGRAM)
    with pytest.raises(ValueError, match=r"the info is of FI_EP_DGRAM, but the endpoint to open is FI_EP_MSG"):
        await find(kind=MSG, info=offer)


@pytest.mark.parametrize("type_", [None, RDM])
async def test_the_error_names_what_nobody_has(type_: EndpointType | None) -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name="nosuch"))
    if type_ is not None:
        hints = Hints(ep_attr=EpAttr(type=type_), fabric_attr=FabricAttr(prov_name="nosuch"))
    with pytest.raises(NoProviderError, match="nosuch") as caught:
        await find_connectable(hints=hints)
    assert str(type_ or MSG).removeprefix("FI_EP_") in str(caught.value)


# -- traffic classes


@pytest.mark.parametrize(
    ("domain", "transmit", "found"),
    [
        (TrafficClass.UNSPEC, TrafficClass.UNSPEC, (TrafficClass.UNSPEC, TrafficClass.UNSPEC)),
        (TrafficClass.BULK_DATA, TrafficClass.UNSPEC, (TrafficClass.BULK_DATA, TrafficClass.BULK_DATA)),
        (TrafficClass.UNSPEC, TrafficClass.LOW_LATENCY, (TrafficClass.UNSPEC, TrafficClass.LOW_LATENCY)),
        (TrafficClass.BULK_DATA, TrafficClass.LOW_LATENCY, (TrafficClass.BULK_DATA, TrafficClass.LOW_LATENCY)),
    ],
)
async def test_a_traffic_class_is_that_of_the_endpoint_or_of_the_domain(
    domain: TrafficClass, transmit: TrafficClass, found: tuple[TrafficClass, TrafficClass]
) -> None:
    hints = Hints(domain_attr=DomainAttr(tclass=domain), tx_attr=TxAttr(tclass=transmit))
    info = await find(kind=MSG, provider="tcp", hints=hints)
    assert (info.domain_attr.tclass, info.tx_attr.tclass) == found


# -- names


@pytest.mark.parametrize("node", ["127.0.0.1", "::1", "fi_sockaddr_in://127.0.0.1:5", Address.from_ip("127.0.0.1", 5)])
async def test_what_is_no_name_is_one_place(node: Any) -> None:
    assert await resolution.places(node, None if "5" in str(node) else 7) == [(node, None if "5" in str(node) else 7)]


async def test_a_name_is_as_many_places_as_it_has_addresses() -> None:
    found = await resolution.places("localhost", 7)
    assert (Address.from_ip("127.0.0.1", 7), None) in found
    assert all(isinstance(node, Address) and node.port == 7 and service is None for node, service in found)


@pytest.mark.parametrize(("node", "service"), [("no.such.host.invalid", 7), ("127.0.0.1", "nosuch"), (None, "nosuch")])
async def test_a_name_that_does_not_resolve_is_an_error(node: Any, service: Any) -> None:
    with pytest.raises(aiofabric.NameResolutionError):
        await resolution.must_resolve(node, service)


@pytest.mark.parametrize(
    ("node", "service"), [("localhost", 7), ("127.0.0.1", "7"), (None, 7), (Address.from_ip("127.0.0.1", 5), None)]
)
async def test_what_resolves_is_no_error(node: Any, service: Any) -> None:
    await resolution.must_resolve(node, service)
