"""The choice among recorded offers of devices: the provider, its memory modes, its device, and the errors."""

# Doubles: fi_getinfo of hosts with devices.
# Privates: the devices that the process has left out.

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import aiofabric
from aiofabric import (
    Caps,
    Domain,
    DomainAttr,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    Info,
    Mode,
    MrMode,
    NoProviderError,
    NotSupportedError,
    getinfo,
)
from aiofabric._ffi import constants
from aiofabric.errors import from_errno
from aiofabric.features import Quirk, quirks
from aiofabric.info.interfaces import devices_of
from aiofabric.regions import RegionTable
from aiofabric.transport.exclusions import lacking
from aiofabric.transport.opening import device_failures, selection
from aiofabric.transport.opening.bindings import check_provider
from aiofabric.transport.tags import TagFormat
from aiofabric.transport.virtual.protocol import DIRECT, MASK

from .recorded import DGRAM, MSG, RDM, Fabrics, cxi, efa, efa_1_17, lnx, opx, psm, tcp, ucx, verbs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.once]

TAGGED = Caps.MSG | Caps.TAGGED | Caps.RMA | Caps.SOURCE | Caps.DIRECTED_RECV  # of open_endpoint
Host = Callable[..., Fabrics]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """``host(efa(), tcp())``: from now on, fi_getinfo answers with these offers."""

    def has(*offers: Any) -> Fabrics:
        fabrics = Fabrics(*offers)
        monkeypatch.setattr(selection, "offers", fabrics)
        monkeypatch.setattr(device_failures, "offers", fabrics)
        return fabrics

    return has


@pytest.fixture(autouse=True)
def left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_failures, "_unusable", set())


async def rdm(**arguments: Any) -> Info:
    return await selection.find(None, None, **({"kind": RDM, "caps": TAGGED} | arguments))


async def connectable(node: Any = "192.0.2.1", **arguments: Any) -> Info:
    unset: dict[str, Any] = {"provider": None, "domain": None, "hints": None}
    return await selection.find_connectable(node, 5, **(unset | arguments))


DEVICES = {
    "efa": efa,
    "efa, 1.17": efa_1_17,
    "cxi": cxi,
    "psm3": psm,
    "psm2": lambda: psm(2),
    "opx": opx,
    "ucx": ucx,
    "lnx": lnx,
    "verbs;ofi_rxm": verbs,
}


# -- each provider


@pytest.mark.parametrize("name", DEVICES)
async def test_each_provider_is_found_by_its_name(name: str, host: Host) -> None:
    host(DEVICES[name](), tcp())
    provider = name.partition(",")[0]
    for info in (await rdm(provider=provider), await connectable(provider=provider)):
        assert (info.fabric_attr.prov_name, info.ep_attr.type) == (provider, RDM)
        assert not info.mode & ~Hints().mode
        assert not info.mode & Mode.MSG_PREFIX
        assert Caps.RMA in info.caps
        TagFormat.of(info).check(MASK | DIRECT, MASK)  # a virtual connection needs these bits


@pytest.mark.parametrize("name", DEVICES)
async def test_no_provider_but_verbs_is_chosen_before_tcp(name: str, host: Host) -> None:
    host(DEVICES[name](), tcp())
    assert (await connectable()).fabric_attr.prov_name == ("verbs" if name.startswith("verbs") else "tcp")


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("efa", MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY),
        ("efa, 1.17", MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY),
        ("cxi", MrMode.ALLOCATED | MrMode.PROV_KEY | MrMode.ENDPOINT),
        ("psm3", MrMode.SCALABLE),
        ("opx", MrMode.SCALABLE),
        ("ucx", MrMode.RAW | MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY | MrMode.BASIC | MrMode.HMEM),
        ("lnx", MrMode.VIRT_ADDR),
        ("verbs;ofi_rxm", MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY),
    ],
)
async def test_memory_is_registered_as_the_provider_requires(name: str, required: MrMode, host: Host) -> None:
    host(DEVICES[name]())
    info = await rdm(provider=name.partition(",")[0])
    assert info.domain_attr.mr_mode == required
    table = RegionTable(None, info)  # type: ignore[arg-type]
    assert table.local_required is False
    assert table.raw_keys is (name == "ucx")
    assert table.bound_to_endpoint is (name == "cxi")


