"""Discovery: the hints, the offers, and the error if there is none."""

# Privates: `_appended` lists the fields that later headers of libfabric have.
# Doubles: a newer version is requested than any header has.

import gc
import pickle
from dataclasses import fields

import pytest

import aiofabric
from aiofabric import (
    Address,
    AddressFormat,
    Caps,
    DomainAttr,
    EndpointType,
    EpAttr,
    Fabric,
    FabricAttr,
    GetInfoFlags,
    Hints,
    Info,
    LinkState,
    Mode,
    MrMode,
    Nic,
    NoProviderError,
    NotSupportedError,
    Order,
    RxAttr,
    TostrType,
    TrafficClass,
    TxAttr,
    getinfo,
    tostr,
)
from aiofabric._ffi import constants, ffi, lib
from aiofabric.info.tostr import _TYPES
from tests.fixtures.children import run_in_child

HERE = "127.0.0.1"


SOMETHING = {  # how a number becomes a value of a field's type, where calling the type is not enough
    bytes: lambda number: b"key" * number,
    aiofabric.Version: lambda number: aiofabric.Version(1, number),
}


def tcp(**more: object) -> Hints:
    """Hints for connected endpoints of tcp."""
    return Hints(ep_attr=EpAttr(type=EndpointType.MSG), fabric_attr=FabricAttr(prov_name="tcp"), **more)  # type: ignore[arg-type]


@pytest.fixture
def offer() -> Info:
    return getinfo(HERE, 7471, hints=tcp())[0]


# -- the offers


def test_every_field_is_readable(offer: Info) -> None:
    assert Caps.MSG | Caps.RMA in offer.caps
    assert offer.mode == Mode(0)
    assert offer.addr_format is AddressFormat.SOCKADDR_IN
    assert offer.dest_addr == Address.from_ip(HERE, 7471)
    assert offer.src_addr is not None
    assert offer.src_addr.host == HERE
    assert offer.handle is None
    assert offer.ep_attr.type is EndpointType.MSG
    assert offer.fabric_attr.prov_name == "tcp"
    assert offer.fabric_attr.api_version == aiofabric.api_version()
    assert offer.domain_attr.name == "lo"
    assert offer.domain_attr.threading is aiofabric.Threading.SAFE
    assert offer.tx_attr.inject_size > 0
    assert offer.rx_attr.size > 0
    assert offer.nic is None
    for part in (offer.tx_attr, offer.rx_attr, offer.ep_attr, offer.domain_attr, offer.fabric_attr):
        assert all(hasattr(part, field.name) for field in fields(part))


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("tx_attr", "struct fi_tx_attr"),
        ("rx_attr", "struct fi_rx_attr"),
        ("ep_attr", "struct fi_ep_attr"),
        ("domain_attr", "struct fi_domain_attr"),
        ("fabric_attr", "struct fi_fabric_attr"),
    ],
)
def test_no_field_of_c_is_left_out(offer: Info, part: str, kind: str) -> None:
    declared = {name for name, _ in ffi.typeof(kind).fields}
    ours = {field.name for field in fields(getattr(offer, part))} - getattr(offer, part)._appended.keys()
    assert declared - {"auth_key_size"} == ours


def test_python_and_libfabric_read_the_same(offer: Info) -> None:
    """Each attribute object, written to C again, reads like the original."""
    for part, kind in (
        ("tx_attr", TostrType.TX_ATTR),
        ("rx_attr", TostrType.RX_ATTR),
        ("ep_attr", TostrType.EP_ATTR),
        ("domain_attr", TostrType.DOMAIN_ATTR),
        ("fabric_attr", TostrType.FABRIC_ATTR),
    ):
        ours, theirs = tostr(getattr(offer, part)), tostr(getattr(offer.native, part), kind)
        assert ours.split("max_ep_auth_key")[0] == theirs.split("max_ep_auth_key")[0]


def test_what_is_found_cannot_be_changed(offer: Info) -> None:
    with pytest.raises(AttributeError, match="set it in Hints"):
        offer.tx_attr.size = 1


