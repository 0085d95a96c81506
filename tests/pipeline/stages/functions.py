"""Functions of stages, at the top of a module: worker processes import them."""

from __future__ import annotations

import os
import signal
import sys
from time import sleep
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import psutil

from aiofabric.pipeline import Pipeline
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.fixtures.children import Parent

COUNT = 300


async def numbers() -> AsyncIterator[int]:
    for number in range(COUNT):
        yield number


async def without_end() -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1
        await anyio.lowlevel.checkpoint()


def add_one(number: int) -> int:
    return number + 1


async def uneven(number: int) -> int:
    """Some take longer than those behind them."""
    await anyio.sleep(0.002 if number % 5 == 0 else 0)
    return number


def is_even(number: int) -> bool:
    return number % 2 == 0


def three_times(number: int) -> Iterator[int]:
    yield from (number, number, number)


async def fail_at_seven(number: int) -> int:
    if number == 7:
        raise ZeroDivisionError("seven")
    return number


async def waits_for_cancelled(number: int) -> int:
    """Awaits something of its own that was cancelled."""
    if number == 3:
        raise anyio.get_cancelled_exc_class()()
    return number


def late(number: int) -> int:
    sleep(0.01)
    return number


def slow_or_failing(number: int) -> int:
    """The first value takes long, and the second one fails."""
    if number == 0:
        sleep(60)
    raise ZeroDivisionError(number)


def exits(*_: object) -> None:
    sys.exit(3)


async def exits_as_source() -> AsyncIterator[int]:
    yield 1
    sys.exit(3)


class CannotBeLoaded:
    """Its pickle can be made, and raises when it is loaded."""

    def __reduce__(self) -> Any:
        return fails_to_load, ()


def fails_to_load() -> None:
    raise LookupError("no such model here")


def odd_ones_cannot_be_sent(number: int) -> Any:
    return (lambda: number) if number % 2 else number


def odd_ones_cannot_be_sent_after_one(number: int) -> Iterator[Any]:
    yield number
    yield odd_ones_cannot_be_sent(number)


def odd_ones_cannot_be_loaded(number: int) -> Any:
    return CannotBeLoaded() if number % 2 else number


class AppendLetter:
    """A function for dead letters that appends what it got to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, value: Any, error: Exception) -> None:
        with self.path.open("a") as file:
            file.write(f"{type(value).__name__} {type(error).__name__}\n")


def letter(number: int) -> str:
    return "ab"[number % 2]


def read_only(array: Any) -> Any:
    assert not array.flags.writeable
    return array


class Append:
    """Appends each value to a file, as a line: what worker processes did, whichever of them died later."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, value: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{value}\n")


class WithoutEnd:
    """A source that leaves a mark when it is ended."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    async def __call__(self) -> AsyncIterator[int]:
        try:
            async for number in without_end():
                yield number
        finally:
            self.mark.touch()


class WriteParquet:
    """A sink that writes batches of numbers to a Parquet file, which it opens in its own process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.writer: Any = None

    def __call__(self, numbers: list[int]) -> None:
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table({"number": numbers})
        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)


class WithoutCopy(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle this")


def fail_without_copy(number: int) -> int:
    raise WithoutCopy("no copy")


def with_process_id(value: Any) -> tuple[Any, int]:
    return value, os.getpid()


class LateOnce:
    """Adds one. The second process that gets it begins only when the file ``all`` is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.folder = state["folder"]
        try:
            (self.folder / "first").touch(exist_ok=False)
        except FileExistsError:
            while not (self.folder / "all").exists():
                sleep(0.01)

    def __call__(self, number: int) -> int:
        return number + 1


class DieOnce:
    """Kills its process at some numbers, each only once."""

    def __init__(self, folder: Path, *numbers: int) -> None:
        self.folder = folder
        self.numbers = numbers

    async def __call__(self, number: int) -> int:
        if number in self.numbers:
            mark = self.folder / f"died-{number}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return number


class TerminateOnce(DieOnce):
    """Gets SIGTERM at some numbers, and would wait for long then."""

    async def __call__(self, number: int) -> int:
        mark = self.folder / f"terminated-{number}"
        if number in self.numbers and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGTERM)
            await anyio.sleep(600)
        return number


class AppendAndDieOnce(DieOnce):
    async def __call__(self, number: int) -> int:
        Append(self.folder / "found")(await super().__call__(number))
        return number


class DieOnceAndAtTheNextStart(DieOnce):
    """The process that takes the place of the dead one is killed while it gets its function."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        mark = self.folder / "died again"
        if list(self.folder.glob("died-*")) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class DieAtTheFirstStart(DieOnce):
    """The first process is killed while it gets its function."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        mark = self.folder / "died at first"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class AlwaysDie(DieOnce):
    async def __call__(self, number: int) -> int:
        if number in self.numbers:
            os._exit(3)
        return number


class DieOnceAndAt200(DieOnce):
    async def __call__(self, number: int) -> int:
        if number == 200:
            os._exit(3)
        return await super().__call__(number)


async def to_dead_letters(value: Any, error: Exception) -> None:
    raise RuntimeError(f"no room for {value} ({error})")


async def dying_source() -> AsyncIterator[int]:
    yield 1
    os._exit(3)


async def run_without_end(parent: Parent) -> None:
    """Tell the process ids of two workers."""
    async with Pipeline(without_end).map(add_one, workers=2, process=True).start() as run:
        await until(lambda: run.totals().stages["add_one"].taken > 0)
        children = psutil.Process().children()
        parent.tell([each.pid for each in children if "resource_tracker" not in " ".join(each.cmdline())])
        await anyio.sleep_forever()
