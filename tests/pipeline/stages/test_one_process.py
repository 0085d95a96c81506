"""A graph of stages in one process: each value goes through, in order, and an error or a cancel ends everything."""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aiofabric import NoProviderError, WrongThreadError
from aiofabric.pipeline import Pipeline, StageError
from aiofabric.pipeline.stages.entry import Entry
from tests.fixtures.waiting import until
from tests.pipeline.stages import functions as f

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


async def result_of(pipeline: Pipeline) -> list[Any]:
    found: list[Any] = []
    await pipeline.sink(found.append).run()
    return found


def test_an_entry_has_no_value_any_more_when_it_is_finished() -> None:
    """An array over the memory of an item would keep it from being used again."""
    found: list[object] = []
    entry = Entry("value", finished=lambda: found.append(entry.value))
    entry.release()
    assert found == [None]


async def test_each_kind_of_stage() -> None:
    pipeline = Pipeline(range(20)).map(f.add_one).filter(f.is_even).flat_map(f.three_times)
    assert await result_of(pipeline) == [number for number in range(2, 21, 2) for _ in range(3)]


@pytest.mark.parametrize("source", [range(3), [0, 1, 2], lambda: iter(range(3)), f.numbers], ids=range(4))
async def test_kinds_of_sources(source: Any) -> None:
    assert (await result_of(Pipeline(source)))[:3] == [0, 1, 2]


@pytest.mark.parametrize("source", [lambda: iter(range(3)), lambda: f.three_times(1), f.numbers], ids=range(3))
async def test_an_iterator_can_be_read_by_one_run_only(source: Any) -> None:
    pipeline = Pipeline(source())
    found: list[Any] = []
    await pipeline.sink(found.append).run()
    assert found
    with pytest.raises(RuntimeError, match="pass a function that makes it, or a list"):
        await pipeline.map(f.add_one).run()


