"""FabricStream keeps the promises of anyio's and trio's stream interfaces, on every loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from aiofabric.streams import FabricStream
from tests.fixtures.providers import CARRIERS, require
from tests.streams.contract import (
    StreamMaker,
    TrioShape,
    check_half_closeable_stream,
    check_one_way_stream,
    check_two_way_stream,
)
from tests.streams.pairs import Channels, clog, over_fabric, over_sockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sockets", *CARRIERS])
def channels(request: pytest.FixtureRequest) -> Callable[[], Awaitable[Channels]]:
    if request.param == "sockets":
        return over_sockets
    return partial(over_fabric, require(request.param))


@pytest.mark.parametrize(
    "check", [check_one_way_stream, check_two_way_stream, check_half_closeable_stream], ids=lambda c: c.__name__
)
async def test_trios_checks(
    check: Callable[[StreamMaker, StreamMaker], Awaitable[None]],
    channels: Callable[[], Awaitable[Channels]],
) -> None:
    async def make() -> tuple[TrioShape, TrioShape]:
        first, second = await channels()
        return TrioShape(FabricStream(first)), TrioShape(FabricStream(second))

    async def make_clogged() -> tuple[TrioShape, TrioShape]:
        first, second = await channels()
        clog(first)
        clog(second)
        return TrioShape(FabricStream(first)), TrioShape(FabricStream(second))

    await check(make, make_clogged)
