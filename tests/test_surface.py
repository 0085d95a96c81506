"""Values that hints can ask for: a provider has the value and its answer shows it, or the providers' refusal names it.

The result depends on the machine and the library; docs/coverage.md has the recorded ones.
"""

from collections.abc import Iterator
from operator import attrgetter

import pytest

from aiofabric import (
    SHARED_CONTEXT,
    AddressFormat,
    AvType,
    Caps,
    EndpointType,
    Hints,
    Info,
    MrMode,
    NoProviderError,
    OpFlags,
    Order,
    Protocol,
    ResourceManagement,
    getinfo,
)
from aiofabric.flags import Choice, Flags

SOCKADDRS = (AddressFormat.SOCKADDR_IN, AddressFormat.SOCKADDR_IN6, AddressFormat.SOCKADDR_IB)
REFUSED = {each for name, each in Caps.__members__.items() if name in ("VARIABLE_MSG", "AV_USER_ID")}  # by aiofabric
LEVELS = OpFlags.INJECT_COMPLETE | OpFlags.TRANSMIT_COMPLETE | OpFlags.DELIVERY_COMPLETE | OpFlags.COMMIT_COMPLETE


def asked() -> Iterator[tuple[str, Flags | Choice]]:
    """Field of the hints, and a value that may stand there."""
    yield from (("caps", each) for each in Caps if each not in REFUSED)
    yield from (("addr_format", each) for each in AddressFormat if each)
    yield from (("ep_attr.type", each) for each in EndpointType if each)
    yield from (("ep_attr.protocol", each) for each in Protocol if each)
    yield from (("domain_attr.av_type", each) for each in AvType if each)
    yield "domain_attr.resource_mgmt", ResourceManagement.ENABLED
    yield from (("domain_attr.mr_mode", each) for each in (MrMode.BASIC, MrMode.SCALABLE))
    yield from (("tx_attr.msg_order", each) for each in Order if each not in (Order.STRICT, Order.DATA))
    yield "tx_attr.comp_order", Order.DATA
    yield from (("tx_attr.op_flags", each) for each in (*LEVELS, OpFlags.INJECT, OpFlags.COMPLETION))


@pytest.mark.parametrize(("field", "value"), list(asked()), ids=str)
def test_a_hint_is_met_or_named_as_the_reason(field: str, value: Flags | Choice) -> None:
    outer, _, inner = field.partition(".")
    hints = Hints()
    if inner:
        setattr(getattr(hints, outer), inner, value)
    else:
        setattr(hints, outer, value)
    refusal, found = "", list[Info]()
    try:
        found = getinfo(hints=hints)
    except NoProviderError as error:
        refusal = str(error)
    member = f"{value} in {field}" if isinstance(value, Flags) else f"{field}={value}"
    named = f"No provider has {field}={value}. It would match without {member}" in refusal
    assert named or any(_has(info, field, value) for info in found)


def _has(info: Info, field: str, value: Flags | Choice) -> bool:
    offered = attrgetter(field)(info)
    if field == "domain_attr.mr_mode":  # the old names: the provider stores their values under the new ones
        return True
    if value is AddressFormat.SOCKADDR:
        return offered in SOCKADDRS
    return value in offered if isinstance(value, Flags) else bool(offered == value)


def test_a_shared_context_is_asked_for_by_a_number_of_contexts() -> None:
    hints = Hints(caps=Caps.MSG)
    hints.ep_attr.type, hints.ep_attr.rx_ctx_cnt = EndpointType.MSG, SHARED_CONTEXT
    assert all(info.ep_attr.rx_ctx_cnt == SHARED_CONTEXT for info in getinfo(hints=hints))
