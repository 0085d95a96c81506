"""Record batches as items of a pipeline: without a copy, in lent memory, readable by any consumer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from anyio import ClosedResourceError

from aiofabric.integrations.arrow import ArrowProtocolError, decode_batch, encode_batch, push_batch
from aiofabric.pipeline import Pull, Push
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import CARRIERS, HOST, over
from tests.integrations.arrow_batches import KINDS, NUMBERS, stored
from tests.integrations.arrow_peers import FIRST, push_batches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fixtures.children import Child

pytestmark = pytest.mark.anyio

provider = over(CARRIERS)
on_asyncio = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])


@asynccontextmanager
async def joined(provider: str) -> AsyncIterator[tuple[Push, Pull]]:
    async with (
        Pull(listen=(HOST, 0), provider=provider) as consumer,
        Push(consumer.address, provider=provider) as producer,
    ):
        yield producer, consumer


async def test_batches_of_every_kind_are_items(provider: str) -> None:
    async with joined(provider) as (push, pull):
        for kind, batches in KINDS.items():
            for batch in batches:
                await push_batch(push, batch)
                with await pull.pull() as item:
                    found = decode_batch(item, validate=True)
                    kept = decode_batch(item, copy=True)
                    assert found == batch, kind
                    del found
                assert kept == batch, kind


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
async def test_compressed_batches_are_items(provider: str, compression: str) -> None:
    async with joined(provider) as (push, pull):
        await push_batch(push, NUMBERS, compression=compression)
        with await pull.pull() as item:
            assert decode_batch(item) == NUMBERS
            with pytest.raises(ArrowProtocolError, match="are accepted"):
                decode_batch(item, max_batch_bytes=len(item))


@on_asyncio
async def test_a_batch_of_another_process_is_not_copied(provider: str, child: Callable[..., Child]) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:
        producer = child(push_batches, HOST, pull.address.port, provider)
        before = pyarrow.total_allocated_bytes()
        count = 0
        async for item in pull:
            batch = decode_batch(item)
            assert batch == FIRST
            lent = [pyarrow.py_buffer(part) for part in item.parts[1:]]
            for buffer in stored(batch):
                assert any(each.address <= buffer.address < each.address + each.size for each in lent)
                assert buffer.address % 8 == 0
            del batch, lent, buffer
            count += 1
        assert count == 5
        assert pyarrow.total_allocated_bytes() - before < 4096, "pyarrow has allocated no column"
        assert await producer.aresult() < 50_000


async def test_the_memory_of_a_batch_that_is_not_kept_is_used_again(provider: str) -> None:
    async with joined(provider) as (push, pull):
        addresses = set()
        for _ in range(4):
            await push_batch(push, NUMBERS)
            with await pull.pull() as item:
                batch = decode_batch(item)
                addresses.add(batch.column(0).buffers()[1].address)
                del batch
        assert len(addresses) == 1


async def test_a_batch_that_is_kept_keeps_its_memory(provider: str) -> None:
    other = NUMBERS.set_column(0, "number", pyarrow.array(range(7, 50_007)))
    async with joined(provider) as (push, pull):
        await push_batch(push, NUMBERS)
        with await pull.pull() as item:
            kept = decode_batch(item)
        with pytest.raises(ClosedResourceError, match="scope"):
            decode_batch(item)
        await push_batch(push, other)
        with await pull.pull() as item:
            assert decode_batch(item) == other
        assert kept == NUMBERS
        assert pull.statistics().lent_bytes == 0


async def test_an_item_is_read_by_another_consumer_after_the_first_one_failed(provider: str) -> None:
    batch = KINDS["dictionaries"][1]
    async with Push(listen=(HOST, 0), provider=provider) as push:
        async with Pull(push.address, provider=provider) as first:
            await push_batch(push, batch)
            with pytest.raises(ZeroDivisionError), await first.pull():
                raise ZeroDivisionError
        async with Pull(push.address, provider=provider) as second:
            with await second.pull() as item:
                assert item.redelivered
                assert decode_batch(item) == batch
            await push.drain()


# -- without a pipeline


class FakeItem:
    """As much of an item as `decode_batch` uses."""

    scope_ended = False

    def __init__(self, header: bytes, parts: list[Any]) -> None:
        self.header = header
        self.parts = parts


@pytest.mark.once
def test_large_buffers_are_parts_of_the_item() -> None:
    encoded = encode_batch(NUMBERS)
    large = {buffer.address for buffer in stored(NUMBERS) if buffer.size > 16384}
    assert {part.address for part in encoded.parts if isinstance(part, pyarrow.Buffer)} == large
    assert len(encoded.header) <= 1024


@pytest.mark.once
@pytest.mark.parametrize("kind", KINDS)
def test_an_item_has_few_parts_and_can_be_read_wherever_they_are(kind: str) -> None:
    for batch in KINDS[kind]:
        encoded = encode_batch(batch)
        assert len(encoded.parts) <= 256
        item: Any = FakeItem(encoded.header, [bytes(part) for part in encoded.parts])
        assert decode_batch(item) == batch


@pytest.mark.once
def test_other_objects_and_other_items_are_refused() -> None:
    with pytest.raises(TypeError, match="to_batches"):
        encode_batch(pyarrow.table({"number": [1]}))
    others: list[Any] = [b"x", None, []]
    for other in others:
        with pytest.raises(TypeError, match=r"an item of Pull\.pull\(\) is required"):
            decode_batch(other)
    header, parts = encode_batch(NUMBERS)
    parts = [bytes(part) for part in parts]
    schema, batch = parts[0][:200], parts[0]
    wrong: list[tuple[bytes, list[Any]]] = [
        (b"", parts),
        (b"another header", parts),
        (header[:-1], parts),
        (header, parts[:-1]),
        (header, [*parts, b"more"]),
        (header, [b"", *parts[1:]]),
        (header, [b"x" * 50, *parts[1:]]),
        (header, [schema, *parts[1:]]),
        (header, [batch * 2, *parts[1:]]),
    ]
    for each in wrong:
        item: Any = FakeItem(*each)
        with pytest.raises(ArrowProtocolError):
            decode_batch(item)


MUTATIONS = """
import random
from aiofabric.integrations.arrow import ArrowProtocolError, decode_batch, encode_batch
from tests.integrations.arrow_batches import KINDS
from tests.integrations.test_arrow_items import FakeItem

choice = random.Random(3)
read = 0
for batch in (KINDS["flat"][0], KINDS["nested"][0], KINDS["dictionaries"][0]):
    header, parts = encode_batch(batch)
    parts = [bytes(part) for part in parts]
    for _ in range(600):
        changed = [bytearray(part) for part in parts]
        for _ in range(choice.randrange(1, 4)):
            part = choice.choice(changed[: 1 + choice.randrange(2)])
            part[choice.randrange(len(part))] = choice.choice([0, 1, 2, 127, 128, 255])
        try:
            decode_batch(FakeItem(header, changed), validate=True)
        except ArrowProtocolError:
            continue
        read += 1
print("read", read)
"""


@pytest.mark.once
def test_items_with_random_changes_are_read_or_refused() -> None:
    ended = run_in_child(MUTATIONS, timeout=40)
    assert ended.status == 0, ended.err
    assert ended.out.startswith("read ")
