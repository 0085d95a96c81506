"""A place where something else listens, or no peer at all, is an error that is printed once; connecting goes on."""

# Doubles: ten seconds are shorter.

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
import pytest

from aiofabric import listen
from aiofabric.pipeline import Publish, Pull, Push
from aiofabric.streams import listen_stream
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiofabric import Listener

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="aiofabric.pipeline.runtime.connector")


def texts(records: Sequence[logging.LogRecord], level: int) -> list[str]:
    return [record.getMessage() for record in records if record.levelno == level and "connector" in record.name]


async def tried_again(records: Sequence[logging.LogRecord]) -> str:
    """The error that was logged, after two further attempts to connect."""
    await until(lambda: texts(records, logging.ERROR) and len(texts(records, logging.INFO)) >= 2)
    (error,) = texts(records, logging.ERROR)
    return error


async def test_the_wrong_end_of_a_pipeline_is_named_once(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Publish(listen=(HOST, 0), provider=provider) as other, Push(other.address, provider=provider):
        error = await tried_again(caplog.records)
        assert f"{HOST}:{other.address.port}" in error
    assert "refuses the connection: a Publish connects with a Subscribe, not with a Push" in error


async def test_a_place_where_no_pipeline_listens_is_named_once(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        listen_stream(HOST, 0, provider=provider) as other,
        Push(other.address, provider=provider),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(other.accept)  # it accepts none of them
        error = await tried_again(caplog.records)
        tasks.cancel_scope.cancel()
    assert "refuses the connection" in error


async def test_a_place_that_leaves_while_a_connection_waits_is_no_error_at_once(
    provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its listener refuses the requests that wait when it closes, and has no reason to give."""
    async with listen(HOST, 0, provider=provider) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(_push_without_end, (HOST, other.address.port or 0), provider)
        request = await anext(aiter(other))
        request.reject()
        await other.aclose()
        await until(lambda: len(texts(caplog.records, logging.INFO)) >= 2)
        tasks.cancel_scope.cancel()
    assert texts(caplog.records, logging.ERROR) == []


async def test_a_place_that_refuses_again_without_a_reason_is_named_once(
    provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listen(HOST, 0, provider=provider) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(_push_without_end, (HOST, other.address.port or 0), provider)
        tasks.start_soon(_refuse_all, other)
        assert "refuses the connection: it gave no reason" in await tried_again(caplog.records)
        tasks.cancel_scope.cancel()


async def _push_without_end(place: tuple[str, int], provider: str) -> None:
    async with Push(place, provider=provider):
        await anyio.sleep_forever()


async def _refuse_all(listener: Listener) -> None:
    async for request in listener:
        request.reject()


async def test_a_place_where_nobody_answers_is_named_once_after_ten_seconds(
    provider: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as gone:
        place = (HOST, gone.address.port or 0)
    monkeypatch.setattr("aiofabric.pipeline.runtime.connector._SILENT", 0.1)
    async with Push(place, provider=provider):
        error = await tried_again(caplog.records)
        assert f"no connection with {HOST}:{place[1]} for 10 seconds" in error
        async with Pull(listen=place, provider=provider) as pull:
            await until(lambda: pull.statistics().producers)


async def test_a_consumer_that_leaves_after_a_long_time_is_no_error_at_once(
    provider: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiofabric.pipeline.runtime.connector._SILENT", 0.5)

    async def produce(place: tuple[str, int]) -> None:
        async with Push(place, provider=provider) as push:
            await push.push(b"first")
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        async with Pull(listen=(HOST, 0), provider=provider) as pull:
            tasks.start_soon(produce, (HOST, pull.address.port or 0))
            with await pull.pull():
                await anyio.sleep(0.6)  # longer than a peer may be silent
        await until(lambda: any("no connection with" in record.getMessage() for record in caplog.records))
        first = next(record for record in caplog.records if "no connection with" in record.getMessage())
        assert first.levelno == logging.INFO
        tasks.cancel_scope.cancel()
