"""``python -m benchmarks.arrow``: a table of Arrow in one stream between two processes, by aiofabric and by Flight.

The contenders take turns; the table has the medians of the rounds, and the ratio to Flight in brackets. The time is
that from the first batch to the last. "processors" is the time that both processes used, also to connect. "copied" is
what they have allocated for the batches, without the memory into which these were received: some kilobytes for each
batch are its metadata, and no column was copied.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import anyio

from .results import machine

ROWS = 1 << 16  # of a batch
COLUMNS = 8
BATCH = ROWS * COLUMNS * 8  # bytes
WHOLE, QUICK = 1 << 30, 1 << 27  # bytes of the table


class Contender(NamedTuple):
    title: str
    kind: str
    provider: str = ""


CONTENDERS = (
    Contender("Arrow Flight, tcp", "flight"),
    Contender("stream, tcp", "stream", "tcp"),
    Contender("stream, tagged bodies, tcp", "tagged", "tcp"),
    Contender("stream, shm", "stream", "shm"),
    Contender("pipeline, tcp", "pipeline", "tcp"),
    Contender("pipeline, shm", "pipeline", "shm"),
)


class Result(NamedTuple):
    """One run: bytes a second, seconds of processors in both processes, and bytes that were copied."""

    rate: float
    processor: float
    copied: int


def make_table(size: int) -> Any:
    import numpy
    import pyarrow

    rows = size // BATCH * ROWS
    values = numpy.arange(rows)
    return pyarrow.table({f"column {number}": values + number for number in range(COLUMNS)})


def allocated() -> int:
    """Bytes that pyarrow has allocated since the start of this process."""
    import pyarrow

    return int(pyarrow.default_memory_pool().total_bytes_allocated())


class Clock:
    """Measures from the first batch on."""

    def __init__(self) -> None:
        self._begin = self._used = 0.0
        self._size = -BATCH

    def count(self, batch: Any) -> None:
        if not self._begin:
            self._begin, self._used = perf_counter(), process_time()
        self._size += batch.nbytes

    def report(self, received: bool) -> None:
        """Print the rate; ``received``: whether pyarrow allocated the memory of the received batches."""
        rate = self._size / (perf_counter() - self._begin)
        print(rate, process_time() - self._used, allocated() - received * (self._size + BATCH), flush=True)


# -- the side that has the table; it prints where it is, then what it has copied


async def serve(contender: Contender, size: int) -> None:
    table = make_table(size)
    if contender.kind == "pipeline":
        from aiofabric.integrations.arrow import push_batch
        from aiofabric.pipeline import Push

        async with Push(listen=("127.0.0.1", 0), provider=contender.provider) as push:
            print(push.address.port, flush=True)
            before, used = allocated(), process_time()
            for batch in table.to_batches(max_chunksize=ROWS):
                await push_batch(push, batch)
        print(process_time() - used, allocated() - before)
        return
    from aiofabric.integrations.arrow import serve_streams

    exposes = contender.kind == "stream"
    async with serve_streams(
        lambda _: table, "127.0.0.1", 0, provider=contender.provider, max_chunksize=ROWS, expose=exposes
    ) as server:
        print(server.uri(), flush=True)
        before, used = allocated(), process_time()
        await anyio.to_thread.run_sync(sys.stdin.read)  # the client has ended
    print(process_time() - used, allocated() - before)


def serve_flight(size: int) -> None:
    from pyarrow import flight

    table = make_table(size)
    batches = table.to_batches(max_chunksize=ROWS)

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.GeneratorStream(table.schema, iter(batches))

    with Server("grpc://127.0.0.1:0") as server:
        print(server.port, flush=True)
        before, used = allocated(), process_time()
        sys.stdin.read()
        print(process_time() - used, allocated() - before)


# -- the side that gets it; it prints the rate, and what it has allocated


async def get(contender: Contender, place: str) -> None:
    clock = Clock()
    if contender.kind == "pipeline":
        from aiofabric.integrations.arrow import decode_batch
        from aiofabric.pipeline import Pull

        async with Pull(("127.0.0.1", int(place)), provider=contender.provider) as pull:
            async for item in pull:
                clock.count(decode_batch(item))
        clock.report(received=False)
        return
    from aiofabric.integrations.arrow import open_stream

    async for batch in open_stream(place, provider=contender.provider):
        clock.count(batch)
    clock.report(received=True)


def get_flight(place: str) -> None:
    from pyarrow import flight

    clock = Clock()
    with flight.connect(f"grpc://127.0.0.1:{place}") as client:
        for chunk in client.do_get(flight.Ticket(b"")):
            clock.count(chunk.data)
    clock.report(received=False)


def run(contender: Contender, size: int) -> Result:
    command = [sys.executable, "-m", "benchmarks.arrow", "--side"]
    which = str(CONTENDERS.index(contender))
    with subprocess.Popen(
        [*command, "serve", which, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        place = server.stdout.readline().strip()
        got = subprocess.run(
            [*command, "get", which, place], stdout=subprocess.PIPE, text=True, check=True, timeout=120
        )
        said_by_server, _ = server.communicate()
    rate, used_by_client, copied_by_client = map(float, got.stdout.split())
    used_by_server, copied_by_server = map(float, said_by_server.split())
    joined = size if contender.kind == "tagged" else 0  # by Python: 8 buffers are more than one message carries
    return Result(rate, used_by_client + used_by_server, int(copied_by_client + copied_by_server) + joined)


def table(rounds: int, size: int) -> None:
    found: dict[str, list[Result]] = {}
    for _ in range(rounds):
        for contender in CONTENDERS:
            found.setdefault(contender.title, []).append(run(contender, size))
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"\na table of {size >> 20} MiB, batches of {ROWS} rows and {BATCH >> 20} MiB")
    peer = median(result.rate for result in found[CONTENDERS[0].title])
    for title, results in found.items():
        rate, used = (median(each) for each in zip(*(result[:2] for result in results), strict=True))
        copied = max(result.copied for result in results)
        print(
            f"  {title:28} {rate / 1e9:7.2f} GB/s  [{rate / peer:.2f}]  "
            f"processors {used:6.2f} s  copied {copied / 1e6:8,.1f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arrow", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of a table of 128 MiB")
    parser.add_argument("--side", nargs="+", metavar="SIDE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        table(1 if options.quick else options.rounds, QUICK if options.quick else WHOLE)
        return
    side, which, argument = options.side
    contender = CONTENDERS[int(which)]
    loop = {"use_uvloop": True}
    if contender.kind == "flight":
        serve_flight(int(argument)) if side == "serve" else get_flight(argument)
    elif side == "serve":
        anyio.run(serve, contender, int(argument), backend_options=loop)
    else:
        anyio.run(get, contender, argument, backend_options=loop)


if __name__ == "__main__":
    main()
