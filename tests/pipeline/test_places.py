"""How the ends of a pipeline find each other."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from aiofabric.pipeline import PlaceFolder, Pull, Push
from tests.fixtures.providers import CONNECTED, HOST
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from aiofabric.pipeline.places import Place

pytestmark = pytest.mark.anyio

PROVIDER = CONNECTED[0]


def files_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def exchange(push: Push, *pulls: Pull) -> None:
    """Every consumer is connected, and gets items."""
    await until(lambda: len(push.statistics().consumers) == len(pulls))
    with anyio.fail_after(20):
        await push.push_many([b"x"] * len(pulls))
        await push.push(b"y")
        found = 0
        while found < len(pulls) + 1:
            for pull in pulls:
                with anyio.move_on_after(0.01):
                    with await pull.pull():
                        found += 1


async def test_a_list_of_places() -> None:
    async with (
        Pull(listen=(HOST, 0), provider=PROVIDER) as one,
        Pull(listen=(HOST, 0), provider=PROVIDER) as two,
    ):
        places: list[Place] = [one.address, f"{HOST}:{two.address.port}"]
        async with Push(places, provider=PROVIDER) as push:
            await exchange(push, one, two)


@pytest.mark.parametrize(
    ("give", "text"),
    [
        (lambda: ["127.0.0.1:1"], "must be async"),
        (lambda: checkpoint(), "must return a list"),
        (lambda: one_text(), "must return a list"),
    ],
    ids=["plain", "nothing", "text"],
)
async def test_a_function_that_gives_no_places_is_named(give: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text), anyio.fail_after(10):
        async with Push(give, provider=PROVIDER) as push:
            await push.push(b"x")


async def one_text() -> str:
    return "127.0.0.1:1"


async def test_announcements_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "made by the first"
    async with Push(PlaceFolder(folder), provider=PROVIDER) as push:
        async with (
            Pull(listen=(HOST, 0), announce=PlaceFolder(folder), provider=PROVIDER) as one,
            Pull(listen=(HOST, 0), announce=PlaceFolder(folder), provider=PROVIDER) as two,
        ):
            await exchange(push, one, two)
            assert len(files_of(folder)) == 2
        assert files_of(folder) == []


async def test_a_stale_announcement_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "stale.json"
    path.write_text(json.dumps({"host": HOST, "port": 9, "address": "", "pid": 1}))
    (tmp_path / "other.json").write_text("not an announcement")
    folder = PlaceFolder(tmp_path, stale_after=0.05)
    assert await folder.find() == [(HOST, 9)]
    with anyio.fail_after(10):
        while await folder.find():  # noqa: ASYNC110  # time passes, and nothing tells of it
            await anyio.sleep(0.01)
    os.utime(path)
    assert await folder.find() == [(HOST, 9)]
    assert path.exists()


async def test_an_announcement_stays_fresh(tmp_path: Path) -> None:
    reader = PlaceFolder(tmp_path, stale_after=0.5)
    async with Pull(listen=(HOST, 0), announce=PlaceFolder(tmp_path, stale_after=0.3), provider=PROVIDER):
        (path,) = files_of(tmp_path)
        first = path.stat().st_mtime_ns
        await until(lambda: path.stat().st_mtime_ns != first)
        assert len(await reader.find()) == 1


async def test_a_function_that_finds_places() -> None:
    found: list[Place] = []
    asked = 0

    async def find() -> Sequence[Place]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("not yet")
        return found

    async with Push(find, provider=PROVIDER) as push, Pull(listen=(HOST, 0), provider=PROVIDER) as pull:
        found.append(pull.address)
        await exchange(push, pull)


async def test_every_address_of_a_name() -> None:
    async with (
        Pull(listen=(HOST, 0), provider="tcp") as pull,
        Push(f"dns:///{HOST}:{pull.address.port}", provider="tcp") as push,
    ):
        await exchange(push, pull)


@pytest.mark.filterwarnings("error")
async def test_an_iterator_that_gives_no_place_is_closed_and_its_error_is_told() -> None:
    closed = False

    async def places() -> AsyncIterator[Sequence[Place]]:
        nonlocal closed
        try:
            yield ["no place"]
        finally:
            closed = True

    async def push() -> None:
        async with Push(places(), provider=PROVIDER):
            with anyio.fail_after(20):
                await anyio.sleep_forever()

    with pytest.raises(ValueError, match="no place"):
        await push()
    assert closed
