"""Promises: one read is under way for a large item; the memory of items that never arrive is not lent for ever; memory
that was read is not registered any more.
"""

# Doubles: the reads of remote memory are counted.

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sniffio

from aiofabric import Address, MessageEndpoint, listen
from aiofabric.pipeline import Publish, Pull, Push, Subscribe
from aiofabric.pipeline.protocol.hello import Hello, Role
from aiofabric.testing import live_resources
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

PARTS = 200
SIZE = 5000  # bytes of a part that is read out of the producer's memory
MANY = 16
LARGE = 16 << 20
LONG = 1 << 20


@dataclass
class Reads:
    """Of remote memory, by this process."""

    count: int = 0
    under_way: int = 0
    most: int = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads()
    read_nowait = MessageEndpoint.read_nowait

    def read_and_count(endpoint: Any, local: Any, remote: Any, done: Callable[[BaseException | None], object]) -> None:
        reads.under_way += 1
        reads.count += 1
        reads.most = max(reads.most, reads.under_way)

        def ended(error: BaseException | None) -> None:
            reads.under_way -= 1
            done(error)

        read_nowait(endpoint, local, remote, ended)

    monkeypatch.setattr(MessageEndpoint, "read_nowait", read_and_count)
    return reads


async def push_all(address: Address, provider: str, items: list[Any]) -> None:
    async with Push(address, provider=provider) as push:
        for item in items:
            await push.push(item)


async def test_an_item_of_many_parts_has_one_read_under_way(provider: str, reads: Reads) -> None:
    parts = [bytes([number]) * SIZE for number in range(PARTS)]
    async with Pull(listen=(HOST, 0), provider=provider) as pull, anyio.create_task_group() as tasks:
        tasks.start_soon(push_all, pull.address, provider, [parts])
        with await pull.pull() as item:
            assert [bytes(part) for part in item.parts] == parts
    assert reads.count > PARTS / 2  # small parts come in the message as long as there is room
    assert reads.most == 1


@pytest.mark.parametrize("window_bytes", [7 << 20, 64 << 20])
async def test_items_of_a_mebibyte_come_in_messages_of_tcp_if_the_window_has_room_for_the_receives(
    provider: str, window_bytes: int, reads: Reads
) -> None:
    items = [bytes([number]) * LONG for number in range(30)]
    async with (
        Pull(listen=(HOST, 0), provider=provider, window_bytes=window_bytes) as pull,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(push_all, pull.address, provider, items)
        held = []
        for expected in items:
            item = await pull.pull()
            assert item.data == expected
            held.append(item)
            if len(held) == min(8, window_bytes // LONG - 1):  # the last of 8 are copied: most receives are lent
                for each in held:
                    each.ack()
                held.clear()
        for each in held:
            each.ack()
    in_messages = provider == "tcp" and window_bytes > 8 << 20
    assert reads.count == (0 if in_messages else len(items))


async def test_an_item_goes_to_a_consumer_with_little_memory_when_one_with_long_receives_leaves(provider: str) -> None:
    item = bytes(range(256)) * (LONG // 256)
    async with Push(listen=(HOST, 0), provider=provider) as push:
        async with Pull(push.address, provider=provider) as first:
            await push.push(item)
            held = await first.pull()  # until this consumer leaves
            assert held.data == item
        async with Pull(push.address, provider=provider, window_bytes=2 * LONG) as second:
            with await second.pull() as again:
                assert again.redelivered
                assert again.data == item


async def test_the_receives_of_many_producers_fit_in_the_window(provider: str, reads: Reads) -> None:
    item = bytes(LONG)
    async with Pull(listen=(HOST, 0), provider=provider, producers=None, window_bytes=18 << 20) as pull:
        for _ in range(2):  # what the first connections had is free again
            reads.count = 0
            async with AsyncExitStack() as stack:
                pushes = [await stack.enter_async_context(Push(pull.address, provider=provider)) for _ in range(2)]
                third = await stack.enter_async_context(Push(pull.address, provider=provider))
                await until(lambda: len(pull.statistics().producers) == 3)
                for push in (*pushes, third):
                    await push.push(item)
                for _ in range(3):
                    with await pull.pull() as one:
                        assert one.data == item
            await until(lambda: not pull.statistics().producers)
            assert reads.count == (1 if provider == "tcp" else 3)


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


async def hold_items_in_cycles(parent: Parent, port: int, provider: str) -> str:
    gc.disable()
    said: list[Any] = []
    if sniffio.current_async_library() == "asyncio":
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    sys.unraisablehook = said.append
    for _ in range(4):
        async with Pull((HOST, port), provider=provider) as pull:
            for _ in range(20):
                cycle: list[Any] = [await pull.pull()]
                cycle.append(cycle)
                del cycle
        gc.collect()
    for _ in range(10):  # iterations of the loop, in which the receives would be given back
        await anyio.lowlevel.checkpoint()
    gc.enable()
    return repr(said)


@pytest.mark.parametrize("provider", ["tcp", "shm"])  # rxm of 1.17 keeps sockets of consumers that leave meanwhile
async def test_items_that_are_collected_after_the_end_say_nothing(child: Callable[..., Child], provider: str) -> None:
    """Hazard: they are collected together with the receives that their data is in."""
    async with Push(listen=(HOST, 0), provider=provider, delivery="at_most_once") as push:
        consumer = child(hold_items_in_cycles, push.address.port, provider)

        async def produce() -> None:
            while True:
                await push.push(bytes(40_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            assert await consumer.aresult() == "[]"
            tasks.cancel_scope.cancel()


def registrations() -> int:
    """How many pieces of memory are registered in this process. Over verbs, receives are, too."""
    return sum("MemoryRegion" in each for each in live_resources())


async def test_the_memory_of_an_item_that_was_read_is_not_registered_while_its_consumer_keeps_it(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull, Push(pull.address, provider=provider) as push:
        await until(lambda: bool(push.statistics().consumers))
        before = registrations()
        for _ in range(3):
            await push.push(bytes(2 << 20))
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


async def announced_sizes(parent: Parent, provider: str) -> list[int]:
    """The bytes of the receives that consumers announce which connect without the name of a provider."""
    os.environ["FI_PROVIDER"] = provider  # libfabric has no other one
    sizes: list[int] = []
    us = Hello(Role.PUSH, bytes(16), LONG)
    async with listen(HOST, 0) as listener:
        for window_bytes in (64 * LONG, LONG):
            async with Pull(listener.address, window_bytes=window_bytes), anyio.create_task_group() as tasks:
                request = await listener.accept_request()
                assert request.info.fabric_attr.prov_name == provider
                sizes.append(us.check_other(request.param).recv_size)
                request.reject(param=b"enough")
                tasks.cancel_scope.cancel()
    return sizes


@pytest.mark.parametrize(("provider", "long"), [("tcp", True), ("sockets", False)])
async def test_long_receives_are_for_a_provider_that_writes_into_them(
    child: Callable[..., Child], provider: str, long: bool
) -> None:
    """Also if the provider was not named: over verbs they would be pinned."""
    of_large_window, of_small_window = await anyio.to_thread.run_sync(child(announced_sizes, provider).result)
    assert (of_large_window > LONG) == long
    assert of_small_window < LONG