def test_what_was_found_can_be_asked_for(offer: Info) -> None:
    again = getinfo(
        HERE,
        7471,
        hints=Hints(
            caps=offer.caps,
            tx_attr=offer.tx_attr,
            rx_attr=offer.rx_attr,
            ep_attr=offer.ep_attr,
            domain_attr=offer.domain_attr,
            fabric_attr=offer.fabric_attr,
        ),
    )
    assert again[0].ep_attr == offer.ep_attr


def test_a_duplicate_is_equal_and_its_own(offer: Info) -> None:
    twin = offer.duplicate()
    assert twin == offer
    assert twin.native != offer.native
    for part in ("tx_attr", "rx_attr", "ep_attr", "domain_attr", "fabric_attr", "src_addr", "dest_addr"):
        assert ffi.NULL != getattr(twin.native, part) != getattr(offer.native, part)
    twin.native.caps |= 1 << 61
    assert twin.duplicate() != offer
    assert offer != "an info"
    with pytest.raises(TypeError, match="unhashable"):
        hash(offer)


def test_each_of_a_list_outlives_the_others() -> None:
    offers = getinfo()
    last = offers[-1]
    before = str(last)
    del offers
    gc.collect()
    assert str(last) == before


def test_a_native_info_is_taken_over() -> None:
    native = lib.fi_allocinfo()
    native.caps = constants.FI_MSG
    assert Info.from_native(native).caps is Caps.MSG


def test_a_handle_can_be_given_and_taken_back(offer: Info) -> None:
    with Fabric(offer) as fabric:
        offer.handle = fabric
        assert offer.handle == ffi.cast("struct fid *", fabric.native)
    offer.handle = None
    assert offer.handle is None


def test_str_is_libfabrics_text_and_repr_one_line(offer: Info) -> None:
    assert str(offer) == tostr(offer)
    assert str(offer).startswith("fi_info:")
    assert "inject_size" in str(offer)
    line = repr(offer)
    assert "\n" not in line
    for part in ("tcp", "FI_EP_MSG", "lo", f"to fi_sockaddr_in://{HERE}:7471", "FI_RMA"):
        assert part in line


def test_fields_that_later_versions_append_are_there_with_those_versions(offer: Info) -> None:
    endless = (1 << 64) - 1 if aiofabric.api_version() >= (2, 5) else 0
    assert offer.domain_attr.max_cntr_value == offer.domain_attr.max_err_cntr_value == endless


# -- the hints


def test_without_anything_everything_is_found() -> None:
    types = {info.ep_attr.type for info in getinfo()}
    assert types >= {EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM}


def test_the_default_hints_ask_for_no_mode_that_changes_completions() -> None:
    """ofi_rxm answers a mode of all ones with buffered receives."""
    assert Hints().mode == Mode.CONTEXT | Mode.CONTEXT2 | Mode.MSG_PREFIX | Mode.ASYNC_IOV | Mode.RX_CQ_DATA
    assert all(info.mode in Hints().mode for info in getinfo())
    assert all(info.domain_attr.mr_mode in Hints().domain_attr.mr_mode for info in getinfo())


@pytest.mark.parametrize("service", [7471, "7471"])
def test_a_service_is_a_number_or_a_name(service: str | int) -> None:
    [first, *_] = getinfo(HERE, service, hints=tcp())
    assert first.dest_addr == Address.from_ip(HERE, 7471)


@pytest.mark.parametrize(
    ("node", "host", "port"),
    [
        ("fi_sockaddr://127.0.0.1:7471", HERE, 7471),
        ("fi_sockaddr_in://127.0.0.1:7471", HERE, 7471),
        ("fi_sockaddr_in6://[::1]:7471", "::1", 7471),
    ],
)
def test_a_node_may_be_a_whole_address(node: str, host: str, port: int) -> None:
    [first, *_] = getinfo(node, hints=tcp())
    assert first.dest_addr == Address.from_ip(host, port)


