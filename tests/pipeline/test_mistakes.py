"""Mistakes of programs that use pipelines: a clear error, before anything is lost."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric.pipeline import Deduplicate, PlaceFolder, Publish, Pull, Push, Subscribe
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio


async def _nothing(_: int) -> None:
    pass


@pytest.mark.parametrize("end", [Push, Pull])
@pytest.mark.parametrize(
    ("places", "options", "error", "text"),
    [
        (None, {}, ValueError, "say where the other end is"),
        ("no port", {}, ValueError, "host:port"),
        (7, {}, TypeError, "a place is"),
        ([7], {}, TypeError, "a place is"),
        ([], {}, ValueError, "no place"),
        ("h:1", {"announce": PlaceFolder("folder")}, ValueError, "needs listen="),
    ],
)
def test_places(end: Any, places: Any, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        end(places, **options)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Push("h:1", delivery="exactly_once"), "at_most_once"),  # type: ignore[arg-type]
        (lambda: Push("h:1", max_unacknowledged=0), "at least 1"),
        (lambda: Pull("h:1", window=0), "at least 1"),
        (lambda: Pull("h:1", producers=0), "at least 1"),
        (lambda: Pull("h:1", window=1 << 40), "window must be 0 to"),
        (lambda: Deduplicate(0), "at least 1"),
        (lambda: PlaceFolder("f", stale_after=0), "more than 0"),
    ],
)
def test_limits(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Pull("h:1", window=1.5), "window must be a number"),  # type: ignore[arg-type]
        (lambda: Push("h:1", max_unacknowledged="many"), "max_unacknowledged"),  # type: ignore[arg-type]
        (lambda: Push(listen="h:1", announce="folder"), "announce must be of type PlaceFolder"),  # type: ignore[arg-type]
        (lambda: Deduplicate(most=None), "most"),  # type: ignore[arg-type]
        (lambda: Push("h:1", acknowledged=5), "acknowledged must be a plain function"),  # type: ignore[arg-type]
        (lambda: Push("h:1", acknowledged=_nothing), "acknowledged must be a plain function of the item's number"),
    ],
)
def test_types(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


async def test_another_thread(provider: str) -> None:
    """The call raises, and changes nothing."""
    async with (
        Pull(listen=(HOST, 0), provider=provider) as pull,
        Push(pull.address, provider=provider) as push,
    ):
        await push.push(b"one")
        item = await pull.pull()

        def of_another_thread() -> None:
            for call in (lambda: push.push(b"two"), lambda: push.push_many([b"two"]), pull.pull, push.drain):
                coroutine: Any = call()
                with pytest.raises(aiofabric.WrongThreadError):
                    coroutine.send(None)
            with pytest.raises(aiofabric.WrongThreadError):
                item.ack()

        await anyio.to_thread.run_sync(of_another_thread)
        item.ack()
        await push.push(b"three")
        with await pull.pull() as item:
            assert bytes(item.data) == b"three"
        await push.drain()


@pytest.mark.parametrize("end", [Push, Pull, Publish, Subscribe])
def test_options_of_connections(end: Any) -> None:
    with pytest.raises(TypeError, match=f"{end.__name__}.*hartbeat"):
        end("h:1", hartbeat=1.0)
    with pytest.raises(ValueError, match="heartbeat"):
        end("h:1", heartbeat=-1.0)
    with pytest.raises(TypeError, match="chooses recv_size itself"):
        end("h:1", recv_size=100)


async def test_before_and_after_the_block(provider: str) -> None:
    push = Push(listen=(HOST, 0), provider=provider)
    with pytest.raises(RuntimeError, match="async with"):
        await push.push(b"x")
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = push.address
    async with push:
        pass
    with pytest.raises(ClosedResourceError):
        await push.push(b"x")
    with pytest.raises(RuntimeError, match="make another one"):
        await push.__aenter__()


async def test_items(provider: str) -> None:
    async with Push(listen=(HOST, 0), provider=provider) as push:
        for wrong in ("text", 7, None, [b"x", "text"]):
            with pytest.raises(TypeError):
                await push.push(wrong)
            with pytest.raises(TypeError):
                await push.push_many([wrong])
        for parts in ([], [b"x"] * 257):
            with pytest.raises(ValueError, match="parts"):
                await push.push(parts)
        with pytest.raises(ValueError, match="1024 bytes"):
            await push.push(b"x", header=bytes(1025))
        with pytest.raises(TypeError, match="header"):
            await push.push(b"x", header="text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="items"):
            await push.push_many(b"abc")
        with pytest.raises(TypeError, match="contiguous"):
            await push.push(memoryview(bytes(100))[::2])
        assert push.statistics().pushed == 0


@pytest.mark.parametrize("wait_in", ["push", "drain", "block", "another task"])
async def test_the_block_raises_the_error_of_acknowledged(provider: str, wait_in: str) -> None:
    """Nothing waits for ever, and no item is sent again."""
    called, closed = [], []

    def acknowledged(number: int) -> None:
        called.append(number)
        if number == 3:
            raise ArithmeticError("of the program")

    async def wait(push: Push) -> None:
        while wait_in != "drain":
            await push.push(b"more")
        await push.drain()

    async def wait_in_a_task(push: Push) -> None:
        with pytest.raises(ClosedResourceError):
            await wait(push)
        closed.append(True)

    async def push_ten(tasks: Any, address: Any) -> None:
        async with Push(address, provider=provider, acknowledged=acknowledged, max_unacknowledged=10) as push:
            for _ in range(10):
                await push.push(b"x")
            if wait_in == "another task":
                tasks.start_soon(wait_in_a_task, push)
                await anyio.sleep_forever()
            elif wait_in != "block":
                await wait(push)

    async with Pull(listen=(HOST, 0), provider=provider, producers=2) as pull, anyio.create_task_group() as tasks:

        async def take_all() -> None:
            async for item in pull:
                assert not item.redelivered

        tasks.start_soon(take_all)
        with anyio.fail_after(10), pytest.raises(ArithmeticError, match="of the program"):
            await push_ten(tasks, pull.address)
        await until(lambda: bool(closed) == (wait_in == "another task"))
        assert called == [0, 1, 2, 3]
        tasks.cancel_scope.cancel()


async def test_an_unknown_provider_is_an_error_at_once() -> None:
    with pytest.raises(aiofabric.NoProviderError):
        async with Push("127.0.0.1:9", provider="nosuch") as push:
            await push.push(b"x")


async def test_two_ends_of_the_same_role_are_told(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="aiofabric")
    async with Push(listen=(HOST, 0), provider=provider) as one, anyio.create_task_group() as tasks:

        async def other() -> None:
            async with Push(one.address, provider=provider) as push:
                await push.push(b"x")

        tasks.start_soon(other)
        await until(lambda: "the peer must be a PULL" in caplog.text)
        tasks.cancel_scope.cancel()
