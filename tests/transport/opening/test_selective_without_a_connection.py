"""fi_endpoint(3), FI_SELECTIVE_COMPLETION: a provider that does not have it refuses selective=True."""

from typing import Any

import pytest

import aiofabric
from aiofabric import Bind, Counter, Domain, EndpointType, EpAttr, FabricAttr, Hints, NotSupportedError, SharedTransmit
from tests.fixtures.peers import skip_without, where
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

WORDS = r"selective: .*complete in any order.*leave selective= out"
RDM = [(name, EndpointType.RDM) for name in ("tcp;ofi_rxm", "tcp", "shm", "sm2", "udp;ofi_rxd", "sockets", "net")]


@pytest.mark.parametrize(("provider", "kind"), [*RDM, ("udp", EndpointType.DGRAM)])
async def test_connectionless(provider: str, kind: EndpointType) -> None:
    skip_without(provider, aiofabric.Caps.MSG, kind)
    with pytest.raises(NotSupportedError, match=WORDS):
        async with aiofabric.open_endpoint(kind, where(provider), provider=provider, selective=True):
            pass


async def test_scalable() -> None:
    provider = require("sockets")
    with pytest.raises(NotSupportedError, match=WORDS):
        async with aiofabric.open_scalable_endpoint("127.0.0.1", provider=provider, selective=True):
            pass


async def test_nothing_else_that_is_bound_is_ignored_by_scalable_endpoints() -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name=require("sockets")), ep_attr=EpAttr(type=EndpointType.RDM))
    domain = Domain(aiofabric.getinfo("127.0.0.1", hints=hints)[0])
    with domain, Counter(domain) as counter, SharedTransmit(domain) as transmit:
        options: list[dict[str, Any]] = [
            {"counters": {counter: Bind.SEND}},
            {"shared_transmit": transmit},
            {"prepare": print},
            {"open_flags": aiofabric.OpFlags.PEER_TRANSFER},
        ]
        for each in options:
            with pytest.raises(TypeError, match=f"leave out {next(iter(each))}="):
                async with aiofabric.open_scalable_endpoint("127.0.0.1", domain=domain, **each):
                    pass