def test_a_whole_address_leaves_no_room_for_a_service() -> None:
    with pytest.raises(ValueError, match="leave out the service 7471"):
        getinfo("fi_sockaddr://127.0.0.1:7471", 7471)


def test_shared_memory_takes_text_addresses() -> None:
    [first, *_] = getinfo("fi_shm://somebody", hints=Hints(fabric_attr=FabricAttr(prov_name="shm")))
    assert first.addr_format is AddressFormat.ADDR_STR
    assert str(first.dest_addr) == "fi_shm://somebody"


def test_source_makes_it_the_local_address() -> None:
    [first, *_] = getinfo(HERE, 7471, flags=GetInfoFlags.SOURCE | GetInfoFlags.NUMERICHOST, hints=tcp())
    assert first.src_addr == Address.from_ip(HERE, 7471)
    assert first.dest_addr is None


def test_a_name_is_no_number() -> None:
    with pytest.raises(NoProviderError, match="would match without FI_NUMERICHOST in flags"):
        getinfo("localhost", 7471, flags=GetInfoFlags.NUMERICHOST, hints=tcp())


def test_addresses_in_hints_are_used_and_bring_their_format() -> None:
    peer = Address.from_ip(HERE, 7472)
    [first, *_] = getinfo(hints=tcp(dest_addr=peer))
    assert first.dest_addr == peer
    mine = Address.from_ip(HERE, 7473)
    [first, *_] = getinfo(hints=tcp(src_addr=mine))
    assert first.src_addr == mine


def test_prov_attr_only_lists_providers_usable_or_not() -> None:
    listed = getinfo(flags=GetInfoFlags.PROV_ATTR_ONLY)
    names = [info.fabric_attr.prov_name for info in listed]
    assert len(names) == len(set(names))
    usable = {name for info in getinfo() for name in info.fabric_attr.prov_name.split(";")}
    assert {"tcp", "shm", "udp"} <= usable < set(names)
    assert all(info.fabric_attr.prov_version > (0, 0) for info in listed)
    assert listed[0].caps == Caps(0)


@pytest.mark.parametrize(("name", "found"), [("tcp", ["tcp"]), ("tcp;ofi_rxm", ["ofi_rxm", "tcp"])])
def test_prov_attr_only_with_a_name_gives_that_one(name: str, found: list[str]) -> None:
    """fi_getinfo(3): FI_PROV_ATTR_ONLY gives exactly one fi_info for each provider; hints name which are wanted."""
    hints = Hints(fabric_attr=FabricAttr(prov_name=name, name="any"))
    assert [i.fabric_attr.prov_name for i in getinfo(flags=GetInfoFlags.PROV_ATTR_ONLY, hints=hints)] == found
    with pytest.raises(NoProviderError):
        getinfo(flags=GetInfoFlags.PROV_ATTR_ONLY, hints=Hints(fabric_attr=FabricAttr(prov_name="nosuch")))


@pytest.mark.parametrize(
    "hints",
    [
        tcp(caps=Caps.MSG | Caps.RMA),
        tcp(tx_attr=TxAttr(inject_size=64, size=16, iov_limit=2, msg_order=Order.SAS)),
        tcp(rx_attr=RxAttr(size=16, iov_limit=2)),
        tcp(domain_attr=DomainAttr(name="lo", cq_data_size=8, mr_mode=MrMode.VIRT_ADDR)),
        Hints(ep_attr=EpAttr(type=EndpointType.RDM, max_msg_size=1 << 20, auth_key=b"")),
    ],
    ids=str,
)
def test_offers_are_at_least_what_was_asked(hints: Hints) -> None:
    for found in getinfo(HERE, 7471, hints=hints):
        assert hints.caps in found.caps
        assert found.tx_attr.inject_size >= hints.tx_attr.inject_size
        assert hints.tx_attr.msg_order in found.tx_attr.msg_order
        assert found.ep_attr.max_msg_size >= hints.ep_attr.max_msg_size
        assert found.domain_attr.cq_data_size >= hints.domain_attr.cq_data_size


