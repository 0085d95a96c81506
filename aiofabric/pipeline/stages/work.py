"""StageWork: one stage at work in one process: it takes values, calls the function, and gives what came of them."""

from __future__ import annotations

import logging
import pickle
from collections import deque
from contextlib import asynccontextmanager
from inspect import isawaitable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
from anyio import EndOfStream

from ...cq.loops.bursts import Burst
from ...cq.loops.drivers import task_is_cancelled
from .entry import Entry
from .graph import Kind
from .totals import StageError
from .traces import current_trace, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from .graph import Stage
    from .joints import Inlet, Outlet
    from .totals import StageTotals

__all__ = ["StageWork"]

_log = logging.getLogger("aiofabric.pipeline")
_FAILED: Final = object()


class StageWork:
    """``outlets``: for each branch, those of the stages that get its values. ``tasks``: how many of them run."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        inlet: Inlet | None,
        outlets: Sequence[Sequence[Outlet]],
        totals: StageTotals,
        tasks: int,
    ) -> None:
        self._stage = stage
        self._name = name
        self._inlet = inlet
        self._outlets = outlets
        self._totals = totals
        self._tasks = tasks
        self._branches = {key: at for at, key in enumerate(stage.keys)}
        self._taking = anyio.Lock()
        self._last: anyio.Event | None = None  # set when the value that was taken last has given everything
        self._busy = 0  # tasks that handle a value
        self._flushes = False  # when they have
        self._stopped = False
        self._waiting: anyio.CancelScope | None = None  # of a source
        self._burst = Burst()

    async def run(self) -> None:
        """Until the input ends; then the outlets are closed. Raises `StageError`."""
        kind = self._stage.kind
        try:
            if kind == Kind.SOURCE:
                await self._produce()
            elif kind == Kind.BATCH:
                await self._batch()
            elif kind == Kind.WINDOW:
                await self._window()
            else:
                async with anyio.create_task_group() as tasks:
                    for _ in range(self._tasks):
                        tasks.start_soon(self._handle_all)
        except Exception as error:
            first = _first(error)
            if isinstance(first, StageError):
                raise first from first.__cause__
            raise StageError(self._name, _text(first)) from first
        for outlet in {id(each): each for branch in self._outlets for each in branch}.values():
            await outlet.aclose()

    def stop(self) -> None:
        """A source produces no more; what it has produced goes its way."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    # -- sources

    async def _produce(self) -> None:
        async with _values(self._stage.function) as values:
            await self._produce_all(values)

    async def _produce_all(self, values: AsyncIterator[Any]) -> None:
        while not self._stopped:
            begin = perf_counter()
            with anyio.CancelScope() as self._waiting:
                try:
                    value = await anext(values)
                except StopAsyncIteration:
                    return
                except (SystemExit, anyio.get_cancelled_exc_class()) as error:
                    raise _own_error(error) from error
            self._totals.busy += perf_counter() - begin
            if self._waiting.cancelled_caught:
                return
            self._totals.taken += 1
            entry = Entry(value, trace=current_trace())
            await self._give(self._pack(value), [entry])
            entry.release()
            if self._burst.ended():
                await anyio.lowlevel.checkpoint()

    # -- one value at a time

    async def _handle_all(self) -> None:
        """One task. When the input says that no new values come, the next stages are told, too."""
        in_order = self._stage.ordered and self._tasks > 1
        before = after = None
        while True:
            try:
                if in_order:
                    async with self._taking:
                        entry = await self._take()
                        before, self._last = self._last, (after := anyio.Event())
                else:
                    entry = await self._take()
            except EndOfStream:
                return
            if entry is not None:
                self._busy += 1
                await self._handle(entry, before)
                self._busy -= 1
            else:
                self._flushes = True
            if before is not None:
                await before.wait()
            if after is not None:
                after.set()
            if entry is not None:
                entry.release()
            if self._flushes and not self._busy:
                self._flushes = False
                await self._flush()

    async def _take(self) -> Entry | None:
        assert self._inlet is not None
        if self._burst.ended():
            await anyio.lowlevel.checkpoint()
        entry = await self._inlet.take()
        self._totals.taken += entry is not None
        return entry

    async def _take_whole(self) -> Entry | None:
        """The same, for stages that have no choice of what happens to a value that cannot be unpickled."""
        entry = await self._take()
        if entry is not None and entry.error is not None:
            raise entry.error
        return entry

    async def _handle(self, entry: Entry, before: anyio.Event | None) -> None:
        """Call the function, and give what came of it when all values before this one have given theirs."""
        stage, value = self._stage, entry.value
        if stage.kind == Kind.FLAT_MAP and entry.error is None:
            with within(entry.trace):
                await self._handle_many(entry, before)
            return
        result = await self._call(entry)
        if before is not None:
            await before.wait()
        if result is _FAILED or stage.kind == Kind.SINK or (stage.kind == Kind.FILTER and not result):
            await self._made_none(entry)
        elif stage.kind == Kind.MAP:
            await self._give_last(result, entry)
        elif stage.kind == Kind.FILTER:
            await self._give_last(value, entry)
        else:
            try:
                branch = self._branches[result]
            except (KeyError, TypeError):
                error = KeyError(f"no branch has the key {result!r:.100}; the keys are {list(stage.keys)!r:.200}")
                await self._failed(entry, error)
            else:
                await self._give_last(value, entry, branch)

    async def _call(self, entry: Entry) -> Any:
        if entry.error is not None:
            await self._failed(entry, entry.error)
            return _FAILED
        begin = perf_counter()
        try:
            with within(entry.trace):
                result = self._stage.function(entry.value)
                if isawaitable(result):
                    result = await result
        except (Exception, SystemExit, anyio.get_cancelled_exc_class()) as error:
            await self._failed(entry, _own_error(error))
            return _FAILED
        finally:
            self._totals.busy += perf_counter() - begin
        return result

    async def _handle_many(self, entry: Entry, before: anyio.Event | None) -> None:
        try:
            async with _values(self._stage.function, entry.value) as values:
                if before is not None:
                    await before.wait()
                async for value in values:
                    packed = self._pack(value)
                    try:
                        await self._give(packed, [entry])
                    except Exception as error:
                        raise StageError(self._name, _text(error)) from error
                    if self._burst.ended():
                        await anyio.lowlevel.checkpoint()
        except StageError:
            raise
        except (Exception, SystemExit, anyio.get_cancelled_exc_class()) as error:
            await self._failed(entry, _own_error(error))
        await self._made_none(entry)

    async def _failed(self, entry: Entry, error: Exception) -> None:
        """The function has raised: what happens is the program's choice."""
        on_error, value = self._stage.on_error, entry.value
        if on_error == "fail":
            raise StageError(self._name, f"{_text(error)}; the value was {value!r:.200}") from error
        if on_error == "skip":
            self._totals.skipped += 1
            _log.warning("the stage %r skips %.200r: %s", self._name, value, _text(error))
            return
        self._totals.dead_letters += 1
        try:
            result = on_error(value, error)
            if isawaitable(result):
                await result
        except SystemExit as ended:
            raise _own_error(ended) from ended

    # -- several values at a time

    async def _batch(self) -> None:
        stage = self._stage
        entries: list[Entry] = []
        begun = 0.0
        ended = flushes = False
        while not ended:
            left = None if stage.seconds is None or not entries else begun + stage.seconds - monotonic()
            try:
                with anyio.move_on_after(left):
                    entry = await self._take_whole()
                    flushes = entry is None
                    if entry is not None:
                        entries.append(entry)
                        if len(entries) == 1:
                            begun = monotonic()
                        if len(entries) < stage.size:
                            continue
            except EndOfStream:
                ended = True
            if entries:
                await self._give(self._pack([each.value for each in entries]), entries)
                for each in entries:
                    each.release()
                entries = []
            if flushes:
                flushes = False
                await self._flush()

    async def _window(self) -> None:
        """Sliding windows; the last, incomplete one is not given."""
        stage = self._stage
        entries: deque[Entry] = deque()  # of one window; those before the place `finished` are released
        values: deque[Any] = deque()  # of these entries, which have none any more when they are released
        finished = 0
        unused = 0  # values between two windows
        while True:
            try:
                entry = await self._take_whole()
            except EndOfStream:
                for each in list(entries)[finished:]:
                    each.release()
                return
            if entry is None:
                for each in list(entries)[finished:]:
                    each.release()
                finished = len(entries)
                await self._flush()
                continue
            if unused:
                unused -= 1
                entry.release()
                continue
            entries.append(entry)
            values.append(entry.value)
            if len(entries) == stage.size:
                await self._give(self._pack(list(values)), list(entries)[finished:])
                for _ in range(min(stage.step, stage.size)):
                    values.popleft()
                    each = entries.popleft()
                    if finished:
                        finished -= 1
                    else:
                        each.release()
                unused = max(0, stage.step - stage.size)

    # -- giving

    def _pack(self, value: Any, branch: int = 0) -> list[Any]:
        """The value for each outlet. Raises PicklingError before any of them has it."""
        return [outlet.pack(value) for outlet in self._outlets[branch]]

    async def _give(
        self, packed: Sequence[Any], made_of: Sequence[Entry], *, branch: int = 0, last: bool = False
    ) -> None:
        self._totals.given += 1
        for outlet, each in zip(self._outlets[branch], packed, strict=True):
            await outlet.give(each, made_of, last=last)

    async def _give_last(self, value: Any, entry: Entry, branch: int = 0) -> None:
        """Give the only value that is made of an entry."""
        try:
            packed = self._pack(value, branch)
        except pickle.PicklingError as error:
            await self._failed(entry, error)
            await self._made_none(entry)
        else:
            await self._give(packed, [entry], branch=branch, last=True)

    async def _flush(self) -> None:
        for outlet in {id(each): each for branch in self._outlets for each in branch}.values():
            await outlet.flush()

    async def _made_none(self, entry: Entry) -> None:
        for branch in self._outlets:
            for outlet in branch:
                await outlet.made_none(entry)


