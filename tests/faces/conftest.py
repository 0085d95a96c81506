"""These tests run over connections of both kinds."""

from tests.fixtures.providers import FACES, over

provider = over(FACES)
