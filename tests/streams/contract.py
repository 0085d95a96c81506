"""trio's own contract checks for streams, adapted to anyio's names when this module is imported.

``trio.testing.check_half_closeable_stream`` and its relatives check everything that trio's stream interfaces promise:
checkpoints, busy and closed streams, cancelled closes, broken peers. Their module is loaded a second time, and there
its names of exceptions, nurseries and scopes are anyio's, so that the same code runs on every loop. `TrioShape` covers
the differences between the two interfaces: the names of methods, and the report of an end.
"""

# Privates: a guard is held as another task would hold it, which waits at an await.

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import sniffio
import trio.testing
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from aiofabric.streams import FabricStream

StreamMaker = Callable[[], Awaitable[tuple[Any, Any]]]


class TrioShape:
    """A FabricStream under the names of trio's HalfCloseableStream.

    On asyncio a send or receive that need not wait is a checkpoint only once in a while (test_pace.py). The checks
    want one each time: it is taken here.
    """

    def __init__(self, stream: FabricStream) -> None:
        self._stream = stream
        self.wait_send_all_might_not_block = stream.wait_send_might_not_block
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose

    async def send_all(self, data: bytes) -> None:
        with self._stream._sending:  # a call that waits for its checkpoint is busy already
            await _owed()
        await self._stream.send(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        with self._stream._receiving:
            await _owed()
        try:
            return await (self._stream.receive() if max_bytes is None else self._stream.receive(max_bytes))
        except anyio.EndOfStream:
            return b""


async def _owed() -> None:
    if sniffio.current_async_library() != "trio":
        await checkpoint()


class _Core:
    """The names that the checks import from ``trio._core``."""

    BrokenResourceError = anyio.BrokenResourceError
    BusyResourceError = anyio.BusyResourceError
    ClosedResourceError = anyio.ClosedResourceError
    CancelScope = anyio.CancelScope
    open_nursery = staticmethod(anyio.create_task_group)
    wait_all_tasks_blocked = staticmethod(anyio.wait_all_tasks_blocked)

    @property
    def Cancelled(self) -> type[BaseException]:
        return anyio.get_cancelled_exc_class()


@contextmanager
def _assert_checkpoints() -> Iterator[None]:
    """trio's where trio runs; elsewhere: the block let the loop iterate at least once."""
    if sniffio.current_async_library() == "trio":
        with trio.testing.assert_checkpoints():
            yield
        return
    went_round = asyncio.Event()
    handle = asyncio.get_running_loop().call_soon(went_round.set)
    try:
        yield
        assert went_round.is_set(), "the block did not yield"
    finally:
        handle.cancel()


def _load() -> Any:
    spec = importlib.util.find_spec("trio.testing._check_streams")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kinds = dict.fromkeys(("SendStream", "ReceiveStream", "Stream", "HalfCloseableStream"), TrioShape)
    vars(module).update(
        kinds,
        _core=_Core(),
        CancelScope=anyio.CancelScope,
        aclose_forcefully=anyio.aclose_forcefully,
        assert_checkpoints=_assert_checkpoints,
    )
    return SimpleNamespace(**vars(module))


_checks = _load()
check_one_way_stream: Callable[[StreamMaker, StreamMaker | None], Awaitable[None]] = _checks.check_one_way_stream
check_two_way_stream: Callable[[StreamMaker, StreamMaker | None], Awaitable[None]] = _checks.check_two_way_stream
check_half_closeable_stream: Callable[[StreamMaker, StreamMaker | None], Awaitable[None]] = (
    _checks.check_half_closeable_stream
)
