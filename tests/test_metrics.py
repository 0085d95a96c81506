"""Metrics: one reading has everything, gauges follow the open objects, and counters never decrease."""

import threading
from itertools import pairwise

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from aiofabric.metrics import FAMILIES, read
from aiofabric.pipeline import Publish, Pull, Push, Subscribe
from tests.fixtures.providers import Pair


def values() -> dict[tuple[str, str], int]:
    return {(sample.name, sample.label): sample.value for sample in read()}


@pytest.mark.anyio
async def test_counters_never_shrink_over_a_connections_life(pair: Pair) -> None:
    readings = [values()]
    async with pair() as (active, passive):
        readings.append(values())
        for _ in range(10):
            await active.send(b"to")
            await passive.recv()
        readings.append(values())
    readings.append(values())
    counters = {name for name, family in FAMILIES.items() if family.kind == "counter"}
    for before, after in pairwise(readings):
        for key, count in before.items():
            if key[0] in counters:
                assert after[key] >= count, key
    last, first = readings[-1], readings[0]
    assert last["messages", "tcp"] - first.get(("messages", "tcp"), 0) == 10
    assert last["bytes", "tcp"] - first.get(("bytes", "tcp"), 0) == 20
    assert ("endpoints", "tcp") not in last


@pytest.mark.anyio
async def test_readings_of_another_thread_disturb_nothing(pair: Pair) -> None:
    done = threading.Event()
    readings: list[int] = []

    def keep_reading() -> None:
        while not done.is_set():
            readings.append(len(read()))

    async with pair() as (active, passive), anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, keep_reading)
        for _ in range(500):
            async with anyio.create_task_group() as both:
                both.start_soon(active.send, bytes(5000))
                both.start_soon(passive.recv)
        with anyio.fail_after(10):
            while not readings:  # the thread's first one has not ended yet
                await anyio.lowlevel.checkpoint()
        done.set()


def test_the_order_is_that_of_the_families() -> None:
    places = [list(FAMILIES).index(sample.name) for sample in read()]
    assert places == sorted(places)


@pytest.mark.anyio
async def test_requests_of_a_closed_listener_stay_counted(pair: Pair) -> None:
    before = values()
    async with pair():
        pass
    after = values()
    assert [after[name, ""] - before[name, ""] for name in ("requests", "accepted")] == [1, 1]


@pytest.mark.anyio
async def test_ends_of_pipelines_are_counted_and_stay_counted() -> None:
    before = values()
    async with (
        Push(listen="127.0.0.1:0") as push,
        Pull(push.address) as pull,
        Publish(listen="127.0.0.1:0") as publish,
        Subscribe(publish.address) as subscribe,
    ):
        await push.push(b"item")
        (await pull.pull()).ack()
        await publish.wait_for_subscribers()
        await publish.publish("topic", b"data")
        (await subscribe.pull()).ack()
        with anyio.fail_after(20):
            acknowledged = ("pipeline_acknowledged", "Publish")
            while values().get(acknowledged, 0) == before.get(acknowledged, 0):
                await anyio.lowlevel.checkpoint()
        within = values()
        assert [within["pipeline_peers", end] for end in ("Push", "Pull", "Publish", "Subscribe")] == [1, 1, 1, 1]
    after = values()
    items = {end: after["pipeline_items", end] - before.get(("pipeline_items", end), 0) for end in ("Push", "Pull")}
    assert items == {"Push": 1, "Pull": 1}
    assert after["pipeline_items", "Publish"] - before.get(("pipeline_items", "Publish"), 0) == 1
    for end in ("Push", "Publish"):
        assert after["pipeline_acknowledged", end] - before.get(("pipeline_acknowledged", end), 0) == 1
    assert after.get(("pipeline_peers", "Push"), 0) == 0
