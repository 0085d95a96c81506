"""Hazard: an endpoint changes how long the source of another endpoint of the same domain may sleep."""

import pytest

from aiofabric import Waiting
from aiofabric.features import Quirk, quirks
from tests.fixtures.internals import source_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import Pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS[:1])]
provider = over(["tcp"])


async def test_an_endpoint_without_receives_concerns_its_own_source_only(pair: Pair) -> None:
    """tcp of 1.17 keeps the descriptor readable while a message waits for a receive."""
    async with (
        pair(waiting=Waiting.FD, recv_size=None) as (direct, _),
        pair(waiting=Waiting.ADAPTIVE) as (pooled, _),
    ):
        if Quirk.UNEXPECTED_MESSAGE_SPINS not in quirks(direct.info):
            pytest.skip("this libfabric does not keep the descriptor readable")
        assert direct.domain is pooled.domain
        assert source_of(direct) is not source_of(pooled)
        assert source_of(direct).delays.may_stay_readable()
        assert not source_of(pooled).delays.may_stay_readable()