@asynccontextmanager
async def _values(function: Any, *arguments: Any) -> AsyncIterator[AsyncIterator[Any]]:
    """The values of a source or a `flat_map`: of a generator, an iterable, or a function that returns one."""
    values = function(*arguments) if callable(function) else function
    if isawaitable(values):
        values = await values
    iterator = values.__aiter__() if hasattr(values, "__aiter__") else _one_by_one(iter(values))
    try:
        yield iterator
    finally:
        if hasattr(iterator, "aclose"):
            await iterator.aclose()


async def _one_by_one(values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


def _own_error(error: BaseException) -> Exception:
    """The exception of a stage's function. Raises a cancellation of the run again.

    A function may raise CancelledError of its own, such as by awaiting a future that was cancelled. To its task group
    that would be a task that has ended in order, and its values would be lost. SystemExit would end the event loop at
    once, and leave all other tasks behind.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, SystemExit):
        own = RuntimeError(f"the function called sys.exit({error.code!r}): raise another exception to end the run")
        own.__cause__ = error
        return own
    if task_is_cancelled():
        raise error
    own = RuntimeError(f"the function raised {type(error).__name__}, and nothing has cancelled the run")
    own.__cause__ = error
    return own


def _first(error: Exception) -> Exception:
    """The first error of a group; any other error is itself."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
