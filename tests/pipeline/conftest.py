"""Tests of pipelines run over connections of each kind."""

from tests.fixtures.providers import CARRIERS, RXM, over

provider = over([*CARRIERS, RXM] if RXM not in CARRIERS else CARRIERS)