def test_hints_reach_c_whole() -> None:
    """Every field of every structure, set to something, is there after the way through libfabric's copy."""
    hints = Hints(
        caps=Caps.MSG, mode=Mode.ASYNC_IOV, src_addr=Address.from_ip(HERE, 1), dest_addr=Address.from_ip(HERE, 2)
    )
    for part in (hints.tx_attr, hints.rx_attr, hints.ep_attr, hints.domain_attr, hints.fabric_attr):
        for number, field in enumerate(fields(part), start=1):
            if field.default is not None and aiofabric.api_version() >= part._appended.get(field.name, (1, 0)):
                setattr(part, field.name, SOMETHING.get(type(field.default), type(field.default))(number))
    seen = Info(hints.to_native())
    assert (seen.caps, seen.mode, seen.addr_format) == (hints.caps, hints.mode, AddressFormat.SOCKADDR_IN)
    assert (seen.src_addr, seen.dest_addr) == (hints.src_addr, hints.dest_addr)
    for name in ("tx_attr", "rx_attr", "ep_attr", "domain_attr", "fabric_attr"):
        assert getattr(seen, name) == getattr(hints, name)


def test_names_of_fabric_and_domain_are_compared() -> None:
    """1.17's ip providers offer every interface whatever name is asked for."""
    assert {info.domain_attr.name for info in getinfo(hints=tcp(domain_attr=DomainAttr(name="lo")))} == {"lo"}
    with pytest.raises(NoProviderError, match=r"would match without domain_attr\.name='nosuch0'"):
        getinfo(hints=tcp(domain_attr=DomainAttr(name="nosuch0")))


def test_open_objects_restrict_the_answer(offer: Info) -> None:
    with Fabric(offer) as fabric:
        found = getinfo(hints=Hints(fabric_attr=FabricAttr(fabric=fabric)))
        assert {(i.fabric_attr.prov_name, i.fabric_attr.name) for i in found} == {("tcp", offer.fabric_attr.name)}


def test_traffic_classes_are_hints() -> None:
    [first, *_] = getinfo(HERE, 7471, hints=tcp(tx_attr=TxAttr(tclass=TrafficClass.LOW_LATENCY)))
    assert first.tx_attr.tclass in (TrafficClass.LOW_LATENCY, TrafficClass.UNSPEC)


# -- the errors if nothing is found


def test_the_hint_to_blame_is_named() -> None:
    with pytest.raises(NoProviderError) as caught:
        getinfo(HERE, 7471, hints=Hints(caps=Caps.MSG, fabric_attr=FabricAttr(prov_name="nosuch")))
    text = str(caught.value)
    assert "node='127.0.0.1', service='7471', caps=FI_MSG, fabric_attr.prov_name='nosuch'" in text
    assert "It would match without fabric_attr.prov_name='nosuch'" in text
    assert caught.value.errno == constants.FI_ENODATA


def test_hints_are_spelled_as_in_libfabric() -> None:
    hints = Hints(ep_attr=EpAttr(rx_ctx_cnt=aiofabric.SHARED_CONTEXT, mem_tag_format=0xFF << 56), mode=Mode.CONTEXT)
    assert str(hints) == (
        "mode=FI_CONTEXT, ep_attr.mem_tag_format=0xff00000000000000, ep_attr.rx_ctx_cnt=FI_SHARED_CONTEXT"
    )


def test_a_single_flag_can_be_to_blame() -> None:
    with pytest.raises(NoProviderError, match="would match without FI_ATOMIC in caps"):
        getinfo(HERE, 7471, hints=tcp(caps=Caps.MSG | Caps.ATOMIC))


def test_several_may_be_to_blame_together() -> None:
    impossible = tcp(caps=Caps.ATOMIC | Caps.MULTICAST, tx_attr=TxAttr(inject_size=1 << 40))
    with pytest.raises(NoProviderError, match="No single requirement excludes all"):
        getinfo(hints=impossible)


def test_a_restriction_by_the_environment_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FI_PROVIDER", "nosuch")
    with pytest.raises(NoProviderError, match="FI_PROVIDER=nosuch restricts"):
        getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name="nosuch")))


