"""A provider's name means that provider, not a layer above it with another protocol."""

import pytest

import aiofabric
from aiofabric import Caps, EndpointType, EpAttr, FabricAttr, Hints, NoProviderError, getinfo
from tests.fixtures.peers import skip_without

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"


def has_connectionless_endpoints() -> bool:
    """Whether tcp has them itself: since 2.0."""
    hints = Hints(fabric_attr=FabricAttr(prov_name="tcp"), ep_attr=EpAttr(type=EndpointType.RDM))
    return any(info.fabric_attr.prov_name == "tcp" for info in getinfo(HERE, hints=hints))


async def test_a_capability_that_the_provider_lacks_does_not_bring_a_layer() -> None:
    opened = aiofabric.open_endpoint(EndpointType.RDM, HERE, provider="tcp", caps=Caps.MSG | Caps.ATOMIC)
    if has_connectionless_endpoints():
        with pytest.raises(NoProviderError, match="tcp;ofi_rxm has them, with another protocol: name it as provider"):
            await opened.__aenter__()
    else:
        async with opened as endpoint:
            assert endpoint.info.fabric_attr.prov_name == "tcp;ofi_rxm"


async def test_the_layer_is_used_by_its_name() -> None:
    for name in ("tcp;ofi_rxm", "ofi_rxm;tcp"):
        caps = Caps.MSG | Caps.ATOMIC
        async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider=name, caps=caps) as endpoint:
            assert endpoint.info.fabric_attr.prov_name == "tcp;ofi_rxm"


async def test_sources_are_not_promised_where_messages_name_no_sender() -> None:
    """rxd grants FI_SOURCE."""
    skip_without("udp;ofi_rxd", Caps.MSG, EndpointType.RDM)
    asked = aiofabric.open_endpoint(EndpointType.RDM, HERE, caps=Caps.MSG | Caps.SOURCE, provider="udp;ofi_rxd")
    with pytest.raises(NoProviderError, match="ofi_rxd grants FI_SOURCE, but its messages name no sender"):
        await asked.__aenter__()
    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider="udp;ofi_rxd") as endpoint:
        assert Caps.SOURCE in endpoint.info.caps, "then this test can go"
    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, caps=Caps.MSG | Caps.SOURCE) as endpoint:
        assert "ofi_rxd" not in endpoint.info.fabric_attr.prov_name