async def test_psm3_s_first_offer_has_the_longer_tags(host: Host) -> None:
    host(psm())
    info = await rdm(provider="psm3")
    assert info.domain_attr.cq_data_size == 0
    info = await rdm(provider="psm3", hints=Hints(domain_attr=DomainAttr(cq_data_size=4)))
    assert TagFormat.of(info).bits == 60


async def test_lnx_is_used_by_name_only_and_then_refused_with_the_reason(host: Host) -> None:
    host(lnx(), tcp())
    assert (await rdm()).fabric_attr.prov_name == "tcp;ofi_rxm"
    host(lnx())
    with pytest.raises(NotSupportedError, match=r"lnx carries tagged messages only.*such as shm or tcp"):
        check_provider(await rdm(provider="lnx"))


# -- FI_MR_LOCAL


@pytest.mark.parametrize("name", ["efa", "verbs;ofi_rxm"])
async def test_a_program_that_chooses_its_modes_decides_about_local_registration(name: str, host: Host) -> None:
    host(DEVICES[name]())
    modes = DomainAttr().mr_mode & ~MrMode.HMEM
    info = await rdm(provider=name, hints=Hints(domain_attr=DomainAttr(mr_mode=modes)))
    assert MrMode.LOCAL in info.domain_attr.mr_mode


@pytest.mark.parametrize("kind", [MSG, DGRAM])
async def test_local_registration_stays_where_it_is_needed(kind: EndpointType, host: Host) -> None:
    host(verbs(), tcp())
    info = await selection.find("192.0.2.1", 5, kind=kind)
    assert info.fabric_attr.prov_name == "verbs"
    assert MrMode.LOCAL in info.domain_attr.mr_mode


async def test_no_second_question_where_no_offer_needs_local_registration(host: Host) -> None:
    fabrics = host(tcp())
    await connectable()
    assert len(fabrics.questions) == 1


# -- efa-direct


@pytest.mark.parametrize("hints", [None, Hints(caps=Caps.MSG), Hints(caps=Caps.MSG | Caps.RMA)])
async def test_efa_s_own_datagrams_are_chosen_before_efa_direct(hints: Hints | None, host: Host) -> None:
    host(efa())
    info = await rdm(hints=hints)
    assert info.fabric_attr.name == "efa"
    assert info.tx_attr.inject_size > 1000


async def test_efa_direct_is_used_by_the_name_of_its_fabric(host: Host) -> None:
    host(efa())
    info = await rdm(hints=Hints(fabric_attr=FabricAttr(name="efa-direct")))
    assert info.fabric_attr.name == "efa-direct"
    assert (Caps.TAGGED in info.caps, MrMode.LOCAL in info.domain_attr.mr_mode) == (False, True)
    info = await connectable(hints=Hints(fabric_attr=FabricAttr(name="efa-direct")))
    assert lacking(info, Caps.TAGGED, Caps.SEND)  # so a connection over it is refused, with the capability's name


# -- several devices


TWO = {"efa": (efa("rdmap0s6"), efa("rdmap1s6", number=2)), "cxi": (cxi("cxi0"), cxi("cxi1", 2))}


@pytest.mark.parametrize(("name", "device"), [("efa", "rdmap1s6"), ("cxi", "cxi1")])
async def test_the_first_device_is_used_or_that_of_the_interface(name: str, device: str, host: Host) -> None:
    host(*TWO[name], tcp())
    first = await connectable(provider=name)
    assert first.domain_attr.name == TWO[name][0][0].domain
    for find in (rdm, connectable):
        info = await find(provider=name, interface=device)
        assert info.domain_attr.name.partition("-")[0] == device
        assert info.src_addr != first.src_addr


async def test_an_interface_chooses_the_provider(host: Host) -> None:
    host(*TWO["cxi"], tcp())
    assert (await rdm(interface="cxi1")).fabric_attr.prov_name == "cxi"
    assert (await connectable(interface="cxi1")).fabric_attr.prov_name == "cxi"
    assert (await connectable(interface="eth0")).fabric_attr.prov_name == "tcp"


