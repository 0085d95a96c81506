"""The connections on which the integrations are tested."""

import pytest

from tests.fixtures.providers import CARRIERS, require


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest) -> str:
    """The name of a provider that streams and transports run on; a test skips where it is missing."""
    return require(request.param)
