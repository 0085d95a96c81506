"""These tests run over connections of both kinds."""

import pytest

from tests.fixtures.providers import FACES, require


@pytest.fixture(params=FACES)
def provider(request: pytest.FixtureRequest) -> str:
    return require(request.param)