def test_source_needs_something_local() -> None:
    with pytest.raises(NoProviderError, match="would match without FI_SOURCE in flags"):
        getinfo(flags=GetInfoFlags.SOURCE)


def test_other_errors_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that the library has yet to see is FI_ENOSYS."""
    monkeypatch.setattr("aiofabric.info.discovery.api_version", lambda: aiofabric.Version(99, 0))
    with pytest.raises(aiofabric.NotSupportedError, match="fi_getinfo") as caught:
        getinfo()
    assert caught.value.errno == constants.FI_ENOSYS


# -- words, versions, parameters


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Caps.MSG | Caps.RMA, "FI_MSG, FI_RMA"),
        (EndpointType.RDM, "FI_EP_RDM"),
        (MrMode.LOCAL, "FI_MR_LOCAL"),
        (Mode.CONTEXT, "FI_CONTEXT"),
        (Order.SAS | Order.RAR, "FI_ORDER_RAR, FI_ORDER_SAS"),
        (aiofabric.OpFlags.INJECT, "FI_INJECT"),
        (aiofabric.CompletionFlags.RECV, "FI_RECV"),
        (AddressFormat.SOCKADDR_IN6, "FI_SOCKADDR_IN6"),
        (aiofabric.Protocol.RXM, "FI_PROTO_RXM"),
        (aiofabric.Threading.DOMAIN, "FI_THREAD_DOMAIN"),
        (aiofabric.Progress.MANUAL, "FI_PROGRESS_MANUAL"),
        (aiofabric.AvType.TABLE, "FI_AV_TABLE"),
        (aiofabric.Datatype.INT8, "FI_INT8"),
        (aiofabric.AtomicOp.CSWAP, "FI_CSWAP"),
        (aiofabric.CollectiveOp.BARRIER, "FI_BARRIER"),
        (aiofabric.DeferredOp.TSEND, "FI_OP_TSEND"),
        (aiofabric.EqEvent.CONNECTED, "FI_CONNECTED"),
        (aiofabric.CqFormat.TAGGED, "FI_CQ_FORMAT_TAGGED"),
        (aiofabric.HmemIface.CUDA, "FI_HMEM_CUDA"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_tostr_agrees_with_libfabric(value: int, text: str) -> None:
    assert tostr(value) == text
    # This call shares one buffer among all threads, so aiofabric uses the other one.
    assert ffi.string(lib.fi_tostr(ffi.new("uint64_t *", value), _TYPES[type(value)])).decode() == text


@pytest.mark.parametrize("kind", [TostrType.VERSION, TostrType.LOG_LEVEL, TostrType.LOG_SUBSYS])
def test_tostr_of_plain_numbers_is_told_the_kind(kind: TostrType) -> None:
    assert tostr(1, kind)


def test_tostr_refuses_what_libfabric_does_not_know() -> None:
    for odd in (object(), "text", 1):
        with pytest.raises(TypeError, match="fi_tostr does not support"):
            tostr(odd)


def test_tostr_reads_nothing_as_something_else() -> None:
    ended = run_in_child("""
        import pytest
        from aiofabric import Caps, CompletionQueue, Domain, TostrType, getinfo, tostr
        from aiofabric._ffi import ffi
        from aiofabric.resource import Resource

        info = getinfo()[0]
        short = ffi.new("struct fi_rx_attr *")
        with Domain(info) as domain:
            assert tostr(domain.fabric).startswith("fid: ")
            assert tostr(domain.native, TostrType.FID) == tostr(domain)
            assert tostr(info.native) == tostr(info, TostrType.INFO) == str(info)
            structures = (TostrType.INFO, TostrType.DOMAIN_ATTR, TostrType.FABRIC_ATTR, TostrType.FID)
            for kind in structures:
                for value in (domain, info.tx_attr, Caps(1), 0, 1 << 40, short, CompletionQueue(domain)):
                    if kind is not TostrType.FID or not isinstance(value, Resource):
                        with pytest.raises(TypeError):
                            tostr(value, kind)
            with pytest.raises(TypeError):
                tostr(info, TostrType.TX_ATTR)
            with pytest.raises(TypeError):
                tostr(ffi.cast("void *", 1), TostrType.INFO)
            with pytest.raises(ValueError, match="NULL"):
                tostr(ffi.cast("struct fi_info *", 0))
    """)
    assert ended.status == 0, ended


def test_a_handle_that_is_no_open_object_is_refused(offer: Info) -> None:
    native = offer.duplicate()
    for odd in (5, offer, offer.native, object(), "text"):
        with pytest.raises(TypeError, match="open object"):
            Hints(handle=odd).to_native()
        with pytest.raises(TypeError, match="open object"):
            native.handle = odd


def test_the_version_asked_for_is_never_above_either() -> None:
    most = max(aiofabric.headers_version(), aiofabric.Version(1, 18))  # 1.18 has the structures of 1.17
    assert aiofabric.api_version() == min(most, aiofabric.library_version())
    assert {info.fabric_attr.api_version for info in getinfo()} == {aiofabric.api_version()}
    assert tostr(0, TostrType.VERSION).startswith(str(aiofabric.library_version()))
    assert str(aiofabric.Version(1, 17)) == "1.17"
    assert aiofabric.library_path().endswith("libfabric.so.1")


def test_parameters_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    getinfo()
    known = {each.name: each for each in aiofabric.parameters()}
    assert known["FI_LOG_LEVEL"].type is aiofabric.ParameterType.STRING
    assert known["FI_TCP_IFACE"].help
    assert known["FI_TCP_IFACE"].value is None


def test_a_devices_description_is_read() -> None:
    """No provider here has a network device: the C structure is filled by hand."""
    device = ffi.new("struct fi_device_attr *", {"name": (name := ffi.new("char[]", b"mlx5_0"))})
    bus = ffi.new("struct fi_bus_attr *", {"bus_type": constants.FI_BUS_PCI})
    bus.attr.pci.bus_id, bus.attr.pci.device_id = 0xAF, 3
    link = ffi.new("struct fi_link_attr *", {"mtu": 4096, "speed": 10**11, "state": constants.FI_LINK_UP})
    native = ffi.new("struct fid_nic *", {"device_attr": device, "bus_attr": bus, "link_attr": link})
    nic = Nic.from_native(native)
    assert nic is not None
    assert nic.device_attr is not None
    assert nic.device_attr.name == ffi.string(name).decode()
    assert str(nic.pci) == "0000:af:03.0"
    assert nic.link_attr is not None
    assert (nic.link_attr.mtu, nic.link_attr.speed, nic.link_attr.state) == (4096, 10**11, LinkState.UP)
    assert Nic.from_native(ffi.new("struct fid_nic *")) == Nic(
        device_attr=None, bus_type=aiofabric.BusType.UNSPEC, pci=None, link_attr=None
    )


def test_attributes_can_be_pickled(offer: Info) -> None:
    assert pickle.loads(pickle.dumps(offer.tx_attr)) == offer.tx_attr


@pytest.mark.exercises(
    "FI_BUFFERED_RECV", "FI_NOTIFY_FLAGS_ONLY", "FI_RESTRICTED_COMP", "FI_LOCAL_MR", "FI_VARIABLE_MSG", "FI_AV_USER_ID"
)
@pytest.mark.parametrize(
    "name", ["BUFFERED_RECV", "NOTIFY_FLAGS_ONLY", "RESTRICTED_COMP", "LOCAL_MR", "VARIABLE_MSG", "AV_USER_ID"]
)
def test_what_aiofabric_cannot_live_up_to_is_never_asked_for(name: str) -> None:
    family = Caps if name in ("VARIABLE_MSG", "AV_USER_ID") else Mode
    if name not in family.__members__:
        pytest.skip(f"the headers of this build have no FI_{name}")
    hints = Hints(caps=Caps[name]) if family is Caps else Hints(mode=Hints().mode | Mode[name])
    with pytest.raises(NotSupportedError, match=f"FI_{name}: "):
        getinfo(hints=hints)
