"""Hazard: at the end of a connection that has received a part of a message, rxm of 2.x crashes. That of 1.x hangs, over
verbs.

`make test-rdma` ends connections over verbs under a stream of messages of 100,000 bytes, and rxm would send these in
segments.
"""

# Privates: only a device has offers of verbs, so the variable is set for a recorded one.

import os

import pytest

from aiofabric import Version, library_version, workarounds
from aiofabric.transport.workarounds.rxm_segments import send_in_one_piece
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import require
from tests.transport.workarounds.test_rxm_receives import offer

pytestmark = pytest.mark.once

PROGRAM = """
    import os, anyio, aiofabric
    from aiofabric import AvType, EndpointType, EpAttr, FabricAttr, Hints, RdmEndpoint, getinfo
    from aiofabric.transport.opening.options import EndpointOptions

    before = dict(os.environ)

    def changes():
        return {name: value for name, value in os.environ.items() if before.get(name) != value}

    def open_one(provider):
        kind = EpAttr(type=EndpointType.RDM)
        info = getinfo(hints=Hints(ep_attr=kind, fabric_attr=FabricAttr(prov_name=provider)))[0]
        return RdmEndpoint(info, None, EndpointOptions(), AvType.UNSPEC)

    async def main():
        async with open_one("udp;ofi_rxd"):
            print(changes())
        async with open_one("tcp;ofi_rxm"):
            print(changes())

    anyio.run(main)
"""


@pytest.mark.parametrize(
    ("words", "value", "changed"),
    [("", None, True), ("", "4096", False), ("no-environment", None, False)],
    ids=["not set", "set by the program", "switched off"],
)
def test_the_environment_changes_with_the_first_endpoint_over_rxm(
    words: str, value: str | None, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for provider in ("udp;ofi_rxd", "tcp;ofi_rxm"):
        require(provider)
    monkeypatch.delenv("FI_OFI_RXM_SAR_LIMIT", raising=False)
    if value is not None:
        monkeypatch.setenv("FI_OFI_RXM_SAR_LIMIT", value)
    ended = run_in_child(PROGRAM, AIOFABRIC_WORKAROUNDS=words)
    needed = library_version() >= Version(2, 0)
    expected = {"FI_OFI_RXM_SAR_LIMIT": "0"} if changed and needed else {}
    assert (ended.status, ended.out.splitlines()) == (0, ["{}", str(expected)]), ended.err


@pytest.mark.parametrize(
    ("provider", "since"),
    [("verbs;ofi_rxm", Version(1, 0)), ("tcp;ofi_rxm", Version(2, 0)), ("verbs", Version(99, 0))],
)
def test_rxm_over_verbs_sends_no_segments_with_any_libfabric(
    provider: str, since: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FI_OFI_RXM_SAR_LIMIT", "")
    del os.environ["FI_OFI_RXM_SAR_LIMIT"]
    monkeypatch.setitem(workarounds._states, "environment", workarounds.State.ON)
    send_in_one_piece(offer(provider))
    assert os.environ.get("FI_OFI_RXM_SAR_LIMIT") == ("0" if library_version() >= since else None)
