"""Statements of fi_getinfo(3) about more than a name; each test begins with the statement."""

# Doubles: an older version is requested than aiofabric asks for.

from operator import attrgetter

import pytest

import aiofabric
from aiofabric import (
    Address,
    AddressFormat,
    Caps,
    Domain,
    DomainAttr,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    Info,
    MrMode,
    NoProviderError,
    NotSupportedError,
    Order,
    TxAttr,
    api_version,
    getinfo,
)
from aiofabric._ffi import constants, ffi, lib
from aiofabric.info.discovery import offers
from tests.fixtures.children import run_in_child

HERE = "127.0.0.1"


# -- NULL hints


def native_offers() -> list[tuple[str, int]]:
    """libfabric's own answer to NULL node, service and hints."""
    found, native = [], ffi.new("struct fi_info **")
    assert lib.fi_getinfo(api_version().native, ffi.NULL, ffi.NULL, 0, ffi.NULL, native) == 0
    each = native[0]
    while each:
        found.append((ffi.string(each.fabric_attr.prov_name).decode(), each.caps))
        each = each.next
    lib.fi_freeinfo(native[0])
    return found


def test_no_hints_are_null() -> None:
    """Callers may specify NULL for node, service, and hints to learn what providers are available."""
    assert [(info.fabric_attr.prov_name, int(info.caps)) for info in getinfo()] == native_offers()


def test_null_hints_give_the_capabilities_that_are_supported() -> None:
    """With NULL hints: all that the provider supports. With caps of 0: all that it supports with their mode."""
    everything, usable = getinfo(), getinfo(hints=Hints())
    assert len(everything) > len(usable)
    assert {info.fabric_attr.prov_name for info in everything} >= {info.fabric_attr.prov_name for info in usable}
    assert any(info.ep_attr.rx_ctx_cnt == aiofabric.SHARED_CONTEXT for info in everything)


def test_what_is_found_without_hints_opens_a_domain() -> None:
    ended = run_in_child("""
        from aiofabric import Domain, FabricError, getinfo
        for info in getinfo():
            try:
                with Domain(info):
                    pass
            except FabricError as error:
                assert info.ep_attr.rx_ctx_cnt > 1 << 32, (info, error)
    """)
    assert ended.status == 0, ended


# -- the version


@pytest.mark.parametrize("version", [(1, 0), (1, 4), (1, 5), (1, 9), (1, 17)], ids=str)
def test_an_older_version_is_asked_for_and_reported(version: tuple[int, int]) -> None:
    """The version parameter requests the version of the interfaces; it determines the format of all structures."""
    found = getinfo(version=version)
    assert found
    assert {info.fabric_attr.api_version for info in found} == {version}
    old = MrMode.BASIC | MrMode.SCALABLE
    assert all(bool(info.domain_attr.mr_mode & old) == (version < (1, 5)) for info in found)


def test_hints_of_an_old_version_speak_its_language() -> None:
    """fi_mr(3): before version 1.5 the mode of registration was FI_MR_BASIC or FI_MR_SCALABLE."""
    with pytest.raises(NoProviderError, match=r"version=1\.4. It would match without version=1\.4"):
        getinfo(hints=Hints(), version=(1, 4))
    for old in (MrMode.BASIC, MrMode.SCALABLE):
        [info, *_] = getinfo(hints=Hints(domain_attr=DomainAttr(mr_mode=old)), version=(1, 4))
        assert info.domain_attr.mr_mode == old


def test_a_version_newer_than_the_library_is_refused() -> None:
    """fi_getinfo fails with FI_ENOSYS where the version is newer than the library."""
    newest = aiofabric.Version(*aiofabric.library_version())
    for version in ((newest.major, newest.minor + 1), (newest.major + 1, 0)):
        with pytest.raises(NotSupportedError, match=r"Version .* was asked for; libfabric here is") as caught:
            getinfo(version=version)
        assert caught.value.errno == constants.FI_ENOSYS


