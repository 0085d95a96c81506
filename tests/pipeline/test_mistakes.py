"""Mistakes of programs that use pipelines: a clear error, before anything is lost."""

# Doubles: no provider refuses to register memory on request.

from __future__ import annotations

import errno
import logging
from typing import Any

import anyio
import anyio.to_thread
import numpy
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric.pipeline import Deduplicate, PlaceFolder, Publish, Pull, Push, Subscribe
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import HOST, OWN_HOST
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
        ("127.0.0.1:abc", {}, ValueError, "the port must be a number from 0 to 65535, or a service .* not 'abc'"),
        (("127.0.0.1", "abc"), {}, ValueError, "the port must be"),
        (("127.0.0.1", 70000), {}, ValueError, "a port is 0 to 65535"),
        ("dns:///localhost:abc", {}, ValueError, "the port must be"),
        ("tcp://127.0.0.1:7301", {}, ValueError, "a place is 'host:port', .host, port., .* not 'tcp://127.0.0.1:7301'"),
        (("a", 1, 2), {}, TypeError, r"a place is 'host:port', \(host, port\) or an Address, not \('a', 1, 2\)"),
        (("a", 1.5), {}, TypeError, "a place is"),
        ("h:1", {"announce": PlaceFolder("folder")}, ValueError, "needs listen="),
    ],
)
def test_places(end: Any, places: Any, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        end(places, **options)


@pytest.mark.parametrize("place", ["127.0.0.1:http", ("127.0.0.1", "http"), ("127.0.0.1", "80"), "127.0.0.1:80"])
def test_a_port_may_have_a_name(place: Any) -> None:
    Push(place)
    Pull([place])


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
        (lambda: PlaceFolder("f", stale_after="30"), "stale_after must be of type int"),  # type: ignore[arg-type]
        (lambda: Push("h:1", max_unacknowledged="many"), "max_unacknowledged"),  # type: ignore[arg-type]
        (lambda: Push(listen="h:1", announce="folder"), "announce must be of type PlaceFolder"),  # type: ignore[arg-type]
        (lambda: Subscribe("h:1", b"x"), "topics must be a str, or several, .* not b'x'"),  # type: ignore[arg-type]
        (lambda: Subscribe("h:1", 5), "topics must be a str"),  # type: ignore[arg-type]
        (lambda: Deduplicate().seen(b"x"), "an item of Pull.pull\\(\\) is required, not bytes"),  # type: ignore[arg-type]
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


FORKED = """
    import os, sys
    import anyio, anyio.lowlevel
    from aiofabric import ForkedError
    from aiofabric.pipeline import Publish, Pull, Push, Subscribe

    def refused(call):
        try:
            result = call()
            if hasattr(result, "send"):
                result.send(None)
        except ForkedError:
            return True
        return False

    async def main(provider):
        options = {"listen": ("127.0.0.1", 0), "provider": provider}
        async with (
            Pull(**options) as pull, Push(pull.address, provider=provider) as push,
            Subscribe(**options) as subscribe, Publish(subscribe.address, provider=provider) as publish,
        ):
            await publish.wait_for_subscribers()
            for size in (1, 100_000, 1, 1):
                await push.push(bytes(size))
                await publish.publish("t", bytes(size))
            items = [await pull.pull(), await pull.pull()]
            many = await pull.pull_many(1)
            publications = [await subscribe.pull(), await subscribe.pull()]
            child = os.fork()
            if not child:
                calls = [
                    lambda: push.push(b"x"), lambda: push.push(bytes(300_000)), lambda: push.push_many([b"x"]),
                    push.drain, push.announce_end, lambda: push.pool.take(1), pull.pull, pull.pull_many,
                    pull.pull_or_none, items[0].ack, items[1].ack, many.ack, lambda: publish.publish("t", b"x"),
                    publish.drain, subscribe.pull, publications[1].ack, lambda: subscribe.add_topics("u"),
                ]
                accepted = [at for at, call in enumerate(calls) if not refused(call)]
                if accepted:
                    print("not refused:", accepted, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            for each in (*items, many, publications[1]):
                each.ack()
            (await pull.pull()).ack()
            await push.drain()
            await push.push(b"last")
            (await pull.pull()).ack()
            for _ in range(2):
                (await subscribe.pull()).ack()
            await push.drain()
            print("parent", push.statistics().acknowledged, push.statistics().redelivered, flush=True)

    backend, uvloop, provider = sys.argv[1:]
    anyio.run(main, provider, backend=backend, backend_options={"use_uvloop": True} if uvloop == "True" else {})
"""


def test_a_forked_child_is_refused_and_leaves_the_parent_alone(provider: str, anyio_backend: Any) -> None:
    backend, options = anyio_backend
    ended = run_in_child(FORKED, backend, str(options.get("use_uvloop", False)), provider)
    assert (ended.status, ended.out) == (0, "parent 5 0\n"), ended.err


ENDED_LOOP = """
    import asyncio, sys
    import anyio
    from aiofabric import WrongLoopError
    from aiofabric.pipeline import Publish, Pull, Push, Subscribe

    ends = []

    async def first(provider):
        options = {"listen": ("127.0.0.1", 0), "provider": provider}
        pull = await Pull(**options).__aenter__()
        push = await Push(pull.address, provider=provider).__aenter__()
        subscribe = await Subscribe(**options).__aenter__()
        publish = await Publish(subscribe.address, provider=provider).__aenter__()
        await publish.wait_for_subscribers()
        for _ in range(3):
            await push.push(b"x")
            await publish.publish("t", b"x")
        ends.extend([push, pull, publish, subscribe, await pull.pull(), await subscribe.pull()])

    async def second():
        push, pull, publish, subscribe, item, _ = ends
        calls = [
            lambda: push.push(b"y"), lambda: push.push_many([b"y"]), push.drain, pull.pull, pull.pull_many,
            lambda: publish.publish("t", b"y"), subscribe.pull, publish.drain,
        ]
        for at, call in enumerate(calls):
            try:
                with anyio.fail_after(5):
                    await call()
            except WrongLoopError:
                continue
            print("not refused:", at, flush=True)
        try:
            item.ack()
        except WrongLoopError:
            print(push.statistics().pushed, publish.statistics().published, flush=True)

    closed, provider = sys.argv[1:]
    loop = asyncio.new_event_loop()
    loop.run_until_complete(first(provider))
    if closed == "in order":
        loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    asyncio.run(second())
"""


@pytest.mark.parametrize("closed", ["in order", "at once"])
def test_an_end_is_refused_after_its_event_loop_has_ended(provider: str, closed: str) -> None:
    ended = run_in_child(ENDED_LOOP, closed, provider)
    assert (ended.status, ended.out) == (0, "3 3\n"), ended.err


@pytest.mark.parametrize("end", [Push, Pull, Publish, Subscribe])
def test_options_of_connections(end: Any) -> None:
    with pytest.raises(TypeError, match=f"{end.__name__}.*hartbeat"):
        end("h:1", hartbeat=1.0)
    with pytest.raises(ValueError, match="heartbeat"):
        end("h:1", heartbeat=-1.0)
    for options, text in (
        ({"recv_size": 100}, f"{end.__name__}\\(\\) chooses recv_size itself; its options are "),
        ({"colour": 0}, f"{end.__name__}\\(\\) got an unexpected option 'colour'. Its options are "),
    ):
        with pytest.raises(TypeError, match=text) as caught:
            end("h:1", **options)
        listed = str(caught.value).partition("options are ")[2].split(", ")
        assert {"heartbeat", "listen", "announce", "provider"} <= set(listed)
        assert not {"recv_size", "self", "places", "options"} & set(listed)
    with pytest.raises(TypeError, match=r"Did you mean listen\?"):
        end(lisen="h:1")


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
        with pytest.raises(TypeError, match="header"):
            await push.push(b"x", header=None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="items"):
            await push.push_many(b"abc")
        with pytest.raises(TypeError, match=r"data must be contiguous.*numpy.ascontiguousarray"):
            await push.push(memoryview(bytes(100))[::2])
        with pytest.raises(TypeError, match=r"data must be .* not str: push text.encode\(\)"):
            await push.push("text")
        with pytest.raises(TypeError, match=r"data must be bytes-like .*, not ndarray"):
            await push.push(numpy.array(["2026-01-01"], "M8[s]"))
        assert push.statistics().pushed == 0


async def test_most_is_a_number(provider: str) -> None:
    async with Pull(listen=(HOST, 0), provider=provider) as pull:
        with pytest.raises(TypeError, match="most must be a number"):
            await pull.pull_many("x")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="most must be at least 1"):
            await pull.pull_many(0)


