"""Modes that the hints offer for the sake of devices change no offer of a software provider."""

import pytest

import aiofabric
from aiofabric import DomainAttr, EndpointType, Hints, Info, MrMode, getinfo
from aiofabric.transport.opening import selection
from tests.fixtures.children import run_in_child

pytestmark = pytest.mark.anyio


def offered(modes: MrMode) -> list[Info]:
    return getinfo(hints=Hints(domain_attr=DomainAttr(mr_mode=modes)))


@pytest.mark.parametrize("mode", [MrMode.LOCAL, MrMode.RAW])
def test_a_memory_mode_of_devices_changes_no_offer(mode: MrMode) -> None:
    assert mode in DomainAttr().mr_mode
    assert offered(DomainAttr().mr_mode) == offered(DomainAttr().mr_mode & ~mode)


@pytest.mark.parametrize("kind", [EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM])
async def test_the_choice_is_the_first_offer_as_before(kind: EndpointType) -> None:
    info = await selection.find(None, None, kind=kind)
    assert not info.domain_attr.mr_mode & (MrMode.LOCAL | MrMode.RAW)
    hints = Hints(caps=info.caps, ep_attr=aiofabric.EpAttr(type=kind), fabric_attr=aiofabric.FabricAttr())
    first = next(each for each in getinfo(hints=hints) if each.fabric_attr.prov_name not in ("net", "sockets"))
    assert first.fabric_attr.prov_name == info.fabric_attr.prov_name


LINKED = """
import asyncio, os
os.environ["FI_LNX_PROV_LINKS"] = "shm+tcp:lo"
import aiofabric

async def main():
    for opening in (
        aiofabric.open_endpoint(aiofabric.EndpointType.RDM, provider="lnx"),
        aiofabric.listen("127.0.0.1", 0, provider="lnx"),
    ):
        try:
            await opening.__aenter__()
        except aiofabric.NoProviderError:
            print("none", end=" ")
        except aiofabric.NotSupportedError as error:
            assert "lnx carries tagged messages only" in str(error), error
            print("refused", end=" ")

asyncio.run(main())
"""


def test_linked_providers_are_refused_with_the_reason() -> None:
    ended = run_in_child(LINKED)
    assert ended.out.split() in (["refused"] * 2, ["none"] * 2), ended