async def test_batches_and_windows() -> None:
    assert await result_of(Pipeline(range(7)).batch(3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert await result_of(Pipeline(range(5)).window(3)) == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert await result_of(Pipeline(range(8)).window(2, step=3)) == [[0, 1], [3, 4], [6, 7]]
    assert await result_of(Pipeline([]).batch(3)) == []


async def test_a_batch_waits_for_its_seconds_only() -> None:
    taken = anyio.Event()

    async def slow() -> AsyncIterator[int]:
        yield 1
        await taken.wait()
        yield 2

    found: list[list[int]] = []

    async def sink(batch: list[int]) -> None:
        found.append(batch)
        taken.set()

    with anyio.fail_after(10):
        await Pipeline(slow).batch(100, seconds=0.02).sink(sink).run()
    assert found == [[1], [2]]


async def test_several_workers_keep_the_order() -> None:
    assert await result_of(Pipeline(f.numbers).map(f.uneven, workers=4)) == list(range(f.COUNT))
    at_once = 0
    all_are_here = anyio.Event()

    async def together(number: int) -> int:
        nonlocal at_once
        at_once += 1
        if at_once == 4:
            all_are_here.set()
        await all_are_here.wait()
        return number

    with anyio.fail_after(10):
        assert await result_of(Pipeline(range(8)).map(together, workers=4)) == list(range(8))


async def test_without_order_a_slow_value_delays_no_other() -> None:
    others = anyio.Event()

    async def first_waits(number: int) -> int:
        if number == 0:
            await others.wait()
        elif number == 9:
            others.set()
        return number

    with anyio.fail_after(10):
        found = await result_of(Pipeline(range(10)).map(first_waits, workers=2, ordered=False))
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] or sorted(found) == list(range(10))
    assert found.index(0) > 0


async def test_values_are_routed_by_key_and_merged() -> None:
    ended: list[int] = []
    pipeline = Pipeline(range(10)).route(
        f.letter, {"a": lambda p: p.map(f.add_one), "b": lambda p: p.sink(ended.append)}
    )
    assert await result_of(pipeline) == [1, 3, 5, 7, 9]
    assert ended == [1, 3, 5, 7, 9]
    assert Counter(await result_of(Pipeline(range(3)).merge(Pipeline("ab")))) == Counter([0, 1, 2, "a", "b"])


async def test_a_key_without_a_branch_is_an_error() -> None:
    with pytest.raises(StageError, match=r"no branch has the key 'b'; the keys are \['a'\]"):
        await result_of(Pipeline(range(2)).route(f.letter, {"a": lambda p: p}))


async def test_a_slow_sink_makes_the_source_wait() -> None:
    produced = 0
    go_on = anyio.Event()

    async def source() -> AsyncIterator[int]:
        nonlocal produced
        for number in range(100):
            produced += 1
            yield number

    async def sink(_: int) -> None:
        await go_on.wait()

    async with Pipeline(source).map(f.add_one, queue=2).sink(sink, queue=2).start() as run:
        await until(lambda: run.totals().stages["sink"].taken == 1)
        await anyio.wait_all_tasks_blocked()
        assert produced <= 1 + 2 + 1 + 2 + 1  # at each stage, and in the queues
        go_on.set()
    assert run.totals().stages["sink"].taken == produced == 100


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", ["map", "filter", "sink"])
async def test_an_exception_ends_the_run_and_names_the_stage_and_the_value(kind: str, workers: int) -> None:
    pipeline = getattr(Pipeline(f.without_end), kind)(f.fail_at_seven, workers=workers)
    with pytest.raises(
        StageError, match="'fail_at_seven' has failed: ZeroDivisionError: seven; the value was 7"
    ) as caught:
        await pipeline.run()
    assert caught.value.stage == "fail_at_seven"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("stage", ["map", "flat_map", "source", "on_error"])
async def test_sys_exit_in_a_function_is_an_error_of_its_stage(stage: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It would leave the tasks of the other stages behind, with a warning for each."""
    pipelines = {
        "map": Pipeline(range(3)).map(f.exits, workers=2),
        "flat_map": Pipeline(range(3)).flat_map(f.exits),
        "source": Pipeline(f.exits_as_source),
        "on_error": Pipeline(range(9)).map(f.fail_at_seven, on_error=f.exits),
    }
    with pytest.raises(StageError, match=r"the function called sys\.exit\(3\)"):
        await pipelines[stage].run()
    gc.collect()
    assert capfd.readouterr().err == ""


async def test_a_source_or_generator_that_fails() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise OSError("the disk is full")

    async def many(number: int) -> AsyncIterator[int]:
        yield number
        raise OSError("the disk is full")

    for pipeline in (Pipeline(source), Pipeline(range(3)).flat_map(many)):
        with pytest.raises(StageError, match="the disk is full"):
            await pipeline.run()


async def test_values_with_errors_are_skipped_or_become_dead_letters() -> None:
    letters: list[tuple[int, str]] = []

    async def dead(value: int, error: Exception) -> None:
        letters.append((value, str(error)))

    found: list[int] = []
    totals = await Pipeline(range(10)).map(f.fail_at_seven, on_error="skip", workers=2).sink(found.append).run()
    assert found == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert (totals.stages["fail_at_seven"].skipped, totals.stages["append"].taken) == (1, 9)
    totals = await Pipeline(range(10)).map(f.fail_at_seven, on_error=dead).run()
    assert letters == [(7, "seven")]
    assert totals.stages["fail_at_seven"].dead_letters == 1
    with pytest.raises(StageError, match="no room for 7"):
        await Pipeline(range(10)).map(f.fail_at_seven, on_error=f.to_dead_letters).run()


async def test_a_run_that_is_stopped_finishes_what_was_produced() -> None:
    found: list[int] = []
    async with Pipeline(f.without_end).map(f.uneven).sink(found.append).start() as run:
        await until(lambda: len(found) > 10)
        run.stop()
    assert found == list(range(len(found)))
    assert run.totals().stages["without_end"].given == len(found)


async def test_a_stop_from_another_thread_is_refused_and_stops_nothing() -> None:
    found: list[int] = []
    with anyio.fail_after(10):
        async with Pipeline(f.without_end).sink(found.append).start() as run:
            await until(lambda: found)
            with pytest.raises(WrongThreadError, match="belongs to the thread that entered its block"):
                await anyio.to_thread.run_sync(run.stop)
            before = len(found)
            await until(lambda: len(found) > before + 100)
            await anyio.to_thread.run_sync(anyio.from_thread.run_sync, run.stop)


async def test_a_source_that_waits_for_ever_can_be_stopped() -> None:
    async def waits() -> AsyncIterator[int]:
        yield 1
        await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with Pipeline(waits).start() as run:
            await until(lambda: run.totals().stages["waits"].given == 1)
            run.stop()


async def test_a_cancelled_run_ends_at_once() -> None:
    with anyio.CancelScope() as scope:
        async with Pipeline(f.without_end).map(f.add_one).start() as run:
            await until(lambda: run.totals().stages["add_one"].taken > 0)
            scope.cancel()
    assert scope.cancelled_caught


async def test_many_branches_one_behind_the_other() -> None:
    """Each stage is planned once, not each of the 2**40 ways through them."""
    pipeline = Pipeline(range(4))
    for _ in range(40):
        pipeline = pipeline.route(f.letter, {"a": lambda p: p, "b": lambda p: p.map(f.uneven)})
    with anyio.fail_after(20):
        assert sorted(await result_of(pipeline)) == [0, 1, 2, 3]


async def test_an_exception_of_the_block_ends_the_run() -> None:
    async def block() -> None:
        async with Pipeline(f.without_end).map(f.add_one).start():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()


async def test_a_stage_that_fails_while_the_block_waits_is_a_stage_error() -> None:
    async def block() -> None:
        async with Pipeline(range(8)).map(f.fail_at_seven).start():
            await anyio.sleep_forever()

    with pytest.raises(StageError, match="seven"):
        await block()


async def test_a_wrong_provider_is_its_own_error() -> None:
    with pytest.raises(NoProviderError):
        await Pipeline(range(3)).map(f.add_one, process=True).run(provider="tpc")


@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])
@pytest.mark.parametrize("count", [10, 200])
async def test_a_function_that_raises_cancelled_of_its_own_has_failed(count: int, anyio_backend: object) -> None:
    """It would look like a task that has ended in order, and values would be lost."""
    with pytest.raises(StageError, match=r"raised CancelledError, and nothing has cancelled the run; the value was 3"):
        await Pipeline(range(count)).map(f.waits_for_cancelled).run()
    skipping = Pipeline(range(count)).map(f.waits_for_cancelled, on_error="skip", workers=2)
    assert await result_of(skipping) == [0, 1, 2, *range(4, count)]


@pytest.mark.parametrize("anyio_backend", [("asyncio", {})])
async def test_a_source_that_raises_cancelled_of_its_own_has_failed(anyio_backend: object) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise anyio.get_cancelled_exc_class()

    with pytest.raises(StageError, match="CancelledError"):
        await Pipeline(source).run()


async def test_dead_letters_may_go_to_a_plain_function() -> None:
    letters: list[tuple[Any, Exception]] = []
    pipeline = Pipeline(range(8)).map(f.fail_at_seven, on_error=lambda *letter: letters.append(letter))
    assert await result_of(pipeline) == list(range(7))
    assert [value for value, _ in letters] == [7]


def test_totals_of_a_run_that_has_not_begun() -> None:
    with pytest.raises(RuntimeError, match="has not begun"):
        Pipeline([]).start().totals()


async def test_a_pipeline_never_changes_and_runs_often() -> None:
    begun = Pipeline(range(3))
    first, second = begun.map(f.add_one), begun.filter(f.is_even)
    for _ in range(2):
        assert await result_of(first) == [1, 2, 3]
        assert await result_of(second) == [0, 2]


async def test_stages_of_one_name_are_numbered_and_workers_may_be_chosen_later() -> None:
    pipeline = Pipeline(range(3), name="in").map(f.add_one).map(f.add_one).map(f.add_one, name="last")
    totals = await pipeline.run(workers={"last": 2})
    assert list(totals.stages) == ["in", "add_one-1", "add_one-2", "last"]
    pipelines = [Pipeline(range(3), name="a"), Pipeline(range(3), name="a"), Pipeline(range(3), name="a-1")]
    totals = await pipelines[0].merge(*pipelines[1:]).run()
    assert sorted(each.given for each in totals.stages.values()) == [3, 3, 3]
    with pytest.raises(ValueError, match="no stage has the name 'other'; there are in, add_one-1"):
        await pipeline.run(workers={"other": 2})
    with pytest.raises(ValueError, match="'in' has one worker"):
        await pipeline.run(workers={"in": 2})


LETTERS: dict[Any, Exception] = {}
APPENDED = "'append' would call append of a list in another process, which has a copy of it"

MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: Pipeline(5), TypeError, "a source is"),
    (lambda: Pipeline([]).map(5), TypeError, "must be callable"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).map(f.add_one, workers=0), ValueError, "workers"),
    (lambda: Pipeline([]).map(f.add_one, queue=0), ValueError, "queue"),
    (lambda: Pipeline([]).map(f.add_one, on_error="ignore"), ValueError, "on_error"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).map(f.add_one, queue=-1), ValueError, "queue must be 1 to"),
    (lambda: Pipeline([]).map(f.add_one, workers=True), TypeError, "workers must be a number"),
    (lambda: Pipeline([]).map(f.three_times), TypeError, "use flat_map"),
    (lambda: Pipeline([]).sink(f.three_times), TypeError, "return instead of yield"),
    (lambda: Pipeline([]).sink(f.without_end), TypeError, "return instead of yield"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).start(workers=3), TypeError, "workers must be a dict"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).start(host=5), TypeError, "host must be of type str"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).start(provider=5), TypeError, "provider must be of type str"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).route(f.letter, ["a"]), TypeError, "branches"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).route(f.letter, {"a": Pipeline([])}), TypeError, "the branch 'a' must be a function"),  # type: ignore[dict-item]
    (lambda: Pipeline([]).map(f.add_one, process=1), TypeError, "process"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).batch(0), ValueError, "size"),
    (lambda: Pipeline([]).batch(1, seconds=0), ValueError, "seconds"),
    (lambda: Pipeline([]).batch(1, seconds="x"), TypeError, "seconds must be of type float"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).window(1, step=0), ValueError, "step"),
    (lambda: Pipeline([]).sink(f.add_one).map(f.add_one), ValueError, "has ended with a sink"),
    (lambda: Pipeline([]).route(f.letter, {}), ValueError, "at least one branch"),
    (lambda: Pipeline([]).route(f.letter, {"a": lambda _: 5}), TypeError, "a branch"),  # type: ignore[dict-item,return-value]
    (lambda: Pipeline([]).merge(), ValueError, "merge needs at least one other pipeline"),
    (lambda: Pipeline([]).draw(totals=5), TypeError, "totals must be of type Totals"),  # type: ignore[arg-type]
    (lambda: Pipeline([]).sink([].append, process=True).start(), ValueError, APPENDED),
    (lambda: Pipeline([]).sink(set().add).start(processes=True), ValueError, "add of a set"),
    (lambda: Pipeline([]).sink(Counter().update).start(processes=True), ValueError, "update of a Counter"),
    (lambda: Pipeline([]).sink(partial([].append)).start(processes=True), ValueError, APPENDED),
    (lambda: Pipeline([]).map(f.add_one, on_error=LETTERS.setdefault, process=True).start(), ValueError, "setdefault"),
    (lambda: Pipeline([]).merge(5), TypeError, "merge"),  # type: ignore[arg-type]
    (
        lambda: Pipeline([]).map(f.add_one, wokers=2),  # type: ignore[call-arg]
        TypeError,
        r"map\(\) has no option 'wokers'; its options are workers, .*ordered",
    ),
    (lambda: Pipeline([]).sink(f.add_one, ordered=True), TypeError, r"sink\(\) has no option 'ordered'"),  # type: ignore[call-arg]
    (lambda: Pipeline([]).start(hartbeat=1), TypeError, "hartbeat"),  # type: ignore[call-arg]
    (
        lambda: Pipeline([]).start(colour=1),  # type: ignore[call-arg]
        TypeError,
        r"Pipeline.start\(\) got an unexpected option 'colour'. Its options are .*heartbeat, .*processes, workers",
    ),
    (lambda: Pipeline([]).start(processes=1), TypeError, "processes"),  # type: ignore[arg-type]
    (
        lambda: Pipeline([]).flat_map(f.three_times, workers=2, process=True).start(),
        ValueError,
        "ordered=False",
    ),
]


def test_a_method_of_a_container_may_be_a_function_of_a_process_that_returns_something() -> None:
    Pipeline([]).map({0: 1}.get).filter({1}.__contains__).sink(f.add_one).start(processes=True)
    Pipeline([]).map(f.add_one, process=True).sink([].append).start()


@pytest.mark.parametrize(("make", "error", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_named_before_the_run(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
