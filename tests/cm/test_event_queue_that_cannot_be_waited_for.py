"""Hazard: fi_trywait of an event queue always fails, and aiofabric polls for ever and reports nothing."""

# Privates: `_fabric` is the native pointer whose function fails.
# Doubles: reports of the driver are collected; on trio they go to a log only.

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricError, Listener, Waiting
from aiofabric._ffi import constants
from tests.fixtures.broken_fabric import broken_trywait
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import Pair, over

pytestmark = [pytest.mark.anyio, pytest.mark.once]
provider = over(["tcp"])

ERROR = ("fi_trywait", constants.FI_EIO)


def listening(provider: str) -> Any:
    return aiofabric.listen("127.0.0.1", 0, provider=provider)


def events_of(listener: Listener) -> Any:
    handle: Any = handle_of(listener)
    return handle.events


def broken(events: Any) -> Any:
    return broken_trywait(events._fabric, events.native)


async def accept_fails(listener: Listener, errors: list[tuple[str | None, int | None]]) -> None:
    with pytest.raises(FabricError) as caught:
        await listener.accept_request()
    errors.append((caught.value.call, caught.value.errno))


async def test_a_task_that_waits_for_a_request_gets_the_error(provider: str) -> None:
    async with listening(provider) as listener:
        errors: list[tuple[str | None, int | None]] = []
        with broken(events_of(listener)) as answer, anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(accept_fails, listener, errors)
                await anyio.wait_all_tasks_blocked()
                answer(-constants.FI_EIO)
                source_of(listener).touch_events()
        assert errors == [ERROR] * 2


async def test_a_task_that_begins_to_wait_gets_the_error_and_later_ones_their_request(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(provider) as listener:
        errors: list[tuple[str | None, int | None]] = []
        source = source_of(listener)
        reported: list[object] = []
        monkeypatch.setattr(source.driver, "report", lambda _, error: reported.append(error))
        with broken(events_of(listener)) as answer, anyio.fail_after(5):
            answer(-constants.FI_EIO)
            source.touch_events()
            while not reported:  # no task waited  # noqa: ASYNC110
                await anyio.sleep(0.01)
            await accept_fails(listener, errors)
            assert errors == [ERROR]
            answer(0)
        async with anyio.create_task_group() as tasks:

            async def connect() -> None:
                async with await aiofabric.connect(listener.address, provider=provider):
                    pass

            tasks.start_soon(connect)
            with anyio.fail_after(5):
                async with await (await listener.accept_request()).accept():
                    pass


async def test_nothing_polls_an_event_queue_that_failed(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(provider) as listener:
        source = source_of(listener)
        reported: list[object] = []
        monkeypatch.setattr(source.driver, "report", lambda _, error: reported.append(error))
        with broken(events_of(listener)) as answer, anyio.fail_after(30):
            answer(-constants.FI_EIO)
            source.touch_events()
            while not reported:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            before = -1
            while before != (before := source.statistics().passes):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert [type(error) for error in reported] == [FabricError]


async def test_a_connect_under_way_gets_the_error(pair: Pair, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the queues of a connection that waits for a message: its task gets it, too."""
    async with pair(waiting=Waiting.FD) as (one, _), listening(provider) as listener:
        source: Any = source_of(one)
        (events,) = source.attached_queues
        monkeypatch.setattr(source.driver, "report", lambda *_: None)  # of the passes of closing, which find no task
        errors: list[tuple[str | None, int | None]] = []

        async def fails(call: Any) -> None:
            with pytest.raises(FabricError) as caught:
                await call()
            errors.append((caught.value.call, caught.value.errno))

        async def connect() -> None:
            await aiofabric.connect(listener.address, provider=provider, waiting=Waiting.FD)

        with broken(events) as answer, anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails, connect)
                tasks.start_soon(fails, one.recv)
                request = await listener.accept_request()  # is not accepted: the client waits
                await anyio.wait_all_tasks_blocked()
                answer(-constants.FI_EIO)
                source.touch_events()
        assert errors == [ERROR] * 2
        request.reject()
