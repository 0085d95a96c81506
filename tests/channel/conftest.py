"""These tests run over connections of both kinds."""

import pytest

from tests.fixtures.providers import CARRIERS, require


@pytest.fixture(params=CARRIERS)
def provider(request: pytest.FixtureRequest) -> str:
    return require(request.param)