def test_a_version_newer_than_the_headers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its structures have fields that this build does not know."""
    monkeypatch.setattr("aiofabric.info.discovery.api_version", lambda: aiofabric.Version(1, 5))
    with pytest.raises(NotSupportedError, match="built with the headers"):
        getinfo(version=(1, 17))


@pytest.mark.parametrize("odd", [1, 17, "1.17", (1,), (1, 2, 3), (1, "17"), (-1, 3), 1.17])
def test_a_version_is_two_numbers(odd: object) -> None:
    with pytest.raises(TypeError, match="version must be a pair of numbers"):
        getinfo(version=odd)  # type: ignore[arg-type]


# -- output values are greater than or equal to requested values

SIZES = [
    *(f"tx_attr.{name}" for name in ("inject_size", "size", "iov_limit", "rma_iov_limit")),
    *(f"rx_attr.{name}" for name in ("total_buffered_recv", "size", "iov_limit")),
    *(f"ep_attr.{name}" for name in ("protocol_version", "max_msg_size", "msg_prefix_size", "max_order_raw_size")),
    *(f"ep_attr.{name}" for name in ("max_order_war_size", "max_order_waw_size", "tx_ctx_cnt", "rx_ctx_cnt")),
    *(f"domain_attr.{name}" for name in ("mr_key_size", "cq_data_size", "cq_cnt", "ep_cnt", "tx_ctx_cnt")),
    *(f"domain_attr.{name}" for name in ("rx_ctx_cnt", "max_ep_tx_ctx", "max_ep_rx_ctx", "max_ep_stx_ctx")),
    *(f"domain_attr.{name}" for name in ("max_ep_srx_ctx", "cntr_cnt", "mr_iov_limit", "max_err_data", "mr_cnt")),
]


@pytest.mark.parametrize("path", SIZES)
def test_no_offer_is_below_what_was_asked(path: str) -> None:
    """Output values will be greater than or equal to the requested input values."""
    part, _, name = path.partition(".")
    value = attrgetter(path)
    offered = sorted({value(info) for info in getinfo(hints=Hints()) if value(info) < 1 << 32})
    for wanted in {1, *filter(None, offered), *(each + 1 for each in offered)}:
        hints = Hints().replace(**{part: {name: wanted}})
        if found := offers(hints=hints):
            assert all(value(info) >= wanted for info in found)
        else:
            with pytest.raises(NoProviderError, match=f"It would match without {path}={wanted}"):
                getinfo(hints=hints)


def test_a_tag_format_asks_for_its_length() -> None:
    for info in getinfo(hints=Hints(ep_attr=EpAttr(mem_tag_format=1 << 62))):
        assert info.ep_attr.mem_tag_format >= 1 << 62


@pytest.mark.parametrize("part", ["ep_attr", "domain_attr"])
def test_an_authorization_key_is_had_or_named_as_the_reason(part: str) -> None:
    """1.17 offers everything and drops the key of the domain: access would be open to every peer."""
    hints = Hints().replace(**{part: {"auth_key": b"open sesame!"}})
    with pytest.raises(NoProviderError, match=f"It would match without {part}.auth_key"):
        getinfo(hints=hints)


# -- an info is a value


@pytest.fixture
def offer() -> Info:
    hints = Hints(ep_attr=EpAttr(type=EndpointType.MSG), fabric_attr=FabricAttr(prov_name="tcp"))
    return getinfo(HERE, 7471, hints=hints)[0]


def test_a_copy_without_changes_is_equal(offer: Info) -> None:
    copy = offer.replace()
    assert copy == offer
    assert copy.native != offer.native


def test_every_field_can_be_changed_in_a_copy(offer: Info) -> None:
    before = str(offer)
    peer = Address.from_ip(HERE, 7472)
    copy = offer.replace(
        caps=Caps.MSG,
        dest_addr=peer,
        src_addr=None,
        tx_attr={"msg_order": Order(0), "size": 16},
        rx_attr=offer.rx_attr,
        domain_attr={"name": "eth7"},
    )
    assert (copy.caps, copy.dest_addr, copy.src_addr, copy.domain_attr.name) == (Caps.MSG, peer, None, "eth7")
    assert (copy.tx_attr.msg_order, copy.tx_attr.size) == (Order(0), 16)
    assert copy.tx_attr.inject_size == offer.tx_attr.inject_size
    assert (copy.rx_attr, copy.ep_attr, copy.fabric_attr) == (offer.rx_attr, offer.ep_attr, offer.fabric_attr)
    assert str(offer) == before


def test_hints_are_changed_in_the_same_words() -> None:
    hints = Hints(caps=Caps.MSG, tx_attr=TxAttr(size=16))
    copy = hints.replace(caps=Caps.RMA, tx_attr={"inject_size": 8})
    assert copy == Hints(caps=Caps.RMA, tx_attr=TxAttr(size=16, inject_size=8))
    assert hints == Hints(caps=Caps.MSG, tx_attr=TxAttr(size=16))


def test_a_field_that_does_not_exist_is_refused(offer: Info) -> None:
    for value in (offer, Hints()):
        with pytest.raises(TypeError, match="an info has no field 'cap'; its fields are caps, mode"):
            value.replace(cap=Caps.MSG)
        with pytest.raises(TypeError, match="unexpected keyword argument 'sise'"):
            value.replace(tx_attr={"sise": 1})
        with pytest.raises(TypeError, match="tx_attr must be a TxAttr, or a dictionary of its fields"):
            value.replace(tx_attr=EpAttr())


def test_an_address_of_another_format_is_refused(offer: Info) -> None:
    with pytest.raises(ValueError, match="addresses of this info are FI_SOCKADDR_IN"):
        offer.replace(dest_addr=Address.from_ip("::1", 7471))
    other = offer.replace(addr_format=AddressFormat.SOCKADDR_IN6, src_addr=None, dest_addr=Address.from_ip("::1", 7471))
    assert other.dest_addr == Address.from_ip("::1", 7471)


def test_a_handle_stays_with_the_copy(offer: Info) -> None:
    with Domain(offer) as domain:
        copy = offer.replace(handle=domain)
        assert copy.replace(caps=Caps.MSG).handle == ffi.cast("struct fid *", domain.native)
    assert offer.handle is None
