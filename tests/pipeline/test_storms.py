"""Consumers and producers in processes of their own, which are killed, stopped and started at random."""

from __future__ import annotations

import random
import signal
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiofabric.pipeline import Publish, Pull, Push, Subscribe
from aiofabric.testing import live_resources
from tests.fixtures.children import TIMEOUT, Child, ChildFailed, Parent
from tests.fixtures.providers import OWN_HOST, RDMA_HOST
from tests.fixtures.stopping import stop, stopped
from tests.fixtures.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(600 if RDMA_HOST else 180)]

ITEMS = 3000
Start = Callable[..., Child]


def item_of(number: int) -> bytes:
    """An item that says which one it is, and whether it is intact. Every fiftieth is large: in a message, in a message
    over tcp, or read.
    """
    times = 4 if number % 50 else 20_000 if number % 100 else 100_000 if number % 200 else 280_000
    body = number.to_bytes(8, "little") * times
    return zlib.crc32(body).to_bytes(4, "little") + body


def memory_of(push: Push, item: bytes, memory: str) -> Any:
    """An item as it is, or, if it is large, in memory of the producer's pool."""
    if memory == "own" or len(item) < 100_000:
        return item
    taken = push.pool.take(len(item))
    taken[:] = item
    return taken


def number_of(data: Any) -> int:
    body = bytes(data)
    assert zlib.crc32(body[4:]) == int.from_bytes(body[:4], "little")
    return int.from_bytes(body[4:12], "little")


async def consume(parent: Parent, port: int, provider: str) -> None:
    """Tell the parent each item, then acknowledge it."""
    async with Pull((OWN_HOST, port), provider=provider, window=50) as pull:
        parent.tell("connecting")
        async for item in pull:
            parent.tell((number_of(item.data), item.redelivered))


async def produce(parent: Parent, port: int, provider: str, first: int) -> None:
    async with Push((OWN_HOST, port), provider=provider) as push:
        for number in range(first, first + ITEMS):
            await push.push(item_of(number))
        await push.drain()
        parent.tell("drained")


Told = tuple[int, bool]  # the number of an item, and whether it was redelivered


def collect(children: list[Child], found: list[Told]) -> None:
    """Take the words of all consumers until now, also of those that were killed since."""
    for each in children:
        with suppress(ChildFailed):  # it was killed, and everything was read
            while each.has_said():
                word = each.receive()
                if word != "connecting":
                    found.append(word)


async def keep_collecting(children: list[Child], found: list[Told]) -> None:
    """So that no consumer waits for the pipe."""
    while True:
        collect(children, found)
        await anyio.sleep(0.005)


