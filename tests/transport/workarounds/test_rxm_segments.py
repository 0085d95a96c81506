"""Hazard: rxm of 2.x crashes at the end of a connection that has received a part of a message."""

import pytest

from aiofabric import Version, library_version
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import require

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
