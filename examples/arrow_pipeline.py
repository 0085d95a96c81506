"""A process scans a dataset, and another one writes what it gets to a Parquet file. The batches are not copied."""

import multiprocessing
import signal
import tempfile
from pathlib import Path

import anyio
import anyio.to_thread
import pyarrow
from pyarrow import dataset, parquet

from aiofabric.integrations.arrow import decode_batch, push_batch
from aiofabric.pipeline import Pull, Push

FILES, ROWS = 3, 100_000
processes = multiprocessing.get_context("spawn")


def make_dataset(folder: Path) -> None:
    for number in range(FILES):
        prices = [row % 1000 / 10 for row in range(ROWS)]
        table = pyarrow.table({"row": range(ROWS), "price": prices, "note": ["not read"] * ROWS})
        parquet.write_table(table, folder / f"part-{number}.parquet")


async def scan(folder: Path, push: Push) -> None:
    batches = dataset.dataset(folder).to_batches(columns=["row", "price"], filter=dataset.field("price") >= 50)
    while (batch := await anyio.to_thread.run_sync(next, batches, None)) is not None:
        await push_batch(push, batch)  # waits while the writer has as much as it may hold


async def write(port: int, path: Path) -> None:
    schema = pyarrow.schema({"row": pyarrow.int64(), "price": pyarrow.float64()})
    with parquet.ParquetWriter(path, schema) as writer:
        async with Pull(f"127.0.0.1:{port}") as pull:
            async for item in pull:
                batch = decode_batch(item)
                await anyio.to_thread.run_sync(writer.write_batch, batch)
                del batch  # the memory is used for later items; the next step acknowledges this one


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        make_dataset(Path(name))
        result = Path(name) / "expensive.result"
        async with Push(listen="127.0.0.1:0") as push:
            writer = processes.Process(target=anyio.run, args=(write, push.address.port, result), daemon=True)
            interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C ends only this process
            writer.start()
            signal.signal(signal.SIGINT, interrupt)
            print(f"{FILES * ROWS:,} rows in {FILES} files are scanned")
            await scan(Path(name), push)
        await anyio.to_thread.run_sync(writer.join)
        prices = parquet.read_table(result)["price"].to_pylist()
        print(f"{len(prices):,} rows were written, the lowest price is {min(prices)}")


if __name__ == "__main__":
    anyio.run(main)
