"""The same graph in worker processes: nothing is lost when they die, and nothing of them is left."""

# Doubles: a limit of ten seconds is shorter.

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import numpy
import psutil
import pytest

from aiofabric.cq.loops.drivers import current_backend
from aiofabric.pipeline import Pipeline, StageError
from aiofabric.pipeline.stages.graph import Input, Kind, Stage
from aiofabric.pipeline.stages.plan import planned
from aiofabric.pipeline.stages.processes import remote
from aiofabric.pipeline.stages.processes.local_process import LocalProcess
from aiofabric.testing import live_resources
from tests.fixtures.providers import OWN_HOST
from tests.fixtures.waiting import until
from tests.pipeline.stages import functions as f

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
on_asyncio = pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])


def workers_of_this_process() -> set[int]:
    """Child processes, without multiprocessing's own helper, which stays until the end of the program."""
    found = set()
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "resource_tracker" not in " ".join(each.cmdline()):
                found.add(each.pid)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    before, resources = workers_of_this_process(), live_resources()
    yield
    assert workers_of_this_process() == before
    assert live_resources() == resources


async def test_every_stage_in_a_process(provider: str, tmp_path: Path) -> None:
    sink = f.Append(tmp_path / "found")
    pipeline = Pipeline(f.numbers).map(f.uneven, workers=2).filter(f.is_even).batch(10).sink(sink, name="sink")
    totals = await pipeline.run(processes=True, provider=provider)
    even = list(range(0, f.COUNT, 2))
    batches = [str(even[at : at + 10]) for at in range(0, len(even), 10)]
    assert (tmp_path / "found").read_text().splitlines() == batches
    assert [totals.stages[name].taken for name in ("numbers", "uneven", "is_even", "batch", "sink")] == [
        *(f.COUNT,) * 3,
        len(even),
        len(batches),
    ]


async def test_one_stage_in_processes_keeps_the_order(provider: str) -> None:
    found: list[int] = []
    pipeline = Pipeline(f.numbers).map(f.uneven, workers=2, process=True).map(f.add_one).sink(found.append)
    await pipeline.run(provider=provider)
    assert found == list(range(1, f.COUNT + 1))


async def test_an_ordered_stage_of_several_processes_may_be_merged_with_others() -> None:
    found: list[int] = []
    one, two = (Pipeline(range(first, first + 50)) for first in (0, 100))
    merged = one.map(f.add_one, workers=2, process=True).merge(two, two.map(f.uneven, workers=2, process=True))
    await merged.map(f.add_one, process=True).sink(found.append).run()
    assert [number for number in found if number < 100] == list(range(2, 52))
    assert Counter(number for number in found if number > 100) == Counter(2 * list(range(101, 151)))