@pytest.mark.parametrize("memory", ["own", "pool"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_killed_and_stopped_consumers_lose_no_item(child: Start, provider: str, how: int, memory: str) -> None:
    """Every item is told, and one that was told twice was marked as redelivered."""
    chance = random.Random(39)
    found: list[Told] = []
    children: list[Child] = []
    async with Push(listen=(OWN_HOST, 0), provider=provider) as push, anyio.create_task_group() as tasks:
        port = push.address.port
        children += [child(consume, port, provider) for _ in range(3)]
        tasks.start_soon(keep_collecting, children, found)

        async def storm() -> None:
            for _ in range(6):
                await anyio.sleep(chance.uniform(0.05, 0.3))
                victim = chance.choice(children[-3:])
                if how == signal.SIGSTOP:
                    with stopped(victim.pid):
                        await anyio.sleep(chance.uniform(0.05, 0.2))
                else:
                    victim.kill()
                    children.append(child(consume, port, provider))

        tasks.start_soon(storm)
        for number in range(ITEMS):
            await push.push(memory_of(push, item_of(number), memory))
        with anyio.fail_after(60):
            await push.drain()
        tasks.cancel_scope.cancel()
    collect(children, found)
    times = Counter(number for number, _ in found)
    marked = Counter(number for number, redelivered in found if redelivered)
    assert set(times) == set(range(ITEMS))
    assert all(marked[number] >= count - 1 for number, count in times.items())


async def test_killed_producers_end_nothing_else(child: Start, provider: str) -> None:
    before = len(live_resources())
    async with Pull(listen=(OWN_HOST, 0), provider=provider, producers=None) as pull:
        port = pull.address.port
        assert port is not None
        doomed = [child(produce, port, provider, 10**6 * (at + 1)) for at in range(3)]
        for each in doomed:
            with await pull.pull() as item:
                number_of(item.data)
            each.kill()
        honest = child(produce, port, provider, 0)
        found: set[int] = set()
        with anyio.fail_after(60):
            while len(found) < ITEMS:
                with await pull.pull() as item:
                    number = number_of(item.data)
                    if number < ITEMS:
                        assert number not in found
                        found.add(number)
            assert await honest.areceive() == "drained"
    assert len(live_resources()) == before


async def subscribe(parent: Parent, port: int, provider: str) -> None:
    """Check each publication; tell the first one, and the last."""
    last = -1
    async with Subscribe((OWN_HOST, port), provider=provider, window=50) as subscriber:
        async for publication in subscriber:
            assert number_of(publication.data) == publication.number > last
            if last < 0:
                parent.tell("first")
            last = publication.number
    parent.tell(last)


async def test_killed_and_stopped_subscribers_disturb_no_other(child: Start, provider: str) -> None:
    """Publications are intact, in order, and doubled for none; who stays to the end gets the last one."""
    chance = random.Random(40)
    before = len(live_resources())
    async with (
        Publish(listen=(OWN_HOST, 0), provider=provider, queue=100) as publish,
        anyio.create_task_group() as tasks,
    ):
        port = publish.address.port
        paused, *children = (child(subscribe, port, provider) for _ in range(4))

        async def keep_publishing() -> None:
            while True:
                for _ in range(20):
                    await publish.publish("t", item_of(publish.statistics().published))
                await anyio.sleep(0.01)

        tasks.start_soon(keep_publishing)
        assert await paused.areceive() == "first"
        stop(paused.pid)
        for _ in range(6):
            await anyio.sleep(chance.uniform(0.05, 0.3))
            children.pop(chance.randrange(3)).kill()
            children.append(child(subscribe, port, provider))
        for each in children:
            assert await each.areceive() == "first"
        tasks.cancel_scope.cancel()
        paused.send_signal(signal.SIGCONT)
    for each in [*children, paused]:
        assert await each.areceive() == publish.statistics().published - 1
    assert len(live_resources()) == before


async def publish_for_ever(parent: Parent, port: int, provider: str) -> None:
    async with Publish((OWN_HOST, port), provider=provider) as publish:
        await publish.wait_for_subscribers()
        parent.tell("publishing")
        while True:
            await publish.publish("t", item_of(publish.statistics().published))
            await anyio.lowlevel.checkpoint()


async def test_killed_publishers_end_nothing_else(child: Start, provider: str) -> None:
    """All publications of each that arrive are intact and in order, and those of the next one arrive."""
    before = len(live_resources())
    async with Subscribe(topics="t", listen=(OWN_HOST, 0), provider=provider, publishers=None) as subscribe:
        port = subscribe.address.port
        last: dict[bytes, int] = {}
        for count in range(1, 5):
            publisher = child(publish_for_ever, port, provider)
            assert await publisher.areceive() == "publishing"
            with anyio.fail_after(30):
                while len(last) < count or max(last.values()) < 200:
                    with await subscribe.pull() as publication:
                        assert number_of(publication.data) == publication.number
                        assert publication.number > last.get(publication.producer, -1)
                        last[publication.producer] = publication.number
            publisher.kill()
    assert len(live_resources()) == before


async def consume_for_ever(parent: Parent, port: int, provider: str) -> None:
    async with Pull((OWN_HOST, port), provider=provider, producers=None) as pull:
        async for _ in pull:
            pass


async def produce_for_ever(parent: Parent, port: int, provider: str) -> None:
    async with Push((OWN_HOST, port), provider=provider) as push:
        while True:
            await push.push(item_of(0))


async def subscribe_for_ever(parent: Parent, port: int, provider: str) -> None:
    async with Subscribe((OWN_HOST, port), provider=provider) as subscribe:
        async for _ in subscribe:
            pass


PEERS: dict[type[Any], tuple[Callable[..., Any], dict[str, Any]]] = {
    Push: (consume_for_ever, {}),
    Pull: (produce_for_ever, {"producers": None}),
    Publish: (subscribe_for_ever, {"when_slow": "hold"}),
    Subscribe: (publish_for_ever, {"topics": "t", "publishers": None}),
}


async def work(end: Any) -> None:
    """Take an item, or give a large one."""
    if isinstance(end, Push):
        await end.push(item_of(0))
    elif isinstance(end, Publish):
        await end.publish("t", item_of(0))
    else:
        (await end.pull()).ack()


@pytest.mark.parametrize("end", PEERS)
async def test_a_block_that_raises_ends_while_its_peer_is_stopped(child: Start, provider: str, end: type[Any]) -> None:
    """Large items wait at the peer, or are being read from it. The rest of the connection ends with the peer."""
    before = len(live_resources())
    function, options = PEERS[end]
    peers: list[Child] = []

    async def block() -> None:
        async with end(listen=(OWN_HOST, 0), provider=provider, **options) as here:
            peers.append(child(function, here.address.port, provider))
            if isinstance(here, Publish):
                await here.wait_for_subscribers()
            for _ in range(20):
                await work(here)
            stop(peers[0].pid)
            with anyio.move_on_after(0.3):
                while True:
                    await work(here)
            raise ArithmeticError

    with anyio.fail_after(TIMEOUT if RDMA_HOST else 15), pytest.raises(ArithmeticError):
        await block()
    peers[0].kill()
    await until(lambda: len(live_resources()) == before)
