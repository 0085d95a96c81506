"""Hazard: Ctrl-C in an ``async with`` block disappears, because the close at its end is cancelled.

On trio, Ctrl-C is raised in the task that runs. If the peers end at the same time, another task fails and cancels the
first one. The cancellation of its close replaced KeyboardInterrupt, and then ended in the task group.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from aiofabric import rpc
from aiofabric.streams import connect_messages, connect_stream, listen_messages, listen_stream, open_datagrams
from tests.fixtures.providers import connected_pair

pytestmark = pytest.mark.anyio

Opened = AbstractAsyncContextManager[Any]


@asynccontextmanager
async def endpoint() -> AsyncIterator[Any]:
    """An endpoint whose peer does not end: a close in order waits."""
    async with connected_pair("tcp") as (one, _):
        yield one


async def serve(accepted: Any) -> None:
    async with accepted:
        await anyio.sleep_forever()


def stream(listen: Any, connect: Any) -> Callable[[], Opened]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with listen("127.0.0.1", provider="tcp") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield await connect("127.0.0.1", listener.address.port, provider="tcp")
            tasks.cancel_scope.cancel()

    return opened


@asynccontextmanager
async def datagrams() -> AsyncIterator[Any]:
    yield await open_datagrams("127.0.0.1")


@asynccontextmanager
async def channel() -> AsyncIterator[Any]:
    yield rpc.Channel("127.0.0.1:1")


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(
    "opened",
    [endpoint, stream(listen_stream, connect_stream), stream(listen_messages, connect_messages), datagrams, channel],
    ids=["endpoint", "stream", "message stream", "datagrams", "channel"],
)
async def test_an_interrupted_block_raises_the_interrupt_although_its_close_is_cancelled(
    opened: Callable[[], Opened], ends: type[BaseException]
) -> None:
    async with opened() as resource:
        with pytest.raises(ends), anyio.CancelScope() as scope:  # noqa: PT012
            async with resource:
                scope.cancel()
                raise ends


async def test_an_interrupt_in_a_group_of_exceptions_stays() -> None:
    async with endpoint() as one:
        with pytest.raises(BaseExceptionGroup) as caught, anyio.CancelScope() as scope:  # noqa: PT012
            async with one:
                scope.cancel()
                raise BaseExceptionGroup("of a task group", [ValueError(), KeyboardInterrupt()])
        assert caught.group_contains(KeyboardInterrupt)


async def test_a_close_that_fails_replaces_other_errors() -> None:
    async with endpoint() as one:
        with anyio.CancelScope() as scope:
            async with one:
                scope.cancel()
                raise ValueError
        assert scope.cancelled_caught
