"""Statements of fi_getinfo(3) about more than a name; each test begins with the statement."""

# Doubles: an older version is requested than aiofabric asks for.

import fcntl
import gc
import socket
import struct
from collections import Counter
from itertools import pairwise
from operator import attrgetter
from typing import Any

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
    Fabric,
    FabricAttr,
    Hints,
    Info,
    Mode,
    MrMode,
    NoProviderError,
    NotSupportedError,
    Order,
    Protocol,
    TxAttr,
    api_version,
    getinfo,
)
from aiofabric._ffi import constants, ffi, lib
from aiofabric.info.discovery import offers
from tests.fixtures.children import run_in_child

HERE = "127.0.0.1"
SIOCGIFFLAGS, SIOCGIFADDR, IFF_UP = 0x8913, 0x8915, 1  # of the kernel: an interface's flags and address


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
    """The domain has addresses as its offer says: one of IPv4 would refuse those of IPv6, or cut them off."""
    ended = run_in_child("""
        from aiofabric import Address, AddressVector, Domain, FabricError, getinfo
        for info in getinfo():
            try:
                with Domain(info) as domain, AddressVector(domain) as vector:
                    if info.src_addr.family and "rxd" not in info.fabric_attr.prov_name:  # rxd does not look it up
                        address = Address.from_ip(info.src_addr.host, 7471)
                        assert vector.lookup(vector.insert(address)).raw == address.raw, info
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
        assert str(caught.value).endswith(f"Leave version= out, or ask for {aiofabric.api_version()} at most")


def test_a_version_newer_than_the_headers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its structures have fields that this build does not know."""
    monkeypatch.setattr("aiofabric.info.discovery.api_version", lambda: aiofabric.Version(1, 5))
    with pytest.raises(NotSupportedError, match=r"the structures of this build\. Build aiofabric with the headers"):
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


# -- what restricts the answer, and what does not


def test_every_interface_with_an_address_is_offered() -> None:
    """If node, service and hints are NULL, all available interfaces are returned."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        addressed = {name for _, name in socket.if_nameindex() if _is_up(asker, name)}
    assert "lo" in addressed
    assert {info.domain_attr.name for info in getinfo() if info.fabric_attr.prov_name == "tcp"} >= addressed


def _is_up(asker: socket.socket, interface: str) -> bool:
    """Whether the interface is up, and has an address of IPv4."""
    request = struct.pack("256s", interface.encode())
    try:
        fcntl.ioctl(asker, SIOCGIFADDR, request)
    except OSError:
        return False
    flags: int = struct.unpack_from("H", fcntl.ioctl(asker, SIOCGIFFLAGS, request), 16)[0]
    return bool(flags & IFF_UP)


def test_each_further_hint_restricts_the_answer() -> None:
    """The hints restrict the answer: the more of them, the fewer offers, and each of these was there before."""
    hints = [
        Hints(),
        Hints(ep_attr=EpAttr(type=EndpointType.RDM)),
        Hints(ep_attr=EpAttr(type=EndpointType.RDM), fabric_attr=FabricAttr(prov_name="tcp;ofi_rxm")),
        Hints(
            ep_attr=EpAttr(type=EndpointType.RDM),
            fabric_attr=FabricAttr(prov_name="tcp;ofi_rxm"),
            domain_attr=DomainAttr(name="lo"),
        ),
    ]
    found = [Counter(map(_brief, getinfo(hints=each))) for each in hints]
    for more, fewer in pairwise(found):
        assert fewer
        assert fewer < more


def _brief(info: Info) -> tuple[object, ...]:
    return info.fabric_attr.prov_name, info.domain_attr.name, info.ep_attr.type, info.src_addr


@pytest.mark.parametrize("path", ["ep_attr.type", "ep_attr.protocol", "domain_attr.name", "addr_format"])
def test_a_hint_of_zero_is_a_wildcard(path: str) -> None:
    """A value of 0 or NULL is any; another value is the one of every answer."""
    value = attrgetter(path)
    found = {value(info) for info in getinfo(hints=Hints())}
    assert len(found) > 1
    part, _, name = path.rpartition(".")
    for wanted in found:
        asked = {part: {name: wanted}} if part else {name: wanted}
        assert {value(info) for info in getinfo(hints=Hints().replace(**asked))} == {wanted}


def native_modes(mode: int) -> set[int]:
    """The modes in libfabric's own answer to hints with these modes, of which aiofabric asks for a few only."""
    hints, native = Hints().to_native(), ffi.new("struct fi_info **")
    hints.mode = mode
    assert lib.fi_getinfo(api_version().native, ffi.NULL, ffi.NULL, 0, hints, native) == 0
    found, each = set(), native[0]
    while each:
        found.add(each.mode)
        each = each.next
    lib.fi_freeinfo(native[0])
    return found


def test_only_modes_of_the_hints_are_required() -> None:
    """A bit of hints->mode that is not set: the application does not support that mode."""
    every, buffered = (1 << 64) - 1, Mode.BUFFERED_RECV
    assert any(mode & buffered for mode in native_modes(every))
    assert not any(mode & buffered for mode in native_modes(every ^ buffered))
    assert native_modes(0) == {0}
    for hints in (Hints(), Hints(mode=Mode(0))):
        assert [info for info in getinfo(hints=hints) if info.mode not in hints.mode] == []


# -- node and service


def test_a_name_is_resolved() -> None:
    """The node is a name, which fi_getinfo resolves to a fabric address."""
    hints = Hints(addr_format=AddressFormat.SOCKADDR_IN, fabric_attr=FabricAttr(prov_name="tcp"))
    assert {info.dest_addr for info in getinfo("localhost", 7471, hints=hints)} == {Address.from_ip(HERE, 7471)}


def test_a_service_may_be_a_name() -> None:
    """The service is a name of the system's table of services."""
    try:
        port = socket.getservbyname("http", "tcp")
    except OSError:
        pytest.skip("this machine has no table of services")
    assert getinfo(HERE, "http", hints=Hints(fabric_attr=FabricAttr(prov_name="tcp")))[0].dest_addr == (
        Address.from_ip(HERE, port)
    )


@pytest.mark.parametrize(
    ("format_", "node", "other"),
    [(AddressFormat.SOCKADDR_IN, HERE, "::1"), (AddressFormat.SOCKADDR_IN6, "::1", HERE)],
)
def test_the_format_is_that_of_every_address(format_: AddressFormat, node: str, other: str) -> None:
    """addr_format: the format of the addresses of fi_info, and of those that are passed to calls."""
    hints = Hints(addr_format=format_, fabric_attr=FabricAttr(prov_name="tcp"))
    for found in (getinfo(hints=hints), getinfo(node, 7471, hints=hints)):
        assert {info.addr_format for info in found} == {format_}
        addresses = [info.src_addr for info in found]
        assert {each.format for each in addresses if each is not None} == {format_}
    with pytest.raises(NoProviderError, match="It would match without addr_format"):
        getinfo(other, 7471, hints=hints)


# -- capabilities, protocols and providers

SECONDARY = [
    *(Caps.MULTI_RECV, Caps.SOURCE, Caps.RMA_EVENT, Caps.SHARED_AV, Caps.TRIGGER, Caps.FENCE, Caps.LOCAL_COMM),
    *(Caps.REMOTE_COMM, Caps.SOURCE_ERR, Caps.RMA_PMEM, Caps.DIRECTED_RECV, Caps.NAMED_RX_CTX),
]


@pytest.mark.parametrize("cap", SECONDARY, ids=str)
def test_a_secondary_capability_is_granted_or_nothing_is_offered(cap: Caps) -> None:
    """A secondary capability is optional for providers; if it is asked for, it is there or the request fails."""
    if found := offers(hints=Hints(caps=cap)):
        assert all(cap in info.caps for info in found)
    else:
        with pytest.raises(NoProviderError, match=f"It would match without {cap} in caps"):
            getinfo(hints=Hints(caps=cap))


def test_shared_memory_reaches_no_other_host() -> None:
    """FI_LOCAL_COMM, FI_REMOTE_COMM: endpoints of the same host, and of others, can be reached."""
    shared, both = Hints(fabric_attr=FabricAttr(prov_name="shm")), Caps.LOCAL_COMM | Caps.REMOTE_COMM
    assert getinfo(hints=shared)
    with pytest.raises(NoProviderError, match="It would match without FI_REMOTE_COMM in caps"):
        getinfo(hints=shared.replace(caps=Caps.REMOTE_COMM))
    remote = getinfo(hints=Hints(caps=both))
    assert [info for info in remote if both not in info.caps] == []
    assert {info.fabric_attr.prov_name for info in remote} >= {"tcp", "tcp;ofi_rxm", "udp"}


def test_capabilities_of_both_directions_are_the_endpoint_s() -> None:
    """tx_attr.caps and rx_attr.caps: the requested capabilities must be a subset of the endpoint's."""
    for info in (*getinfo(), *getinfo(hints=Hints())):
        assert info.tx_attr.caps
        assert (info.tx_attr.caps | info.rx_attr.caps) & ~info.caps == 0, info


def test_a_protocol_is_that_of_its_provider() -> None:
    """protocol, protocol_version: endpoints communicate if both are compatible."""
    spoken = {(info.fabric_attr.prov_name, info.ep_attr.type): info.ep_attr for info in getinfo()}
    for provider, kind, protocol in (
        ("tcp", EndpointType.MSG, Protocol.SOCK_TCP),
        ("tcp;ofi_rxm", EndpointType.RDM, Protocol.RXM),
        ("shm", EndpointType.RDM, Protocol.SHM),
        ("udp", EndpointType.DGRAM, Protocol.UDP),
        ("udp;ofi_rxd", EndpointType.RDM, Protocol.RXD),
    ):
        hints = Hints(ep_attr=EpAttr(type=kind, protocol=protocol))
        found = getinfo(hints=hints)
        assert provider in {info.fabric_attr.prov_name for info in found}
        assert {info.ep_attr.protocol for info in found} == {protocol}
        [version] = {info.ep_attr.protocol_version for info in found if info.fabric_attr.prov_name == provider}
        assert version == spoken[provider, kind].protocol_version
        newer = offers(hints=hints.replace(ep_attr={"protocol_version": version + 1}))
        assert provider not in {info.fabric_attr.prov_name for info in newer}


def test_a_layer_over_a_provider_is_named_by_both() -> None:
    """prov_name: a utility provider over a core provider is named "core;utility"."""
    for asked, found in (("udp;ofi_rxd", {"udp;ofi_rxd"}), ("tcp;ofi_rxm", {"tcp;ofi_rxm"}), ("udp", {"udp"})):
        kind = EndpointType.DGRAM if asked == "udp" else EndpointType.RDM
        hints = Hints(ep_attr=EpAttr(type=kind), fabric_attr=FabricAttr(prov_name=asked))
        assert {info.fabric_attr.prov_name for info in getinfo(hints=hints)} == found
    layered = getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name="ofi_rxm")))
    assert {info.fabric_attr.prov_name.partition(";")[2] for info in layered} == {"ofi_rxm"}


