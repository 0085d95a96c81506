"""CPython may crash as it collects a cycle with a memoryview that something else exports (gh-77894)."""

import pytest

from aiofabric.transport.pool import Pool
from tests.fixtures.providers import Pair


@pytest.mark.anyio
async def test_nothing_exports_the_view_of_a_pool(pair: Pair) -> None:
    async with pair() as (active, _):
        pool = active._handle.pool
        assert isinstance(pool, Pool)
    pool.view.release()  # BufferError: an export is left