@on_asyncio
async def test_a_process_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there work after ten seconds; here, it is a fraction of one."""
    monkeypatch.setattr(remote, "ALL_THERE", 0.1)
    found: list[int] = []

    def sink(number: int) -> None:
        found.append(number)
        if number == f.COUNT:
            (tmp_path / "all").touch()

    pipeline = Pipeline(f.numbers).map(f.LateOnce(tmp_path), workers=2, process=True, name="work")
    with anyio.fail_after(60):
        totals = await pipeline.sink(sink).run()
    assert found == list(range(1, f.COUNT + 1))
    assert totals.stages["work"].restarts == 0


@pytest.mark.long
async def test_an_ordered_stage_between_stages_of_several_processes() -> None:
    found: list[int] = []
    pipeline = (
        Pipeline(f.numbers)
        .merge(Pipeline(f.numbers))
        .filter(f.is_even, workers=2, process=True)
        .map(f.add_one, workers=2, process=True)
        .sink(found.append)
    )
    await pipeline.run()
    assert Counter(found) == Counter(2 * list(range(1, f.COUNT, 2)))


async def test_batches_that_are_larger_than_all_queues_before_them() -> None:
    found: list[list[list[list[int]]]] = []
    pipeline = Pipeline(range(1030)).map(f.add_one, workers=2, process=True, queue=2).batch(50).batch(4).window(2)
    await pipeline.sink(found.append).run()
    assert len(found) == 5
    batches = [found[0][0], *(window[1] for window in found)]
    assert [number for batch in batches for each in batch for number in each] == list(range(1, 1031))


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_last_short_batch_and_window_of_each_process(workers: int, tmp_path: Path) -> None:
    """They would wait for more values, and the stages before them for acknowledgements."""
    sink = f.Append(tmp_path / "found")
    pipeline = Pipeline(range(25)).map(f.uneven, workers=workers).batch(10).flat_map(iter).window(3)
    totals = await pipeline.sink(sink, name="sink").run(processes=True)
    assert totals.stages["sink"].taken == 23
    assert (tmp_path / "found").read_text().splitlines() == [str([at, at + 1, at + 2]) for at in range(23)]


@pytest.mark.long
async def test_a_large_array_is_read_only_and_arrives_whole(provider: str) -> None:
    sent = [numpy.full(1 << 17, number, dtype="f8") for number in range(4)]
    found: list[Any] = []
    await Pipeline(sent).map(f.read_only, process=True).sink(found.append).run(provider=provider)
    assert [(each.shape, each.sum()) for each in found] == [(each.shape, each.sum()) for each in sent]


@pytest.mark.long
async def test_what_a_killed_worker_had_is_handled_by_another(provider: str, tmp_path: Path) -> None:
    found: list[int] = []
    work = f.DieOnce(tmp_path, 5, 100, 200)
    pipeline = Pipeline(f.numbers).map(work, workers=2, process=True, name="work").sink(found.append)
    totals = await pipeline.run(provider=provider)
    assert set(found) == set(range(f.COUNT))
    assert totals.stages["work"].restarts == 3
    again = [number for number, count in Counter(found).items() if count > 1]
    assert len(again) <= 3 * 64  # what was in the hands of the dead


async def test_what_a_worker_had_that_got_sigterm_is_handled_by_another(tmp_path: Path) -> None:
    found: list[int] = []
    work = f.TerminateOnce(tmp_path, 5)
    totals = await Pipeline(f.numbers).map(work, workers=2, process=True, name="work").sink(found.append).run()
    assert set(found) == set(range(f.COUNT))
    assert totals.stages["work"].restarts == 1


async def test_a_killed_sink_gets_its_values_again(tmp_path: Path) -> None:
    sink = f.AppendAndDieOnce(tmp_path, 50)
    totals = await Pipeline(f.numbers).map(f.add_one).sink(sink, name="sink", process=True).run()
    assert totals.stages["sink"].restarts == 1
    assert set(map(int, (tmp_path / "found").read_text().split())) == set(range(1, f.COUNT + 1))


@pytest.mark.parametrize("stage", ["map", "sink"])
@on_asyncio
async def test_a_process_that_sorts_may_be_killed(stage: str, tmp_path: Path) -> None:
    """The one that takes its place does not wait for values that were finished before."""
    sink = f.AppendAndDieOnce(tmp_path, 50) if stage == "sink" else f.Append(tmp_path / "found")
    pipeline = Pipeline(f.numbers).map(f.add_one, workers=2, process=True)
    if stage == "map":
        pipeline = pipeline.map(f.DieOnce(tmp_path, 50), process=True, name="map")
    with anyio.fail_after(60):
        totals = await pipeline.sink(sink, name="sink", process=stage == "sink").run()
    assert totals.stages[stage].restarts == 1
    found = [int(each) for each in (tmp_path / "found").read_text().split()]
    assert list(dict.fromkeys(found)) == list(range(1, f.COUNT + 1))


@on_asyncio
async def test_a_process_that_sorts_does_not_wait_for_what_is_finished_behind_an_unfinished_value() -> None:
    """One worker dies, so that only the values of the other one are finished; then the process that sorts dies."""
    found: list[int] = []
    gates = anyio.Event(), anyio.Event()  # for the first batch; for the others
    batches: list[Any] = []

    async def sink(batch: list[Any]) -> None:
        batches.append(batch)
        await gates[len(batches) > 1].wait()
        found.extend(number for (number, _), _ in batch)

    pipeline = Pipeline(range(f.COUNT), name="source").map(f.with_process_id, workers=2, process=True, name="work")
    pipeline = pipeline.map(f.with_process_id, process=True, name="sorts").batch(7)
    with anyio.fail_after(60):
        async with pipeline.sink(sink).start() as run:
            most = 2 * (32 + 7)  # under way, and one that waits
            await until(lambda: run.totals().stages["source"].taken == most + 1 and bool(batches))
            (_, worker), sorts = batches[0][0]
            os.kill(worker, signal.SIGKILL)
            await until(lambda: run.totals().stages["work"].restarts == 1)
            gates[0].set()
            await until(lambda: run.totals().stages["source"].taken > most + 1)  # some values are finished
            os.kill(sorts, signal.SIGKILL)
            await until(lambda: run.totals().stages["sorts"].restarts == 1)
            gates[1].set()
    assert set(found) == set(range(f.COUNT))


@on_asyncio
@pytest.mark.long
async def test_a_process_before_an_ordered_stage_may_be_killed(tmp_path: Path) -> None:
    """The order of values that it did not have in its hands holds, although their numbers begin again."""
    found: list[int] = []
    work = f.DieOnce(tmp_path, 100, 200)
    pipeline = Pipeline(f.numbers).map(work, process=True, queue=4, name="work")
    with anyio.fail_after(60):
        totals = await pipeline.map(f.uneven, workers=2, process=True).sink(found.append).run()
    assert totals.stages["work"].restarts == 2
    assert set(found) == set(range(f.COUNT))
    others = [number for number in found if not any(killed - 5 <= number <= killed + 5 for killed in (100, 200))]
    assert others == sorted(set(others))


@pytest.mark.parametrize("kind", ["lines", "parquet"])
@pytest.mark.parametrize("processes", [False, True], ids=["here", "processes"])
@on_asyncio
async def test_a_full_disk_ends_the_source(processes: bool, kind: str, tmp_path: Path) -> None:
    pipeline = Pipeline(f.WithoutEnd(tmp_path / "the source has ended"), name="source")
    if kind == "lines":
        pipeline = pipeline.map(f.add_one).sink(f.Append(Path("/dev/full")), name="sink")
    else:
        pipeline = pipeline.batch(100).sink(f.WriteParquet("/dev/full"), name="sink")
    with anyio.fail_after(60), pytest.raises(StageError, match=r"'sink' .* OSError: .*No space left") as caught:
        await pipeline.run(processes=processes)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert (tmp_path / "the source has ended").exists()


async def test_a_failure_does_not_wait_for_a_slow_value() -> None:
    with pytest.raises(StageError, match="ZeroDivisionError"), anyio.fail_after(30):
        await Pipeline(range(4)).map(f.slow_or_failing, workers=2, process=True).run()


async def test_the_traceback_of_a_process_is_a_note() -> None:
    with pytest.raises(StageError) as caught:
        await Pipeline(range(8)).map(f.fail_at_seven, process=True).run()
    assert caught.value.__cause__ is not None
    assert "in fail_at_seven" in "".join(caught.value.__cause__.__notes__)


async def test_an_exception_that_pickle_cannot_copy_is_text() -> None:
    with pytest.raises(StageError, match="WithoutCopy: no copy; the value was 0") as caught:
        await Pipeline(range(8)).map(f.fail_without_copy, process=True).run()
    assert caught.value.__cause__ is None
    assert "in fail_without_copy" in caught.value.traceback


NO_GUARD = """
import anyio
from aiofabric.pipeline import Pipeline

