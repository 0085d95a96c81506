"""Rows of ``python -m benchmarks.pipelines``: peers that are no sockets. A Dask queue, whose items go through the
scheduler, and ADIOS2's SST, whose steps have a bounded queue. One writer and one reader, each in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

SIZES = {64: 2000, 65536: 1000, 1 << 20: 200}  # bytes of an item: how many items
DASK_SHARE = 4  # a Dask queue gets a quarter of the items
QUEUE = 64  # items that may wait


def _print_rate(items: int, begin: float) -> None:
    print((items - 1) / (perf_counter() - begin))


# -- Dask


def _distributed() -> Any:  # its functions have no types
    return importlib.import_module("distributed")


def dask_write(scheduler: str, size: int, items: int) -> None:
    dask = _distributed()
    with dask.Client(scheduler) as client:
        queue = dask.Queue("items", client, maxsize=QUEUE)
        for _ in range(items):
            queue.put(b"\1" * size)
        dask.Queue("read", client).get()  # the reader needs this client's items


def dask_read(scheduler: str, size: int, items: int) -> None:
    dask = _distributed()
    with dask.Client(scheduler) as client:
        queue = dask.Queue("items", client, maxsize=QUEUE)
        queue.get()
        begin = perf_counter()
        for _ in range(items - 1):
            queue.get()
        _print_rate(items, begin)
        dask.Queue("read", client).put(b"all")


# -- SST


def _sst() -> tuple[Any, Any]:
    import adios2

    adios = adios2.Adios()
    io = adios.declare_io("items")
    io.set_engine("SST")
    io.set_parameters({"RendezvousReaderCount": "1", "QueueLimit": str(QUEUE), "QueueFullPolicy": "Block"})
    return adios2, io


def sst_write(name: str, size: int, items: int) -> None:
    import numpy

    adios2, io = _sst()
    data = numpy.ones(size, dtype="u1")
    with adios2.Stream(io, name, "w") as stream:
        for _ in stream.steps(items):
            stream.write("item", data, [size], [0], [size])


def sst_read(name: str, size: int, items: int) -> None:
    adios2, io = _sst()
    begin = 0.0
    with adios2.Stream(io, name, "r") as stream:
        for _ in stream:
            stream.read("item")
            begin = begin or perf_counter()
        _print_rate(items, begin)


# -- the rows


def rate(peer: str, place: str, size: int, items: int) -> float:
    """Items a second, once."""
    command = [sys.executable, "-m", "benchmarks.queues", peer]
    arguments = place, str(size), str(items)
    with subprocess.Popen([*command, "write", *arguments]):
        reader = subprocess.run(
            [*command, "read", *arguments], check=True, timeout=120, stdout=subprocess.PIPE, text=True
        )
    return float(reader.stdout.splitlines()[-1])


def of_queues(rounds: int = 3) -> None:
    """Print the rates of both peers. A peer that is not installed is skipped."""
    if importlib.util.find_spec("distributed") is None:
        print("\nDask queue: skipped, distributed is not installed")
    else:
        print("\nDask queue, items a second")
        with _distributed().LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
            _print_rates("dask", cluster.scheduler_address, rounds, DASK_SHARE)
    if importlib.util.find_spec("adios2") is None:
        print("\nADIOS2 SST: skipped, adios2 is not installed")
    else:
        print("\nADIOS2 SST, steps a second")
        with TemporaryDirectory() as folder:
            _print_rates("sst", str(Path(folder, "items")), rounds, 1)


def _print_rates(peer: str, place: str, rounds: int, share: int) -> None:
    for size, items in SIZES.items():
        found = median(rate(peer, place, size, items // share) for _ in range(rounds))
        print(f"  {size:9,} B {found:12,.0f} {found * size / 1e9:7.3f} GB/s")


if __name__ == "__main__":
    _, peer, side, place, *numbers = sys.argv
    sides = {"dask": (dask_write, dask_read), "sst": (sst_write, sst_read)}[peer]
    sides[side == "read"](place, *map(int, numbers))
