"""Dask with two workers, each a process of its own: at addresses fabric:// or tcp://."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any, NamedTuple


class Work(NamedTuple):
    unit: str
    size: int  # bytes, or tasks
    repeats: int = 3  # in one cluster, because it takes seconds to start


WORKS = {
    "Dask, 400 MB between workers": Work("GB/s", 400_000_000),
    "Dask, 200 MB to a worker and back": Work("GB/s", 200_000_000),
    "Dask, 5,000 tasks": Work("/s", 5000),
    "Dask, shuffle of 1 GB": Work("GB/s", 1_000_000_000, repeats=1),
}
ROW = 16  # bytes of a row of the dataframe


def side(work: str, provider: str, share: int) -> None:
    """Print the rate, the best of some in the same cluster: the first one also imports and connects."""
    import dask.config

    dask.config.set({"distributed.comm.fabric.provider": provider or None})
    print(asyncio.run(_measure(work, "fabric://" if provider else "tcp://", share)))


async def _measure(work: str, protocol: str, share: int) -> float:
    from distributed import Client, LocalCluster

    measure = dict(zip(WORKS, (_between_workers, _there_and_back, _tasks, _shuffle), strict=True))[work]
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    async with (
        LocalCluster(protocol=protocol, host="127.0.0.1", asynchronous=True, **options) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        return max([await measure(client, WORKS[work].size // share) for _ in range(WORKS[work].repeats)])


async def _between_workers(client: Any, size: int) -> float:
    one, other = _workers(client)
    made = client.submit(_array, size, workers=[one], pure=False)
    await made
    begin = perf_counter()
    assert await client.submit(len, made, workers=[other], pure=False) == size // 8
    return size / (perf_counter() - begin) / 1e9


async def _there_and_back(client: Any, size: int) -> float:
    one, _ = _workers(client)
    array = _array(size)
    begin = perf_counter()
    sent = await client.scatter(array, workers=[one], hash=False)
    back = await client.gather(sent)
    took = perf_counter() - begin
    assert len(back) == len(array)
    return 2 * size / took / 1e9


async def _tasks(client: Any, count: int) -> float:
    begin = perf_counter()
    found = await client.gather(client.map(_next, range(count), pure=False))
    assert found[-1] == count
    return count / (perf_counter() - begin)


async def _shuffle(client: Any, size: int) -> float:
    import dask.dataframe
    from distributed import wait

    parts, rows = 16, size // ROW // 16
    frame = dask.dataframe.from_map(_frame, range(parts), rows=rows, meta=_frame(0, 1))
    kept = client.persist(frame)
    await wait(kept)
    begin = perf_counter()
    await wait(client.persist(kept.shuffle("key")))
    return size / (perf_counter() - begin) / 1e9


def _workers(client: Any) -> list[str]:
    return [worker.worker_address for worker in client.cluster.workers.values()]


def _next(number: int) -> int:
    return number + 1


def _array(size: int) -> Any:
    import numpy

    return numpy.ones(size // 8)


def _frame(part: int, rows: int) -> Any:
    import numpy
    import pandas

    random = numpy.random.default_rng(part)
    return pandas.DataFrame({"key": random.integers(0, 1000, rows), "value": random.random(rows)})
