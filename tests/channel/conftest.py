"""These tests run over connections of both kinds."""

import pytest

from tests.channel.raw import Peers, raw_peers
from tests.fixtures.providers import CARRIERS, require


@pytest.fixture(params=CARRIERS)
def provider(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture
def peers(provider: str) -> Peers:
    return raw_peers(provider)
