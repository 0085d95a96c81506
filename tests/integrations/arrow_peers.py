"""Processes that stream record batches: they import little, because each test that uses one waits for its start."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pyarrow

from aiofabric.integrations.arrow import open_stream, push_batch, serve_streams
from aiofabric.pipeline import Push

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.fixtures.children import Parent

CHUNK = {f"column {number}": pyarrow.array(range(50_000)) for number in range(4)}
TEXTS = [pyarrow.array(["a", None, str(number)] * 16_666 + ["", "b"]) for number in range(4)]
TABLE = pyarrow.concat_tables([pyarrow.table(CHUNK | {"text": text}) for text in TEXTS])
FIRST = TABLE.to_batches()[0]
SMALL = pyarrow.record_batch({"a": [1]})


async def for_ever() -> AsyncIterator[pyarrow.RecordBatch]:
    while True:
        await anyio.lowlevel.checkpoint()
        yield FIRST


async def serve_table(parent: Parent, host: str, provider: str, expose: bool) -> int:
    """Returns the bytes that pyarrow has allocated for the stream."""
    async with serve_streams(lambda ticket: TABLE, host, 0, provider=provider, expose=expose) as server:
        parent.tell(server.uri("table"))
        before = pyarrow.total_allocated_bytes()
        await parent.areceive()
        return int(pyarrow.default_memory_pool().max_memory() - before)


async def serve_for_ever(parent: Parent, host: str, provider: str) -> None:
    async with serve_streams(lambda ticket: for_ever(), host, 0, provider=provider) as server:
        parent.tell(server.uri())
        await anyio.sleep_forever()


async def serve_until_killed(parent: Parent, host: str, provider: str, expose: bool, streams: int) -> None:
    """The last of the streams kills this process after its first batch.

    Every other stream has large batches. If one arrived over rxm before its receive was posted, and the sender died,
    the process of the receiver would end.
    """
    begun = 0

    def source() -> Iterator[pyarrow.RecordBatch]:
        nonlocal begun
        begun += 1
        batch, last = FIRST if begun % 2 else SMALL, begun == streams
        while True:
            yield batch
            if last:
                os.kill(os.getpid(), signal.SIGKILL)

    async with serve_streams(lambda ticket: source(), host, 0, provider=provider, expose=expose) as server:
        parent.tell(server.uri())
        await anyio.sleep_forever()


async def take_for_ever(parent: Parent, provider: str, uri: str) -> None:
    async for _ in open_stream(uri, provider=provider):
        parent.tell("a batch")
        await parent.areceive()


async def push_batches(parent: Parent, host: str, port: int, provider: str) -> int:
    """Returns the bytes that pyarrow has allocated to push five batches."""
    before = pyarrow.total_allocated_bytes()
    async with Push((host, port), provider=provider) as push:
        for _ in range(5):
            await push_batch(push, FIRST)
    return int(pyarrow.default_memory_pool().max_memory() - before)
