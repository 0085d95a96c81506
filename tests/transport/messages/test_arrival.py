"""The awaitable of an inbox: the task that waits longest gets a message, and a cancelled task loses none."""

# Privates: `_enlist` makes the waiter alone, without the task that awaits it.

import gc
from typing import Any

import anyio
import pytest

from aiofabric import MessageEndpoint, TruncatedMessageError
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import Pair, over

pytestmark = pytest.mark.anyio

provider = over(["tcp"])


class Left(Exception):
    """Why the caller does not wait any longer."""


def awaited(endpoint: MessageEndpoint, room: int | None = None) -> Any:
    """As `recv` has it when nothing has arrived and nothing comes before waiting."""
    pool = handle_of(endpoint).pool
    assert pool is not None
    assert not pool.inbox
    return pool._enlist(room, None if room else endpoint)


def waiting(endpoint: MessageEndpoint) -> tuple[int, int]:
    pool = handle_of(endpoint).pool
    assert pool is not None
    return pool.waiting, pool.source.interest


def thrown(arrival: Any) -> None:
    with pytest.raises(Left):
        arrival.throw(Left())


def thrown_as_before_3_12(arrival: Any) -> None:
    with pytest.raises(Left):
        arrival.throw(Left, Left(), None)


def closed(arrival: Any) -> None:
    arrival.close()


def forgotten(arrival: Any) -> None:
    del arrival
    gc.collect()


WAYS = pytest.mark.parametrize("way", [thrown, thrown_as_before_3_12, closed, forgotten])


@WAYS
@pytest.mark.filterwarnings("ignore:the .type, exc, tb. signature of throw:DeprecationWarning")
async def test_who_leaves_before_it_waits_takes_nothing_along(pair: Pair, way: Any) -> None:
    async with pair() as (active, passive):
        before = waiting(passive)
        arrivals = [awaited(passive)]
        assert waiting(passive) == (1, before[1] + 1)
        way(arrivals.pop())
        assert waiting(passive) == before
        await active.send(b"the next one's")
        with anyio.fail_after(5):
            assert await passive.recv() == b"the next one's"


@pytest.mark.parametrize("way", [thrown, closed, forgotten])
async def test_who_leaves_with_a_message_in_hand_gives_it_back(pair: Pair, way: Any) -> None:
    async with pair() as (active, passive):
        before = waiting(passive)
        arrivals = [awaited(passive)]
        pool: Any = handle_of(passive).pool
        await active.send(b"first")
        await active.send(b"second")
        with anyio.fail_after(5):
            while pool.waiting:
                await anyio.lowlevel.checkpoint()
        way(arrivals.pop())
        assert waiting(passive) == before
        with anyio.fail_after(5):
            assert await passive.recv() == b"first"
            assert await passive.recv() == b"second"


async def test_it_is_awaited_once(pair: Pair) -> None:
    async with pair() as (active, passive):
        arrival = awaited(passive)
        await active.send(b"all there is")
        with anyio.fail_after(5):
            message = await arrival
        assert message == b"all there is"
        assert message.source == passive.peer_address
        before = waiting(passive)
        for again in (arrival.send, arrival.throw):
            with pytest.raises(RuntimeError, match="not awaited yet"):
                again(None)
        with pytest.raises(RuntimeError, match="not awaited yet"):
            await arrival
        arrival.close()
        assert waiting(passive) == before


async def test_what_is_too_long_for_who_waited_stays_the_next_one(pair: Pair) -> None:
    async with pair() as (active, passive):
        arrival = awaited(passive, 3)
        await active.send(b"four")
        with anyio.fail_after(5):
            with pytest.raises(TruncatedMessageError) as caught:
                await arrival
            assert (caught.value.size, caught.value.limit) == (4, 3)
            assert await passive.recv() == b"four"
