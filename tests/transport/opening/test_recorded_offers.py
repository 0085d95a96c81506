"""Offers of providers that this machine does not have, with the values of their sources: each can be opened with.

The values come from the attributes in libfabric's prov/ directory, version 2.5.1, unless a name says otherwise.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aiofabric import Caps, DomainAttr, EndpointType, EpAttr, FabricAttr, Hints, Info, Mode, RxAttr, TxAttr
from aiofabric._ffi import constants
from aiofabric.cq.submission import most_posted
from aiofabric.errors import from_errno
from aiofabric.features import Quirk, quirks
from aiofabric.transport.opening.device_failures import leave_out
from aiofabric.transport.opening.shared_objects import opened_as
from aiofabric.transport.tags import TagFormat

pytestmark = pytest.mark.once

NO_LIMIT = 2**64 - 1

TAGS = {
    "opx": NO_LIMIT,  # fi_opx.h, FI_OPX_MEM_TAG_FORMAT
    "psm3": NO_LIMIT >> 4,  # psmx3.h: 60 bits
    "cxi": NO_LIMIT >> 16,  # cxip.h: 48 bits
}


def offer(provider: str, **domain: Any) -> Info:
    hints = Hints(
        caps=Caps.MSG | Caps.TAGGED | Caps.RMA,
        tx_attr=TxAttr(size=NO_LIMIT, iov_limit=1),
        rx_attr=RxAttr(size=NO_LIMIT, iov_limit=1),
        ep_attr=EpAttr(type=EndpointType.RDM, mem_tag_format=TAGS.get(provider, 0)),
        domain_attr=DomainAttr(name="device", **domain),
        fabric_attr=FabricAttr(prov_name=provider, name="fabric"),
    )
    return Info(hints.to_native())


@pytest.mark.parametrize("provider", ["psm2", "psm3", "opx"])
def test_sizes_without_a_limit_are_bounded(provider: str) -> None:
    info = offer(provider)
    assert info.tx_attr.size == info.rx_attr.size == NO_LIMIT
    assert 256 <= most_posted(info.tx_attr.size) <= 1 << 20
    assert most_posted(1000) == 1000


@pytest.mark.parametrize("provider", ["psm2", "psm3"])
def test_descriptors_that_never_fire_are_not_waited_on(provider: str) -> None:
    assert Quirk.NO_WAIT_FD in quirks(offer(provider))


@pytest.mark.parametrize(("provider", "found"), [("verbs;ofi_rxm", True), ("verbs;ofi_rxd", False)])
def test_what_rxm_does_over_verbs_is_said_of_no_other_layer(provider: str, found: bool) -> None:
    """rxd sends datagrams of the device: it has no connections, and cuts messages in another way."""
    known = quirks(offer(provider))
    assert bool(known & Quirk.CLOSE_POSTS_RECEIVES) is found
    assert bool(known & Quirk.SEGMENTS_CRASH) is found
    assert not quirks(offer("verbs")) & (Quirk.CLOSE_POSTS_RECEIVES | Quirk.SEGMENTS_CRASH)


def test_opx_matches_each_bit_of_a_tag_by_itself() -> None:
    TagFormat.of(offer("opx")).check(1 << 63 | 5, 0b0110)
    other = offer("psm3").replace(ep_attr={"mem_tag_format": NO_LIMIT})  # asked for by a program: one field
    with pytest.raises(ValueError, match="has a part of a field"):
        TagFormat.of(other).check(5, 0b0110)


@pytest.mark.parametrize("kind", [EndpointType.UNSPEC, EndpointType.MSG, EndpointType.RDM])
def test_message_prefixes_are_offered_for_datagrams_only(kind: EndpointType) -> None:
    """EFA switches them on for every type of endpoint if they are offered."""
    assert not Mode(Hints(ep_attr=EpAttr(type=kind)).to_native().mode) & Mode.MSG_PREFIX
    assert Mode(Hints(ep_attr=EpAttr(type=EndpointType.DGRAM)).to_native().mode) & Mode.MSG_PREFIX


def test_two_authorization_keys_never_share_an_object() -> None:
    """On CXI the key is the VNI, the network of a job."""
    one, same, other, none = (offer("cxi", auth_key=key) for key in (b"job 1", b"job 1", b"job 2", b""))
    assert opened_as(one) == opened_as(same)
    assert len({opened_as(info) for info in (one, other, none)}) == 3


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "aiofabric")
    return caplog


def test_a_device_that_cannot_be_opened_is_left_out_with_one_warning(warnings: pytest.LogCaptureFixture) -> None:
    error = from_errno(constants.FI_ENOSYS, "fi_cq_open")
    assert leave_out(offer("verbs, recorded"), error)
    assert not leave_out(offer("verbs, recorded"), error)  # no other provider is left, so the program gets the error
    assert [record.getMessage().partition(":")[0] for record in warnings.records] == [
        "The provider verbs, recorded offers endpoints here, but cannot open one"
    ]


@pytest.mark.parametrize(
    ("provider", "call"), [("tcp", "fi_cq_open"), ("tcp;ofi_rxm", "fi_enable"), ("cxi", "fi_send")]
)
def test_other_failures_are_the_programs(provider: str, call: str, warnings: pytest.LogCaptureFixture) -> None:
    assert not leave_out(offer(provider), from_errno(constants.FI_ENOSYS, call))
    assert not warnings.records