@pytest.mark.parametrize("way", ["udp", "^tcp"])
def test_the_environment_restricts_the_providers(way: str) -> None:
    """FI_PROVIDER: the providers that are registered, or with ^ those that are not."""
    ended = run_in_child(
        "import aiofabric; print(*{info.fabric_attr.prov_name for info in aiofabric.getinfo()})", FI_PROVIDER=way
    )
    assert ended.status == 0, ended
    found = set(ended.out.split())
    assert "udp" in found
    assert not any("tcp" in name or ("shm" in name and way == "udp") for name in found)
    assert way == "udp" or "shm" in found


def test_a_provider_keeps_its_version_whatever_is_asked_for() -> None:
    """prov_version is the provider's; api_version is the version of the interface that the program asked for."""
    now = {info.fabric_attr.prov_name: info.fabric_attr.prov_version for info in getinfo()}
    for version in ((1, 5), (1, 9)):
        for info in getinfo(version=version):
            assert info.fabric_attr.prov_version == now[info.fabric_attr.prov_name] > (1, 9)
            assert info.fabric_attr.api_version == version


@pytest.mark.parametrize("provider", ["shm", "tcp", "tcp;ofi_rxm", "udp", "sockets"])
def test_an_open_fabric_of_shared_memory_is_named(provider: str) -> None:
    """fabric_attr.fabric: the open fabric of this name. IP providers name the fabric, and do not give the open one."""
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider))
    assert {info.fabric_attr.fabric for info in getinfo(hints=hints)} == {None}
    with Fabric(getinfo(hints=hints)[0]) as fabric:
        found = {info.fabric_attr.fabric for info in getinfo(hints=hints) if info.fabric_attr.name == fabric.name}
        assert fabric.name
        assert found == ({fabric.native} if provider == "shm" else {None})