def double(number):
    return 2 * number

anyio.run(Pipeline(range(3)).map(double, process=True).run)
"""


def test_a_program_that_starts_the_pipeline_when_it_is_imported_is_told(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(NO_GUARD)
    ended = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=60)
    last = ended.stderr.splitlines()[-1]
    assert "before it began" in last
    assert 'if __name__ == "__main__":' in last


async def test_a_worker_that_is_killed_while_it_starts_again_is_started_again(tmp_path: Path) -> None:
    found: list[int] = []
    work = f.DieOnceAndAtTheNextStart(tmp_path, 50)
    totals = await Pipeline(f.numbers).map(work, process=True, name="work").sink(found.append).run(restarts=2)
    assert totals.stages["work"].restarts == 2
    assert set(found) == set(range(f.COUNT))


@on_asyncio
async def test_a_worker_that_is_killed_at_its_first_start_is_started_again(tmp_path: Path) -> None:
    found: list[int] = []
    work = f.DieAtTheFirstStart(tmp_path, f.COUNT)
    totals = await Pipeline(f.numbers).map(work, process=True, name="work").sink(found.append).run()
    assert totals.stages["work"].restarts == 1
    assert found == list(range(f.COUNT))


@on_asyncio
async def test_a_worker_that_is_killed_whenever_it_starts_again_ends_the_run(tmp_path: Path) -> None:
    work = f.DieOnceAndAtTheNextStart(tmp_path, 50)
    with pytest.raises(StageError, match=r"\(signal SIGKILL\) too often$"):
        await Pipeline(f.numbers).map(work, process=True).run(restarts=1)


@pytest.mark.long
async def test_a_worker_that_always_dies_ends_the_run(tmp_path: Path) -> None:
    work = f.AlwaysDie(tmp_path, 3)
    with pytest.raises(StageError, match=r"\(exit status 3\) too often; the last one was at the value 3$"):
        await Pipeline(f.numbers).map(work, process=True, name="work").run(restarts=1)


@pytest.mark.long
async def test_a_worker_that_dies_at_a_value_that_came_once_names_none(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"\(exit status 3\) too often$"):
        await Pipeline(f.numbers).map(f.DieOnceAndAt200(tmp_path, 3), process=True).run(restarts=1)


@pytest.mark.long
async def test_a_source_that_dies_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"exit status 3\), and a source cannot be started again"):
        await Pipeline(f.dying_source, process=True).run()


async def test_an_exception_in_a_process_ends_the_run() -> None:
    with pytest.raises(
        StageError, match="'fail_at_seven' has failed: ZeroDivisionError: seven; the value was 7"
    ) as caught:
        await Pipeline(f.without_end).map(f.fail_at_seven, process=True).run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_sys_exit_in_a_process_is_an_error_of_its_stage_and_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(StageError, match=r"'exits' has failed: .*sys\.exit\(3\).*; the value was 0") as caught:
        await Pipeline(range(3)).map(f.exits, process=True).run()
    assert ", in exits\n" in caught.value.traceback
    assert capfd.readouterr().err == ""


async def test_a_worker_that_computes_does_not_block_this_process(tmp_path: Path) -> None:
    """It does not read its pipe meanwhile, which words to it must not fill."""
    (node,) = planned((Input(Stage(Kind.SOURCE, "source", range(1))),), {}, processes=True)
    process = LocalProcess(node.order(), current_backend(), OWN_HOST, {})
    await process.start()
    os.kill(next(iter(workers_of_this_process())), signal.SIGSTOP)
    told = 0
    with anyio.move_on_after(1) as scope:
        for _ in range(5000):
            await process.tell("places", ["place" * 100], [])
            told += 1
    assert scope.cancelled_caught
    assert 0 < told < 5000
    await process.end(at_once=True)


async def test_workers_end_when_the_process_of_the_run_is_killed(child: Any, tmp_path: Path) -> None:
    runs = child(f.run_without_end)
    workers = await runs.areceive()
    assert len(workers) == 2
    runs.kill()
    await until(lambda: not any(map(psutil.pid_exists, workers)))


async def test_a_function_that_cannot_be_sent_is_named() -> None:
    with pytest.raises(StageError, match="Define its function at the top of a module"):
        await Pipeline(f.numbers).map(lambda number: number, process=True).run()


@pytest.mark.long
async def test_a_value_that_cannot_be_sent_is_an_error_of_its_stage() -> None:
    with pytest.raises(StageError, match=r"'map' has failed: .* of the type 'function', which .* the value was 0"):
        await Pipeline(range(3)).map(lambda _: lambda: 5).map(f.add_one, process=True).run()


@pytest.mark.parametrize(("here", "workers"), [(True, 1), (False, 2)], ids=["here", "of a process"])
@on_asyncio
async def test_a_value_that_cannot_be_sent_may_be_skipped(here: bool, workers: int) -> None:
    found: list[Any] = []
    work = Pipeline(range(20)).map(
        f.odd_ones_cannot_be_sent, on_error="skip", process=not here, workers=workers, name="work"
    )
    totals = await work.map(f.add_one, process=here).sink(found.append).run()
    assert found == list(range(1, 21, 2))
    assert (totals.stages["work"].skipped, totals.stages["work"].given) == (10, 10)


@on_asyncio
async def test_a_value_of_many_that_cannot_be_sent_ends_its_input_only() -> None:
    found: list[Any] = []
    work = Pipeline(range(4)).flat_map(f.odd_ones_cannot_be_sent_after_one, on_error="skip", name="work")
    totals = await work.map(f.add_one, process=True).sink(found.append).run()
    assert found == [1, 1, 2, 3, 3, 4]
    assert totals.stages["work"].skipped == 2


@pytest.mark.parametrize("kind", ["sent", "loaded"])
@on_asyncio
async def test_a_value_that_cannot_be_sent_or_loaded_may_be_a_dead_letter(kind: str, tmp_path: Path) -> None:
    letters = f.AppendLetter(tmp_path / "letters")
    found: list[Any] = []
    if kind == "sent":
        pipeline = Pipeline(range(6)).map(f.odd_ones_cannot_be_sent, process=True, on_error=letters)
        pipeline = pipeline.map(f.add_one, process=True)
    else:
        pipeline = Pipeline(range(6)).map(f.odd_ones_cannot_be_loaded, process=True)
        pipeline = pipeline.map(f.add_one, process=True, on_error=letters)
    await pipeline.sink(found.append).run()
    assert found == [1, 3, 5]
    expected = "int PicklingError" if kind == "sent" else "bytes UnpicklingError"
    assert (tmp_path / "letters").read_text().splitlines() == [expected] * 3


@pytest.mark.parametrize("stage", ["add_one", "batch"])
@on_asyncio
async def test_a_value_that_cannot_be_loaded_is_an_error_of_the_stage_that_gets_it(stage: str, tmp_path: Path) -> None:
    made = Pipeline(range(6)).map(f.odd_ones_cannot_be_loaded)
    pipeline = made.map(f.add_one, process=True) if stage == "add_one" else made.batch(2)
    with pytest.raises(StageError, match=rf"'{stage}' has failed: UnpicklingError: .* LookupError: no such model here"):
        await pipeline.sink(f.Append(tmp_path / "found")).run(processes=stage == "batch")


async def test_a_cancelled_run_ends_its_processes() -> None:
    with anyio.CancelScope() as scope:
        async with Pipeline(f.without_end).map(f.add_one, workers=2, process=True).start() as run:
            await until(lambda: run.totals().stages["add_one"].taken > 0)
            scope.cancel()
    assert scope.cancelled_caught


async def test_a_stopped_source_of_another_process_ends_in_order() -> None:
    found: list[int] = []
    async with Pipeline(f.without_end, process=True).sink(found.append).start() as run:
        await until(lambda: len(found) > 10)
        run.stop()
    assert found == list(range(len(found)))
