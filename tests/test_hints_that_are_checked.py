"""Hints that libfabric would read past the end, ignore, or answer with something else (man page: fi_getinfo)."""

import socket
from typing import Any

import pytest

import aiofabric
from aiofabric import (
    Address,
    AddressFormat,
    Caps,
    DomainAttr,
    EpAttr,
    FabricAttr,
    Hints,
    MrMode,
    NoProviderError,
    NotSupportedError,
    TrafficClass,
    TxAttr,
    getinfo,
)

HERE = "127.0.0.1"
FAMILY = socket.AF_INET.to_bytes(2, "little")


@pytest.mark.parametrize("field", ["src_addr", "dest_addr"])
@pytest.mark.parametrize("raw", [b"", FAMILY, FAMILY + bytes(13), b"\xff\xff" + bytes(40)])
def test_an_incomplete_socket_address_is_refused(field: str, raw: bytes) -> None:
    """libfabric reads as many bytes as the family has."""
    for format in (AddressFormat.SOCKADDR, AddressFormat.SOCKADDR_IN, AddressFormat.SOCKADDR_IN6):
        addresses: Any = {field: Address(format, raw)}
        with pytest.raises(ValueError, match="no complete socket address of the format"):
            getinfo(hints=Hints(**addresses))


def test_the_scheme_of_a_text_address_belongs_to_its_host() -> None:
    for text in ("fi_sockaddr_in6://127.0.0.1:7471", "fi_sockaddr_in://[::1]:7471"):
        with pytest.raises(ValueError, match="is not an address"):
            getinfo(text)
        with pytest.raises(ValueError, match="with an address of that format"):
            Address.from_str(text)
    assert getinfo("fi_sockaddr://127.0.0.1:7471") == getinfo("fi_sockaddr_in://127.0.0.1:7471")


def test_the_format_of_addresses_excludes_a_node_of_another() -> None:
    """libfabric takes the format of the node, and ignores that of the hints."""
    for node, format in ((HERE, AddressFormat.SOCKADDR_IN6), ("::1", AddressFormat.SOCKADDR_IN)):
        with pytest.raises(NoProviderError, match=f"It would match without addr_format={format}"):
            getinfo(node, 7471, hints=Hints(addr_format=format))
    asked = Hints(addr_format=AddressFormat.SOCKADDR_IN6)
    assert {info.addr_format for info in getinfo("::1", 7471, hints=asked)} == {AddressFormat.SOCKADDR_IN6}


def test_default_hints_match_offers_of_an_old_version() -> None:
    tcp = Hints(fabric_attr=FabricAttr(prov_name="tcp"))
    assert getinfo(HERE, 7471, hints=tcp, version=(1, 4))
    basic = tcp.replace(domain_attr={"mr_mode": MrMode.BASIC})
    assert {info.domain_attr.mr_mode for info in getinfo(HERE, 7471, hints=basic, version=(1, 4))} == {MrMode.BASIC}


@pytest.mark.parametrize("name", ["max_order_raw_size", "max_order_war_size", "max_order_waw_size"])
def test_minus_one_asks_for_an_order_of_any_size(name: str) -> None:
    sizes: Any = {name: -1}
    hints = Hints(ep_attr=EpAttr(**sizes), fabric_attr=FabricAttr(prov_name="sockets"))
    assert getattr(hints.ep_attr, name) == (1 << 64) - 1
    for info in aiofabric.info.discovery.offers(hints=hints):
        assert getattr(info.ep_attr, name) == (1 << 64) - 1
    with pytest.raises(ValueError, match="does not fit"):
        getinfo(hints=Hints(domain_attr=DomainAttr(mr_cnt=-1)))


def test_numbers_of_the_program_for_peers_are_refused() -> None:
    """2.5 grants FI_AV_USER_ID, does nothing for it, and offers rxm instead of tcp."""
    words = r"a message names its sender as a Peer, .*\. Leave FI_AV_USER_ID out of the hints$"
    with pytest.raises(NotSupportedError, match=words):
        getinfo(hints=Hints(caps=Caps.MSG | Caps.AV_USER_ID))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tx_attr": {"size": 16}}, r"tx_attr must be a TxAttr, such as TxAttr\(\), not \{'size': 16\}"),
    ({"fabric_attr": None}, r"fabric_attr must be a FabricAttr, such as FabricAttr\(\), not None"),
    ({"src_addr": "127.0.0.1:7471"}, "src_addr must be an Address"),
    ({"caps": "MSG"}, "caps must be a number, such as <Caps: 0>, not 'MSG'"),
    ({"mode": None}, "mode must be a number"),
]


@pytest.mark.parametrize(("fields", "error"), WRONG)
def test_a_field_of_another_type_is_refused_by_its_name(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        Hints(**fields)
    hints = Hints()
    for name, value in fields.items():
        setattr(hints, name, value)
    with pytest.raises(TypeError, match=error):
        getinfo(hints=hints)


@pytest.mark.parametrize("name", ["LOCAL_COMM", "REMOTE_COMM", "SOURCE", "DIRECTED_RECV", "MULTI_RECV", "RMA_EVENT"])
def test_an_offer_has_each_capability_that_was_asked_for(name: str) -> None:
    """rxm and rxd of 2.5 offer the loopback device for FI_REMOTE_COMM, without it."""
    caps = Caps.MSG | Caps[name]
    assert [info for info in getinfo(hints=Hints(caps=caps)) if caps not in info.caps] == []


@pytest.mark.parametrize(
    "asked",
    [{"tx_attr": TxAttr(tclass=TrafficClass.BULK_DATA)}, {"domain_attr": DomainAttr(tclass=TrafficClass.BULK_DATA)}],
    ids=["endpoint", "domain"],
)
def test_an_offer_has_the_traffic_class_that_was_asked_for(asked: dict[str, Any]) -> None:
    """libfabric returns none, and `info=` opens with that of the offer."""
    offers = getinfo(HERE, 7471, hints=Hints(fabric_attr=FabricAttr(prov_name="tcp"), **asked))
    assert {info.tx_attr.tclass for info in offers} == {TrafficClass.BULK_DATA}
    assert {info.domain_attr.tclass for info in offers} == {asked.get("domain_attr", DomainAttr()).tclass}
    (without,) = {info.tx_attr.tclass for info in getinfo(HERE, 7471, hints=Hints())}
    assert without == TrafficClass.UNSPEC
