"""Promises: one read is under way for a large item; the memory of items that never arrive is not lent for ever; memory
that was read is not registered any more.
"""

# Doubles: the reads of remote memory are counted.

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from aiofabric import MessageEndpoint
from aiofabric.pipeline import Publish, Pull, Push, Subscribe
from aiofabric.testing import live_resources
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

PARTS = 200
SIZE = 5000  # bytes of a part that is read out of the producer's memory
MANY = 16
LARGE = 16 << 20


async def test_an_item_of_many_parts_has_one_read_under_way(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = most = reads = 0
    read_nowait = MessageEndpoint.read_nowait

    def read_and_count(endpoint: Any, local: Any, remote: Any, done: Callable[[BaseException | None], object]) -> None:
        nonlocal under_way, most, reads
        under_way += 1
        reads += 1
        most = max(most, under_way)

        def ended(error: BaseException | None) -> None:
            nonlocal under_way
            under_way -= 1
            done(error)

        read_nowait(endpoint, local, remote, ended)

    monkeypatch.setattr(MessageEndpoint, "read_nowait", read_and_count)
    parts = [bytes([number]) * SIZE for number in range(PARTS)]
    async with Pull(listen=(HOST, 0), provider=provider) as pull, anyio.create_task_group() as tasks:

        async def push() -> None:
            async with Push(pull.address, provider=provider) as producer:
                await producer.push(parts)

        tasks.start_soon(push)
        with await pull.pull() as item:
            assert [bytes(part) for part in item.parts] == parts
    assert reads > PARTS / 2  # small parts come in the message as long as there is room
    assert most == 1


async def push_until_killed(parent: Parent, port: int, provider: str) -> None:
    async with Push((HOST, port), provider=provider) as producer:
        for _ in range(MANY):
            await producer.push(bytes(LARGE))
        parent.tell("pushed")
        await anyio.sleep_forever()


async def test_memory_of_a_producer_that_dies_is_not_lent_for_ever(child: Callable[..., Child], provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:
        producer = child(push_until_killed, pull.address.port, provider)
        item = await pull.pull()  # others are being read, and wait
        producer.kill()
        item.ack()
        with anyio.fail_after(30):
            while (now := pull.statistics()).producers or now.queued or now.lent_bytes:
                with anyio.move_on_after(0.05):
                    (await pull.pull()).ack()


def registrations() -> int:
    """How many pieces of memory are registered in this process. Over verbs, receives are, too."""
    return sum("MemoryRegion" in each for each in live_resources())


async def test_the_memory_of_an_item_that_was_read_is_not_registered_while_its_consumer_keeps_it(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull, Push(pull.address, provider=provider) as push:
        await until(lambda: bool(push.statistics().consumers))
        before = registrations()
        for _ in range(3):
            await push.push(bytes(1 << 20))
        item = await pull.pull()
        await until(lambda: pull.statistics().queued == 2 and registrations() == before)
        assert push.statistics().not_acknowledged == 3
        for each in (item, await pull.pull(), await pull.pull()):
            each.ack()


async def test_the_memory_of_a_publication_that_was_read_is_not_registered(provider: str) -> None:
    async with (
        Publish(listen=(HOST, 0), provider=provider) as publish,
        Subscribe(publish.address, "t", provider=provider) as subscribe,
    ):
        await publish.wait_for_subscribers()
        before = registrations()
        await publish.publish("t", bytes(1 << 20))
        item = await subscribe.pull()
        await until(lambda: registrations() == before)
        assert publish.statistics().subscribers[0].not_acknowledged == 1
        item.ack()
