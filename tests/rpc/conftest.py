"""These tests run over connections of both kinds."""

from tests.fixtures.providers import CARRIERS, over

provider = over(CARRIERS)