@pytest.mark.parametrize("end", [Push, Publish])
async def test_the_block_raises_the_error_of_memory_that_cannot_be_registered(
    provider: str, end: type[Push | Publish], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be sent, and fail, with each new connection."""

    def refuses(*_: object, **__: object) -> None:
        raise aiofabric.FabricError(errno.ENOMEM, "fi_mr_regattr")

    async def send(address: Any) -> None:
        async with end(address, provider=provider) as sender:
            if isinstance(sender, Push):
                await sender.push(bytes(3_000_000))
            else:
                await sender.wait_for_subscribers()
                await sender.publish("t", bytes(3_000_000))
            await anyio.sleep_forever()

    other: Pull | Subscribe = (
        Pull(listen=(HOST, 0), provider=provider)
        if end is Push
        else Subscribe(topics="t", listen=(HOST, 0), provider=provider)
    )
    async with other:
        monkeypatch.setattr(aiofabric.Domain, "register", refuses)
        what_to_do = pytest.raises(aiofabric.FabricError, match=r"3000000 bytes .*ulimit -l.* 196608 bytes")
        with anyio.fail_after(10), what_to_do:
            await send(other.address)
        monkeypatch.undo()


async def test_memory_that_cannot_be_registered_for_one_subscriber_is_dropped_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The subscribers are connected at two addresses, so the publisher has two domains."""
    refusing: list[aiofabric.Domain] = []
    register = aiofabric.Domain.register

    def refuses(domain: aiofabric.Domain, *arguments: Any, **options: Any) -> Any:
        if domain is (refusing or [domain])[0]:
            refusing[:] = [domain]
            raise aiofabric.FabricError(errno.ENOMEM, "fi_mr_regattr")
        return register(domain, *arguments, **options)

    large = bytes(300_000)
    async with (
        Subscribe(topics="t", listen=(HOST, 0), provider="tcp", when_slow="hold") as one,
        Publish(one.address, listen=(OWN_HOST, 0), provider="tcp") as publish,
        Subscribe(publish.address, "t", provider="tcp", when_slow="hold") as other,
    ):
        await publish.wait_for_subscribers(2)
        monkeypatch.setattr(aiofabric.Domain, "register", refuses)
        with anyio.fail_after(10):
            for data in (large, b"small", large, b"last"):
                await publish.publish("t", data)
            taken: dict[str, list[int]] = {}
            for name, each in (("one", one), ("other", other)):
                taken[name] = []
                while taken[name][-1:] != [3]:
                    with await each.pull() as publication:
                        taken[name].append(publication.number)
        monkeypatch.undo()
        assert sorted(taken.values(), key=len) == [[1, 3], [0, 1, 2, 3]]
        assert publish.statistics().dropped == 2
        await until(lambda: one.statistics().dropped + other.statistics().dropped == 2)
    (warning,) = (each for each in caplog.records if each.levelname == "WARNING")  # for two publications
    assert "ulimit -l" in warning.message


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
        await until(lambda: "a Push connects with a Pull" in caplog.text)
        tasks.cancel_scope.cancel()
