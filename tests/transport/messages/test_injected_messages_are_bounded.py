"""Promise: after 64 injected messages, which have no completion, one follows whose completion is counted.

Without it, nothing would bound the messages in flight.
"""

import anyio
import pytest

from tests.fixtures.internals import handle_of
from tests.fixtures.loops import LOOPS
from tests.fixtures.providers import Pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS[:1])]
provider = over(["tcp"])

EVERY = 64
MOST = 256


async def test_one_message_in_sixty_four_has_a_completion(pair: Pair) -> None:
    async with pair(recv_count=512) as (active, passive):
        route = handle_of(active).tx
        for number in range(EVERY):
            assert route.unfenced == number
            active.send_nowait(b"x")
        assert (route.unfenced, route.untracked, len(route.posted)) == (EVERY, EVERY, 0)
        active.send_nowait(b"x")
        assert (route.unfenced, route.untracked, len(route.posted)) == (0, EVERY, 1)
        with anyio.fail_after(10):
            await route.drained()
            assert route.untracked == 0
            for _ in range(EVERY + 1):
                assert await passive.recv() == b"x"


async def test_so_many_injected_messages_are_in_flight_at_most(pair: Pair) -> None:
    async with pair(recv_count=2 * MOST) as (active, passive):
        route = handle_of(active).tx
        for _ in range(2 * MOST):
            active.send_nowait(b"x")
            assert route.untracked <= MOST + EVERY
        with anyio.fail_after(10):
            for _ in range(2 * MOST):
                assert await passive.recv() == b"x"
