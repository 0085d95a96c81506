"""A pipeline whose workers are actors of a Dask cluster: they are placed and replaced, and no value is lost."""

# Privates: the time until the warning that a cluster has no workers.
# Doubles: it is short.

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aiofabric.pipeline import Pipeline, StageError
from aiofabric.pipeline.stages.processes import dask_actor
from tests.fixtures.waiting import until
from tests.pipeline.stages import functions as f

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

dask: Any = import_module("distributed")  # without types
resource_tracker.ensure_running()  # multiprocessing's helper stays until the end: it is there before leaks are counted

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),  # Dask runs on asyncio only
]


@asynccontextmanager
async def cluster() -> AsyncIterator[Any]:
    """A client of two worker processes, and their nannies."""
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "asynchronous": True}
    with anyio.fail_after(90):
        async with dask.LocalCluster(**options) as local, dask.Client(local, asynchronous=True) as client:
            yield client


def with_process(number: int) -> tuple[int, int]:
    return number, os.getpid()


async def test_stages_work_on_the_cluster_and_keep_the_order() -> None:
    found: list[tuple[int, int]] = []
    pipeline = Pipeline(f.numbers).map(with_process, workers=2, process=True).sink(found.append)
    async with cluster() as client, pipeline.on(client, processes=False) as run:
        pass
    assert [number for number, _ in found] == list(range(f.COUNT))
    assert os.getpid() not in {process for _, process in found}
    assert run.totals().stages["with_process"].taken == f.COUNT


@pytest.mark.long
async def test_every_stage_on_the_cluster(tmp_path: Path) -> None:
    sink = f.Append(tmp_path / "found")
    pipeline = Pipeline(f.numbers).map(f.uneven, workers=2).filter(lambda number: number % 2).sink(sink, name="sink")
    async with cluster() as client, pipeline.on(client) as run:
        pass
    assert (tmp_path / "found").read_text().split() == [str(number) for number in range(1, f.COUNT, 2)]
    assert run.totals().stages["sink"].taken == f.COUNT // 2


@pytest.mark.long
async def test_a_killed_worker_of_dask_is_replaced_and_loses_nothing(tmp_path: Path) -> None:
    found: list[int] = []
    work = f.DieOnce(tmp_path, 50)
    pipeline = Pipeline(f.numbers).map(work, workers=2, process=True, name="work").sink(found.append)
    async with cluster() as client, pipeline.on(client, processes=False) as run:
        pass
    assert set(found) == set(range(f.COUNT))
    assert run.totals().stages["work"].restarts >= 1


@pytest.mark.long
async def test_a_run_does_not_wait_for_a_worker_of_dask_that_was_killed() -> None:
    """Dask itself tries for 30 seconds to reach it: two of ten runs waited for that."""
    slow = Pipeline(f.numbers).map(f.late, workers=3, process=True)
    async with cluster() as client:
        for _ in range(5):
            found: list[int] = []
            with anyio.fail_after(20):
                async with slow.sink(found.append).on(client, processes=False):
                    await until(partial(len, found))
                    workers = await client.run(os.getpid)
                    os.kill(next(iter(workers.values())), signal.SIGKILL)
                while len(await client.run(os.getpid)) < 2:  # noqa: ASYNC110 - no event tells it
                    await anyio.sleep(0.05)
            assert set(found) == set(range(f.COUNT))


@pytest.mark.long
async def test_an_exception_on_the_cluster_ends_the_run() -> None:
    pipeline = Pipeline(f.without_end).map(f.fail_at_seven, process=True)
    with pytest.raises(StageError, match=r"'fail_at_seven' .*: seven; the value was 7"):
        async with cluster() as client, pipeline.on(client, processes=False):
            pass


@pytest.mark.long
async def test_a_cluster_without_workers_is_said_and_may_get_some(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_actor, "_WARN_AFTER", 0.2)
    found: list[int] = []
    pipeline = Pipeline(f.numbers).map(f.late, process=True).sink(found.append)
    async with cluster() as client:
        await client.cluster.scale(0)
        await until(lambda: not client.scheduler_info()["workers"])
        async with pipeline.on(client, processes=False):
            await until(lambda: "no worker of Dask has taken the stage 'late'" in caplog.text)
            client.cluster.scale(2)
    assert set(found) == set(range(f.COUNT))


@pytest.mark.parametrize("client", [None, object()])
async def test_the_client_must_be_of_this_event_loop(client: Any) -> None:
    with pytest.raises(TypeError, match="asynchronous=True"):
        Pipeline(f.numbers).on(client)
