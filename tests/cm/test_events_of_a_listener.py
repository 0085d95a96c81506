"""A listener continues after events that are not its own, after errors, and after reads that failed."""

# Doubles: no provider makes these events on request, and reports of the driver are collected.

from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricError, Listener
from aiofabric._ffi import constants, ffi
from aiofabric.cm.events import SHUTDOWN, Event, EventError
from aiofabric.cm.queue import EventQueue
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import over

pytestmark = pytest.mark.anyio
provider = over(["tcp"])

HERE = "127.0.0.1"


async def serves(listener: Listener, provider: str) -> bool:
    """Whether a client still gets its connection."""
    async with anyio.create_task_group() as tasks:

        async def connect() -> None:
            async with await aiofabric.connect(listener.address, provider=provider) as active:
                await active.send(b"hello")

        tasks.start_soon(connect)
        with anyio.fail_after(5):
            async with await (await listener.accept_request()).accept() as passive:
                got = await passive.recv()
    return got == b"hello"


async def test_other_events_and_errors_are_no_requests(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        handle: Any = handle_of(listener)
        handle.event(Event(SHUTDOWN, 1, b"", ffi.NULL))
        handle.event_error(EventError(1, constants.FI_ECONNREFUSED, 0, "", b""))
        assert listener.statistics().pending == 0
        assert await serves(listener, provider)


async def test_a_listener_whose_device_is_removed_tells_all_who_wait(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        errors: list[FabricError] = []

        async def wait() -> None:
            with pytest.raises(
                FabricError, match=r"The device was removed from this host\. Close this listener"
            ) as caught:
                await listener.accept_request()
            errors.append(caught.value)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                handle: Any = handle_of(listener)
                handle.event_error(EventError(1, constants.FI_ENODEV, 0, "", b""))
            await wait()
    assert [(each.call, each.errno) for each in errors] == [("fi_listen", constants.FI_ENODEV)] * 3


async def test_a_read_that_fails_is_reported_and_the_listener_continues(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        source = source_of(listener)
        reported: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(source.driver, "report", lambda _, error: reported.append(error))
            patched.setattr(EventQueue, "read", lambda _: -constants.FI_EIO)
            source.touch_events()
            with anyio.fail_after(5):
                while not reported:
                    await anyio.lowlevel.checkpoint()
        assert isinstance(reported[0], FabricError)
        assert (reported[0].call, reported[0].errno) == ("fi_eq_read", constants.FI_EIO)
        assert await serves(listener, provider)
