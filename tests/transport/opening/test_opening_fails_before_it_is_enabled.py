"""Hazard: opening an endpoint fails before it is enabled. Closing such an endpoint ended the process over sm2."""

import pytest

from aiofabric import Caps
from tests.fixtures.children import run_in_child
from tests.fixtures.peers import RARE, RDM, skip_without, where

PROGRAM = """
    import sys
    import anyio, aiofabric
    from aiofabric import EndpointType
    from aiofabric.testing import live_resources

    provider, node = sys.argv[1:]

    def unprepared(settings):
        raise RuntimeError("the program's own")

    async def main():
        for _ in range(3):
            try:
                async with aiofabric.open_endpoint(
                    EndpointType.RDM, node or None, provider=provider, prepare=unprepared
                ):
                    print("opened")
            except RuntimeError as error:
                print(error)
            assert not live_resources(), live_resources()
        async with aiofabric.open_endpoint(EndpointType.RDM, node or None, provider=provider) as ep:
            await ep.add_peer(ep.local_address)
            print("works")

    anyio.run(main)
"""


@pytest.mark.parametrize("provider", RDM + RARE)
def test_the_error_is_the_programs(provider: str) -> None:
    skip_without(provider, Caps.MSG)
    ended = run_in_child(PROGRAM, provider, where(provider) or "")
    assert (ended.status, ended.err) == (0, ""), ended
    assert ended.out.splitlines() == ["the program's own"] * 3 + ["works"]