async def test_the_name_of_the_domain_chooses_a_device_too(host: Host) -> None:
    host(*TWO["cxi"])
    info = await rdm(hints=Hints(domain_attr=DomainAttr(name="cxi1")))
    assert info.domain_attr.name == "cxi1"


async def test_an_interface_without_an_offer_is_an_error_that_names_the_devices(host: Host) -> None:
    host(*TWO["cxi"])
    for find in (rdm, connectable):
        with pytest.raises(NoProviderError, match=r"No offer is for the interface 'hsn7'.* for cxi0, cxi1"):
            await find(interface="hsn7", provider="cxi")


def test_an_error_of_opening_a_device_names_the_others(host: Host) -> None:
    fabrics = host(*TWO["cxi"])
    info = fabrics()[0]
    error = from_errno(constants.FI_ENOSYS, "fi_domain", detail="Reason")
    device_failures.name_other_devices(info, error)
    assert error.detail == "Reason. The device is cxi0; interface= chooses another one: 'cxi1'"
    later = from_errno(constants.FI_ENOSYS, "fi_send", detail="Reason")
    device_failures.name_other_devices(info, later)
    assert later.detail == "Reason"


def test_a_network_interface_has_the_devices_that_linux_lists(tmp_path: Path) -> None:
    for path in ("net/ib0/device/infiniband/mlx5_0", "net/hsn0/device/cxi/cxi0", "net/eth0", "infiniband/rxe0"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "infiniband/rxe0/parent").write_text("eth0\n")
    assert devices_of("ib0", tmp_path) == {"ib0", "mlx5_0"}
    assert devices_of("hsn0", tmp_path) == {"hsn0", "cxi0"}
    assert devices_of("eth0", tmp_path) == {"eth0", "rxe0"}
    assert devices_of("mlx5_0", tmp_path) == {"mlx5_0"}
    assert devices_of("../net/ib0", tmp_path) == {"../net/ib0"}


async def test_an_interface_beside_a_domain_or_an_info_is_refused() -> None:
    info = getinfo(hints=Hints(ep_attr=EpAttr(type=RDM), fabric_attr=FabricAttr(prov_name="tcp")))[0]
    with pytest.raises(ValueError, match="interface='lo' contradicts info="):
        await aiofabric.connect(info=info, interface="lo")
    with Domain(info) as domain, pytest.raises(ValueError, match="interface='lo' contradicts domain="):
        await aiofabric.open_endpoint(RDM, domain=domain, interface="lo").__aenter__()
    for odd, error in ((5, TypeError), ("", ValueError)):
        with pytest.raises(error, match="name of a network interface"):
            await aiofabric.listen(interface=odd).__aenter__()  # type: ignore[arg-type]


async def test_a_node_that_the_interface_does_not_reach_is_an_error() -> None:
    with pytest.raises(NoProviderError, match=r"127\.0\.0\.1 is not reached over the interface .*, but over lo"):
        await aiofabric.connect("127.0.0.1", 9, provider="tcp", interface=_other_interface())


def _other_interface() -> str:
    hints = Hints(ep_attr=EpAttr(type=MSG), fabric_attr=FabricAttr(prov_name="tcp"))
    names = {info.domain_attr.name for info in getinfo(hints=hints)} - {"lo"}
    return names.pop() if names else pytest.skip("this host has no other interface")


@pytest.mark.parametrize("provider", ["tcp", "tcp;ofi_rxm"])
async def test_a_listener_on_an_interface_is_at_its_address(provider: str) -> None:
    async with aiofabric.listen(interface="lo", provider=provider) as listener:
        fabric = listener.info.src_addr
        assert fabric is not None
        assert fabric.host in ("127.0.0.1", "::1")
        assert listener.info.domain_attr.name == "lo"


# -- rules


@pytest.mark.parametrize("name", ["efa", "lnx"])
def test_providers_with_shm_inside_take_the_signals(name: str) -> None:
    info = Fabrics(DEVICES[name]())()[-2 if name == "efa" else 0]
    assert Quirk.TAKES_SIGNALS in quirks(info)
