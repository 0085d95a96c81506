"""Looking at the ends of pipelines from elsewhere: each report has their numbers, and a watcher disturbs nothing."""

from __future__ import annotations

import io
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aiofabric
from aiofabric.debugging import debug
from aiofabric.pipeline import Publish, Pull, Push, Subscribe, watch
from aiofabric.testing import live_resources
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.anyio


def reports_of(end: Any, provider: str) -> AsyncGenerator[dict[str, Any]]:
    found: Any = watch(end.address, provider=provider)
    return found  # type: ignore[no-any-return]


async def test_reports_come_until_the_end_leaves(provider: str) -> None:
    before = live_resources()
    reports: list[dict[str, Any]] = []
    began = anyio.Event()

    async def keep_watching(push: Push) -> None:
        async with aclosing(reports_of(push, provider)) as found:
            reports.append(await anext(found))
            began.set()
            reports.extend([report async for report in found])

    async with anyio.create_task_group() as tasks, Push(listen=(HOST, 0), provider=provider) as push:
        tasks.start_soon(keep_watching, push)
        await began.wait()
    assert (reports[0]["end"], reports[0]["id"], reports[0]["pushed"]) == ("Push", push.id.hex(), 0)
    await until(lambda: live_resources() == before)


async def test_a_watcher_that_leaves_is_forgotten(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:
        before = len(live_resources())
        async with aclosing(reports_of(pull, provider)) as found:
            assert (await anext(found))["end"] == "Pull"
        await until(lambda: len(live_resources()) == before)


async def test_a_report_of_many_topics_fits_into_a_message(provider: str) -> None:
    topics = [f"{number:03}" * 300 for number in range(60)]
    async with (
        Publish(listen=(HOST, 0), provider=provider) as publish,
        Subscribe(publish.address, topics, provider=provider),
        Subscribe(publish.address, topics, provider=provider),
    ):
        await publish.wait_for_subscribers(2)
        async with aclosing(reports_of(publish, provider)) as found:
            report = await anext(found)
        assert len(report["subscribers"]) == 2
        assert len(report["subscribers"][0]["topics"]) < 60


async def test_a_listener_of_another_kind_is_no_end_of_a_pipeline(provider: str) -> None:
    async with (
        aiofabric.listen(HOST, 0, provider=provider) as listener,
        anyio.create_task_group() as tasks,
    ):

        async def accept() -> None:
            async with await (await listener.accept_request()).accept():
                await anyio.sleep_forever()

        tasks.start_soon(accept)
        with pytest.raises(ValueError, match="no end of a pipeline listens at"):
            await anext(reports_of(listener, provider))
        tasks.cancel_scope.cancel()


async def test_debug_tells_how_long_a_consumer_keeps_large_items(provider: str) -> None:
    def lines(pattern: str) -> list[str]:
        out = io.StringIO()
        debug(out)
        return re.findall(pattern, out.getvalue())

    async with Pull(listen=(HOST, 0), provider=provider) as pull, Push(pull.address, provider=provider) as push:
        for _ in range(3):
            await push.push(bytes(1 << 20))
        items = [await pull.pull() for _ in range(2)]
        await until(lambda: pull.statistics().queued == 1)
        assert lines(r"a consumer; (\d+) items were sent") == ["3"]
        assert lines(r"a producer; (\d+) of its items are here") == ["3"]
        assert lines(r"(\d+) large items are in use: 2097152 bytes, the oldest for \d+\.\d s") == ["2"]
        for item in items:
            item.ack()
        assert not lines("are in use")
        (await pull.pull()).ack()


async def test_debug_tells_what_waits_for_a_subscriber(provider: str) -> None:
    out = io.StringIO()
    async with (
        Publish(listen=(HOST, 0), provider=provider, queue=2) as publish,
        Subscribe(publish.address, "t", provider=provider, window=1) as subscribe,
    ):
        await publish.wait_for_subscribers()
        for _ in range(5):
            await publish.publish("t", b"x")
        debug(out)
        for _ in range(3):
            (await subscribe.pull()).ack()
    assert "a subscriber; 1 publications are not acknowledged, 2 publications wait, 2 were dropped" in out.getvalue()
