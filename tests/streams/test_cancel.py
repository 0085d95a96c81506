"""Cancelling: a receive loses nothing, a send is whole or breaks the stream."""

from __future__ import annotations

import hashlib
import random
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import anyio
import pytest
from anyio.abc import SocketAttribute
from anyio.lowlevel import checkpoint

from aiofabric.streams import FabricStream, MessageStream, open_datagrams
from tests.fixtures.providers import RXM
from tests.streams.cancels import interrupt
from tests.streams.pairs import over_fabric, over_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

Stream: TypeAlias = FabricStream | MessageStream

CANCELS = {"tcp": 10_000, "shm": 1_000, "udp": 10_000, "verbs": 300, RXM: 300}  # of each adapter on each loop
SOME = 0.1  # of the cancels: receives that were not cancelled; each adapter has far more


async def until_the_end(receive: Callable[[], Awaitable[None]]) -> None:
    while True:
        await receive()


async def test_cancelled_receives_lose_no_byte(provider: str) -> None:
    chance = random.Random(1)
    one, other = map(FabricStream, await over_fabric(provider))
    sent, received, buffer, pieces, enough = hashlib.sha256(), hashlib.sha256(), bytearray(5000), 0, False

    async def send() -> None:
        while not enough:
            item = chance.randbytes(chance.choice([1, 10, 1000, 20_000, 100_000]))
            sent.update(item)
            await one.send(item)
            for _ in range(chance.randrange(8)):
                await checkpoint()
        await one.send_eof()

    async def receive() -> None:
        nonlocal pieces
        if chance.random() < 0.5:
            count = await other.receive_into(buffer)
            received.update(memoryview(buffer)[:count])
        else:
            received.update(await other.receive(5000))
        pieces += 1

    async with one, other, anyio.create_task_group() as tg:
        tg.start_soon(send)
        await interrupt(receive, chance, cancels=CANCELS[provider])
        enough = True
        with pytest.raises(anyio.EndOfStream):
            await until_the_end(receive)
    assert received.digest() == sent.digest()
    assert pieces > SOME * CANCELS[provider]


async def test_cancelled_receives_lose_no_message(provider: str) -> None:
    chance = random.Random(2)
    one, other = await over_messages(provider)
    received, sent, enough = 0, 0, False

    async def send() -> None:
        nonlocal sent
        while not enough:
            await one.send(b"%d" % sent + bytes(chance.choice([0, 10, 9000, 100_000])))
            sent += 1
            for _ in range(chance.randrange(8)):
                await checkpoint()
        await one.send_eof()

    async def receive() -> None:
        nonlocal received
        message = await other.receive()
        assert int(message.rstrip(b"\0")) == received
        received += 1

    async with one, other, anyio.create_task_group() as tg:
        tg.start_soon(send)
        await interrupt(receive, chance, cancels=CANCELS[provider])
        enough = True
        with pytest.raises(anyio.EndOfStream):
            await until_the_end(receive)
    assert received == sent > SOME * CANCELS[provider]


async def test_cancelled_receives_lose_no_datagram() -> None:
    chance = random.Random(3)
    one, other = [await open_datagrams("127.0.0.1", 0, provider="udp") for _ in range(2)]
    place, received, sent = other.extra(SocketAttribute.local_address), 0, 0

    async def send() -> None:
        nonlocal sent
        while True:
            if sent - received < 32:  # so many wait for their receiver without loss
                await one.send((b"%d" % sent, place))
                sent += 1
            for _ in range(chance.randrange(8)):
                await checkpoint()

    async def receive() -> None:
        nonlocal received
        assert int((await other.receive())[0]) == received
        received += 1

    async with one, other, anyio.create_task_group() as tg:
        tg.start_soon(send)
        await interrupt(receive, chance, cancels=CANCELS["udp"])
        tg.cancel_scope.cancel()
    assert received > SOME * CANCELS["udp"]


async def over_bytes(provider: str) -> tuple[Stream, Stream]:
    one, other = await over_fabric(provider)
    return FabricStream(one), FabricStream(other)


@pytest.mark.parametrize("make", [over_bytes, over_messages], ids=["bytes", "messages"])
@pytest.mark.parametrize("size", [400, 30_000], ids=["small", "large"])
async def test_a_cancelled_send_is_whole_or_breaks_the_stream(
    provider: str, make: Callable[[str], Awaitable[tuple[Stream, Stream]]], size: int
) -> None:
    chance = random.Random(size)
    for _ in range(20):
        one, other = await make(provider)
        await _cancel_sends(one, other, size, chance)


@pytest.mark.parametrize("size", [300_000, 6 << 20], ids=["all handed over", "in part"])
async def test_the_memory_of_a_cancelled_send_may_be_changed(provider: str, size: int) -> None:
    """Hazard: the provider, or the peer itself, still reads it; the peer would get bytes that were never sent."""
    for attempt in range(20):
        one, other = map(FabricStream, await over_fabric(provider))
        item = bytearray(b"\1") * size
        with anyio.move_on_after(attempt % 4 * 1e-4):
            await one.send(item)
        item[:] = b"\2" * size
        received = bytearray()
        async with one, other:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError), anyio.fail_after(0.3):
                while len(received) < size:
                    received += await other.receive(1 << 20)
            one.abort()
        assert not received.strip(b"\1")


async def _cancel_sends(one: Stream, other: Stream, size: int, chance: random.Random) -> None:
    """The items are numbered: a hole or a half would show. Both ends agree on whether the stream broke."""
    begun, received, broken, lost = bytearray(), bytearray(), False, False

    async def drain() -> None:
        nonlocal lost
        try:
            with suppress(anyio.EndOfStream):
                while True:
                    received.extend(await other.receive())
                    for _ in range(chance.randrange(3)):
                        await checkpoint()
        except anyio.BrokenResourceError:
            lost = True

    async def send() -> None:
        item = (len(begun) // size).to_bytes(4, "big") * (size // 4)
        begun.extend(item)
        await one.send(item)

    async with one, other, anyio.create_task_group() as tg:
        tg.start_soon(drain)
        try:
            await interrupt(send, chance, cancels=50, attempts=200)
            await one.wait_send_might_not_block()  # no send follows the last cancel to tell that it broke the stream
        except* anyio.BrokenResourceError:
            broken = True
        await one.aclose()
    assert begun.startswith(received)
    assert lost == broken
    assert broken or received == begun