# -- memory, and threads


def test_each_structure_is_released_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """fi_freeinfo releases what fi_getinfo and fi_dupinfo returned."""
    released: list[int] = []

    def release(native: Any) -> None:
        released.append(int(ffi.cast("uintptr_t", native)))
        assert native.next == ffi.NULL
        free(native)

    free = lib.fi_freeinfo
    monkeypatch.setattr(lib, "fi_freeinfo", release)
    found = getinfo()
    found += [info.duplicate() for info in found]
    made = sorted(int(ffi.cast("uintptr_t", info.native)) for info in found)
    released.clear()
    del found
    gc.collect()
    assert sorted(released) == made


def test_threads_ask_at_once() -> None:
    """Several threads may call fi_getinfo at the same time."""
    ended = run_in_child("""
        import threading
        from aiofabric import EndpointType, EpAttr, FabricAttr, Hints, getinfo

        KINDS = {"tcp": EndpointType.MSG, "tcp;ofi_rxm": EndpointType.RDM, "udp": EndpointType.DGRAM}
        hints = {n: Hints(fabric_attr=FabricAttr(prov_name=n), ep_attr=EpAttr(type=k)) for n, k in KINDS.items()}
        expected = {name: [str(info) for info in getinfo("127.0.0.1", hints=each)] for name, each in hints.items()}
        together, right = threading.Barrier(6), []

        def ask(name):
            together.wait()
            for _ in range(20):
                assert [str(info) for info in getinfo("127.0.0.1", hints=hints[name])] == expected[name]
            right.append(name)

        threads = [threading.Thread(target=ask, args=[name]) for name in [*KINDS] * 2]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(right) == 6, right
    """)
    assert ended.status == 0, ended


def test_threads_make_texts_at_once() -> None:
    """fi_fabric(3): fi_tostr is not safe among threads, fi_tostr_r is."""
    ended = run_in_child("""
        import threading
        from aiofabric import EndpointType, EpAttr, Hints, getinfo

        kinds = (EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM)
        infos = [getinfo(hints=Hints(ep_attr=EpAttr(type=kind)))[0] for kind in kinds]
        expected = [str(info) for info in infos]
        assert len({*expected}) == 3
        together, right = threading.Barrier(6), []

        def write(number):
            together.wait()
            for _ in range(2000):
                assert str(infos[number]) == expected[number]
            right.append(number)

        threads = [threading.Thread(target=write, args=[number]) for number in (0, 1, 2) * 2]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(right) == 6, right
    """)
    assert ended.status == 0, ended
