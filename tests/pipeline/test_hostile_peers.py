"""A peer that breaks the protocol of pipelines ends its own connection, and no other."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric.pipeline import Publish, Pull, Push, Subscribe
from aiofabric.pipeline.protocol.frames import (
    ACK,
    END,
    HEADER,
    ITEM,
    ITEMS,
    READ,
    ROW,
    encode_ack,
    encode_item,
    encode_items,
    encode_row,
)
from aiofabric.pipeline.protocol.hello import Hello, Role
from aiofabric.pipeline.protocol.topics import PUBLISHED, SUBSCRIBE, encode_published
from tests.fixtures.providers import HOST

pytestmark = pytest.mark.anyio

PRODUCER = Hello(Role.PUSH, b"p" * 16, 65536, at_least_once=True).pack()
CONSUMER = Hello(Role.PULL, b"c" * 16, 65536, 8, 1 << 20, 1 << 30).pack()

TO_A_CONSUMER = [
    b"",
    b"short",
    HEADER.pack(200, 0, 0, 0, 0),
    HEADER.pack(ACK, 0, 0, 0, 0),
    HEADER.pack(ITEMS, 0, 0, 0, 0),
    HEADER.pack(ITEMS, 0, 65535, 0, 0),
    HEADER.pack(ITEMS, 2, 1, 0, 0) + struct.pack("<I", 1 << 31),
    HEADER.pack(ITEM, 0, 1, 1 << 31, 0) + struct.pack("<Q", 5),
    (HEADER.pack(ITEM, 0, 1, 0, 0) + struct.pack("<Q", 1 << 63 | 1 << 40)).ljust(64, b"\0"),
    (HEADER.pack(ITEM, 0, 1, 0, 0) + struct.pack("<Q", 1 << 63 | 1 << 20)).ljust(64, b"\0") + b"\5\0where",
    HEADER.pack(ITEM, 0, 1, 0, 0) + struct.pack("<Q", 1 << 63 | 1 << 20),
    HEADER.pack(ITEM, 0, 0, 0, 0),
    encode_items([b"x"] * 2000, range(2000)),
    HEADER.pack(ITEM, 0, 1, 0, 0) + struct.pack("<QH", 1 << 63 | 1 << 40, 5) + b"where",
    HEADER.pack(ROW, 0, 2, 0, 0),
    HEADER.pack(ROW, 0, 2, 0, 0) + struct.pack("<4Q", 64, 1 << 63, 0, 1),
]
TO_A_PRODUCER = [
    b"",
    HEADER.pack(200, 0, 0, 0, 0),
    HEADER.pack(END, 0, 0, 0, 0),
    HEADER.pack(READ, 0, 0, 0, 0),
    HEADER.pack(READ, 0, 0, 0, 1 << 60),
    HEADER.pack(ACK, 0, 500, 0, 0),
    encode_ack([(0, 1 << 60)]),
    encode_ack([(5, 1)]),
]
PUBLISHER = Hello(Role.PUBLISH, b"p" * 16, 65536).pack()
SUBSCRIBER = Hello(Role.SUBSCRIBE, b"s" * 16, 65536, 8, 1 << 20, 1 << 30).pack()
HEAD = struct.pack("<HH", 1, 0) + b"t"

TO_A_SUBSCRIBER = [
    b"",
    HEADER.pack(200, 0, 0, 0, 0),
    HEADER.pack(PUBLISHED, 0, 0, 0, 0),
    HEADER.pack(PUBLISHED, 0, 65535, 0, 0),
    HEADER.pack(PUBLISHED, 0, 1, 0, 0) + struct.pack("<IIQ", 1 << 31, 0, 0),
    encode_published([b"", HEAD], [b"", b""], [0, 1]),
    encode_published([struct.pack("<HH", 5, 1) + b"topic"], [b""], [0]),
    encode_published([struct.pack("<HH", 1, 0) + b"\xff"], [b""], [0]),
    encode_published([HEAD] * 2000, [b""] * 2000, range(2000)),
    HEADER.pack(ITEM, 0, 1, 1, 0) + struct.pack("<Q", 0) + b"h",
    HEADER.pack(ITEM, 0, 1, 0, 0) + struct.pack("<QH", 1 << 63 | 1 << 20, 5) + b"where",
]
TO_A_PUBLISHER = [
    b"",
    HEADER.pack(END, 0, 0, 0, 0),
    HEADER.pack(READ, 0, 0, 0, 0),
    HEADER.pack(SUBSCRIBE, 0, 0, 4, 0),
    HEADER.pack(SUBSCRIBE, 0, 1, 0, 0),
    HEADER.pack(SUBSCRIBE, 0, 1, 0, 0) + struct.pack("<H", 5) + b"abc",
    HEADER.pack(SUBSCRIBE, 0, 1, 0, 0) + struct.pack("<H", 1) + b"\xff",
    encode_ack([(0, 1 << 60)]),
    encode_ack([(5, 1)]),
]


async def ended(endpoint: aiofabric.MessageEndpoint) -> None:
    """The other side ends the connection."""
    with anyio.fail_after(10):
        while True:
            try:
                await endpoint.recv()
            except (aiofabric.FabricError, anyio.ClosedResourceError):
                return


@pytest.mark.parametrize("frame", TO_A_CONSUMER, ids=range(len(TO_A_CONSUMER)))
async def test_a_consumer_survives(provider: str, frame: bytes) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:
        async with await aiofabric.connect(pull.address, provider=provider, param=PRODUCER) as hostile:
            await hostile.send(frame)
            await ended(hostile)
        async with anyio.create_task_group() as tasks:

            async def produce() -> None:
                async with Push(pull.address, provider=provider) as push:
                    await push.push(b"honest")

            tasks.start_soon(produce)
            with await pull.pull() as item:
                assert bytes(item.data) == b"honest"


@pytest.mark.parametrize(
    "frame",
    [
        encode_items([b"", bytes(101)], [0, 1]),
        b"".join(encode_item(b"", [bytes(101)], 0)),
        b"".join(encode_item(b"h", [bytes(100)], 0)),
        b"".join(encode_row([bytes(64), bytes(128)], [0, 1])),
        b"".join(encode_item(b"", [(101, b"where")], 0)),
    ],
    ids=["small", "alone", "with its header", "in a row", "to be read"],
)
async def test_an_item_above_max_item_size_is_refused(provider: str, frame: bytes) -> None:
    async with (
        Pull(listen=(HOST, 0), max_item_size=100, provider=provider) as pull,
        await aiofabric.connect(pull.address, provider=provider, param=PRODUCER) as hostile,
    ):
        await hostile.send(frame)
        await ended(hostile)
        assert pull.statistics().received == 0


async def test_an_exposed_part_without_bytes(provider: str) -> None:
    """The consumer reads nothing, and gets the item."""
    frame = HEADER.pack(ITEM, 0, 1, 0, 0) + struct.pack("<Q", 1 << 63)
    async with (
        Pull(listen=(HOST, 0), provider=provider) as pull,
        await aiofabric.connect(pull.address, provider=provider, param=PRODUCER) as odd,
    ):
        with odd.domain.register(bytearray(100), access=aiofabric.Access.REMOTE_READ) as region:
            described = region.remote[:0].pack()
            await odd.send(frame.ljust(64, b"\0") + struct.pack("<H", len(described)) + described)
            with await pull.pull() as item:
                assert len(item) == 0


@pytest.mark.parametrize("frame", TO_A_PRODUCER, ids=range(len(TO_A_PRODUCER)))
async def test_a_producer_survives(provider: str, frame: bytes) -> None:
    async with Push(listen=(HOST, 0), provider=provider) as push:
        async with await aiofabric.connect(push.address, provider=provider, param=CONSUMER) as hostile:
            await push.push(b"item")
            await hostile.send(frame)
            await ended(hostile)
        async with Pull(push.address, provider=provider) as pull:
            with await pull.pull() as item:
                assert (bytes(item.data), item.redelivered) == (b"item", True)
            await push.drain()


@pytest.mark.parametrize("frame", TO_A_SUBSCRIBER, ids=range(len(TO_A_SUBSCRIBER)))
async def test_a_subscriber_survives(provider: str, frame: bytes) -> None:
    async with Subscribe(listen=(HOST, 0), provider=provider) as subscribe:
        async with await aiofabric.connect(subscribe.address, provider=provider, param=PUBLISHER) as hostile:
            await hostile.send(frame)
            await ended(hostile)
        async with Publish(subscribe.address, provider=provider) as publish:
            await publish.wait_for_subscribers()
            await publish.publish("t", b"honest")
            with await subscribe.pull() as publication:
                assert bytes(publication.data) == b"honest"


@pytest.mark.parametrize("frame", TO_A_PUBLISHER, ids=range(len(TO_A_PUBLISHER)))
async def test_a_publisher_survives(provider: str, frame: bytes) -> None:
    async with (
        Publish(listen=(HOST, 0), provider=provider) as publish,
        Subscribe(publish.address, provider=provider) as subscribe,
    ):
        await publish.wait_for_subscribers()
        async with await aiofabric.connect(publish.address, provider=provider, param=SUBSCRIBER) as hostile:
            await hostile.send(frame)
            await ended(hostile)
        await publish.publish("t", b"honest")
        with await subscribe.pull() as publication:
            assert bytes(publication.data) == b"honest"


@pytest.mark.parametrize("param", [b"", b"aioF" + bytes(20), PRODUCER[:-1], bytes(40)])
async def test_a_client_of_another_kind_is_refused(provider: str, param: bytes) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:
        with pytest.raises(aiofabric.FabricConnectionRejectedError):
            await aiofabric.connect(pull.address, provider=provider, param=param)


@pytest.mark.parametrize("param", [PRODUCER, b""], ids=["producer", "other"])
async def test_clients_that_come_while_a_consumer_leaves(provider: str, param: bytes) -> None:
    """Leaving raises nothing: some requests arrive when the listener is closed already."""

    async def come(address: aiofabric.Address) -> None:
        with suppress(aiofabric.FabricError, anyio.ClosedResourceError):
            async with await aiofabric.connect(address, provider=provider, param=param):
                pass

    for steps in range(30):
        async with anyio.create_task_group() as tasks:
            async with Pull(listen=(HOST, 0), provider=provider) as pull:
                for _ in range(3):
                    tasks.start_soon(come, pull.address)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_arbitrary_bytes(provider: str) -> None:
    chance = random.Random(39)
    async with (
        Pull(listen=(HOST, 0), provider=provider) as pull,
        Push(listen=(HOST, 0), provider=provider) as push,
        Subscribe(listen=(HOST, 0), provider=provider) as subscribe,
        Publish(listen=(HOST, 0), provider=provider) as publish,
    ):
        targets = [
            (pull.address, PRODUCER),
            (push.address, CONSUMER),
            (subscribe.address, PUBLISHER),
            (publish.address, SUBSCRIBER),
        ]
        for address, param in targets * 10:
            async with await aiofabric.connect(address, provider=provider, param=param) as hostile:
                frame = bytes([chance.randrange(10)]) + chance.randbytes(chance.randrange(200))
                await hostile.send(frame)
                await hostile.aclose()
        assert pull.statistics().acknowledged == push.statistics().acknowledged == 0
