"""Objects that cannot be bound to an endpoint are refused at its opening. Before, a wait never ended or a context was
ignored.
"""

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    SHARED_CONTEXT,
    Bind,
    Counter,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
    SharedReceive,
    SharedTransmit,
)
from tests.fixtures.peers import where
from tests.fixtures.providers import HOST, require

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"


def open_domain(provider: str, kind: EndpointType) -> Domain:
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    return Domain(aiofabric.getinfo(where(provider, HOST), hints=hints)[0])


async def opened(provider: str, **options: Any) -> None:
    if provider == "tcp":
        await aiofabric.connect(HERE, 9, provider=provider, **options)
    else:
        async with aiofabric.open_endpoint(EndpointType.RDM, where(provider, HOST), provider=provider, **options):
            pass


async def refused(words: str, provider: str, **options: Any) -> None:
    with anyio.fail_after(5), pytest.raises(ValueError, match=words):
        await opened(provider, **options)


KINDS = [("tcp", EndpointType.MSG), ("tcp;ofi_rxm", EndpointType.RDM), ("shm", EndpointType.RDM)]


@pytest.mark.parametrize(("provider", "kind"), KINDS)
async def test_counter_of_another_domain(provider: str, kind: EndpointType) -> None:
    """fi_endpoint(3): an endpoint is bound to objects of the domain that it was opened on (FI_EDOMAIN)."""
    with open_domain(provider, kind) as one, open_domain(provider, kind) as other, Counter(other) as counter:
        await refused("pass domain= with the one", provider, domain=one, counters={counter: Bind.SEND})


@pytest.mark.parametrize(("provider", "kind"), KINDS)
async def test_two_counters_for_one_kind_of_operation(provider: str, kind: EndpointType) -> None:
    """fi_endpoint(3), fi_ep_bind: a counter is bound by the kinds of operations that it counts."""
    with open_domain(provider, kind) as domain, Counter(domain) as one, Counter(domain) as other:
        counters = {one: Bind.SEND | Bind.WRITE, other: Bind.SEND}
        await refused("two counters are to count FI_", provider, domain=domain, counters=counters)


@pytest.mark.parametrize("flag", [Bind.REMOTE_WRITE, Bind.REMOTE_READ])
async def test_remote_counter_without_rma_events(flag: Bind) -> None:
    """fi_endpoint(3): FI_REMOTE_WRITE and FI_REMOTE_READ need FI_RMA_EVENT; without it the count stayed 0."""
    with open_domain("tcp;ofi_rxm", EndpointType.RDM) as domain, Counter(domain) as counter:  # others have it unasked
        options: dict[str, Any] = {"domain": domain, "counters": {counter: flag | Bind.SEND}}
        await refused(f"a counter of {flag} stays 0 .* without FI_RMA_EVENT", "tcp;ofi_rxm", **options)


async def test_shared_context_that_is_asked_for_and_not_given() -> None:
    """fi_endpoint(3): with FI_SHARED_CONTEXT "the endpoint must be bound to a shared context before it is enabled"."""
    for side in ("receive", "transmit"):
        attr = EpAttr(rx_ctx_cnt=SHARED_CONTEXT) if side == "receive" else EpAttr(tx_ctx_cnt=SHARED_CONTEXT)
        words = rf"ask for a shared {side} context .*pass shared_{side}="
        await refused(words, require("tcp" if side == "receive" else "sockets"), hints=Hints(ep_attr=attr))


@pytest.mark.parametrize(("kind", "name"), [(SharedReceive, "shared_receive"), (SharedTransmit, "shared_transmit")])
async def test_shared_context_of_another_domain(kind: type[Any], name: str) -> None:
    """The endpoint was opened on the context's domain, and domain= was ignored."""
    provider = "tcp" if kind is SharedReceive else "sockets"
    with open_domain(provider, EndpointType.MSG) as one, open_domain(provider, EndpointType.MSG) as other:
        context = kind(one)
        with context, pytest.raises(ValueError, match="pass domain= with the one"):
            await aiofabric.connect(HERE, 9, domain=other, **{name: context})
