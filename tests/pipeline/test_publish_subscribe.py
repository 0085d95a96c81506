"""Publish and subscribe: each subscriber gets the publications of its topics, and a slow one what its policy says."""

# Doubles: a limit of ten seconds is shorter.

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from anyio import ClosedResourceError, EndOfStream

from aiofabric.pipeline import Publication, Publish, Subscribe, SubscriberTooSlowError
from aiofabric.testing import live_resources
from tests.fixtures.providers import HOST
from tests.fixtures.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fixtures.children import Child, Parent

pytestmark = pytest.mark.anyio

LARGE = 1 << 20


@asynccontextmanager
async def joined(
    provider: str, topics: Any = "", publish: dict[str, Any] | None = None, **subscribe: Any
) -> AsyncIterator[tuple[Publish, Subscribe]]:
    """A publisher that knows the topics of its subscriber."""
    async with (
        Publish(listen=(HOST, 0), provider=provider, **publish or {}) as publisher,
        Subscribe(publisher.address, topics, provider=provider, **subscribe) as subscriber,
    ):
        await publisher.wait_for_subscribers()
        yield publisher, subscriber


async def taken(subscriber: Subscribe, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        with await subscriber.pull() as publication:
            found.append(bytes(publication.data))
    return found


async def test_a_subscriber_gets_the_topics_with_its_prefixes_in_order(provider: str) -> None:
    async with joined(provider, ["weather.", "news"]) as (publish, subscribe):
        for number, topic in enumerate(["weather.berlin", "sport", "news", "weather", "weather.rome"]):
            await publish.publish(topic, str(number).encode())
        found = []
        for _ in range(3):
            with await subscribe.pull() as publication:
                found.append((publication.topic, bytes(publication.data), publication.number))
        assert found == [("weather.berlin", b"0", 0), ("news", b"2", 2), ("weather.rome", b"4", 4)]


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 60000, 65536, 3 << 16, (3 << 16) + 1, LARGE])
async def test_a_publication_of_any_size_arrives_with_topic_key_and_header(provider: str, size: int) -> None:
    data = bytearray(bytes(range(256)) * (size // 256 + 1))[:size]
    async with joined(provider) as (publish, subscribe):
        await publish.publish("t" * 1024, data, key="ключ", header=b"h" * 1024)
        data[:] = bytes(size)  # it was copied
        with await subscribe.pull() as publication:
            assert isinstance(publication, Publication)
            assert bytes(publication.data) == (bytes(range(256)) * (size // 256 + 1))[:size]
            assert (publication.topic, publication.key, publication.header) == ("t" * 1024, "ключ", b"h" * 1024)
            assert (publication.producer, publication.redelivered) == (publish.id, False)


@pytest.mark.parametrize("sizes", [(0,) * 256, (256,) * 256, (10, LARGE, 5)])
async def test_the_parts_of_a_publication_stay_apart(provider: str, sizes: tuple[int, ...]) -> None:
    parts = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    async with joined(provider) as (publish, subscribe):
        await publish.publish("parts", parts)
        with await subscribe.pull() as publication:
            assert [bytes(part) for part in publication.parts] == parts


async def test_topics_keys_and_headers_use_the_window_only_until_the_publication_is_taken(provider: str) -> None:
    async with joined(provider, publish={"when_slow": "hold"}, window_bytes=1 << 15) as (publish, subscribe):
        for number in range(100):
            for part in (b"first", b"second", b"third"):
                await publish.publish("t" * 1000, part, key="k" * 100, header=b"%d" % number * 100)
            assert await taken(subscribe, 3) == [b"first", b"second", b"third"]
        assert subscribe.statistics().dropped == 0


async def test_many_subscribers_get_the_same_and_the_stream_ends(provider: str) -> None:
    sent = [str(number).encode() for number in range(500)] + [bytes([7]) * LARGE]
    found: list[list[bytes]] = []

    async def listen_to(address: Any) -> None:
        async with Subscribe(address, provider=provider) as subscribe:
            found.append([bytes(publication.data) async for publication in subscribe])
            with pytest.raises(EndOfStream):
                await subscribe.pull()

    async with anyio.create_task_group() as tasks, Publish(listen=(HOST, 0), provider=provider) as publish:
        for _ in range(4):
            tasks.start_soon(listen_to, publish.address)
        await publish.wait_for_subscribers(4)
        for item in sent:
            await publish.publish("all", item)
    assert found == [sent] * 4


async def test_topics_may_change(provider: str) -> None:
    async with joined(provider, []) as (publish, subscribe):
        await publish.publish("early", b"")
        subscribe.add_topics("a", "b")
        await until(lambda: publish.statistics().subscribers[0].topics == ("a", "b"))
        await publish.publish("a", b"1")
        assert await taken(subscribe, 1) == [b"1"]
        subscribe.remove_topics("a")
        await until(lambda: publish.statistics().subscribers[0].topics == ("b",))
        await publish.publish("a", b"2")
        await publish.publish("b", b"3")
        assert await taken(subscribe, 1) == [b"3"]
        with pytest.raises(ValueError, match="does not have the topic 'c'"):
            subscribe.remove_topics("c")


async def test_a_late_subscriber_gets_the_last_value_of_each_key(provider: str) -> None:
    async with Publish(listen=(HOST, 0), provider=provider, last_values=3) as publish:
        for number in range(3):
            for key in "xyz":
                await publish.publish("t", f"{key}{number}".encode(), key=key)
        await publish.publish("u", b"of another topic")  # the oldest of the four, x, leaves
        async with Subscribe(publish.address, "t", provider=provider, last_values=True) as subscribe:
            assert await taken(subscribe, 2) == [b"y2", b"z2"]
            subscribe.add_topics("u")
            assert await taken(subscribe, 1) == [b"of another topic"]
        async with Subscribe(publish.address, "t", provider=provider) as subscribe:
            await until(lambda: any(each.id == subscribe.id for each in publish.statistics().subscribers))
            await publish.wait_for_subscribers()
            await publish.publish("t", b"new")
            assert await taken(subscribe, 1) == [b"new"]


# -- slow subscribers


async def test_a_slow_subscriber_holds_the_publisher(provider: str) -> None:
    async with joined(provider, when_slow="hold", window=4, publish={"queue": 4}) as (publish, subscribe):
        done: list[int] = []

        async def publish_all() -> None:
            for number in range(20):
                await publish.publish("t", str(number).encode())
                done.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_all)
            await until(lambda: publish.statistics().waiting == 1)
            assert done == list(range(8))  # four on their way, four in the queue
            assert await taken(subscribe, 20) == [str(number).encode() for number in range(20)]
        assert (publish.statistics().dropped, subscribe.statistics().dropped) == (0, 0)


@pytest.mark.parametrize("limit", [{"max_unacknowledged": 4}, {"max_unacknowledged_bytes": 4000}])
async def test_a_subscriber_cannot_make_the_publisher_keep_more_than_it_says(
    provider: str, limit: dict[str, int]
) -> None:
    publish = {**limit, "queue": 3, "when_slow": "drop_oldest"}
    async with joined(provider, publish=publish, window=1 << 30, window_bytes=1 << 40) as (publisher, subscriber):
        for number in range(20):
            await publisher.publish("t", bytes([number]) * 900)
        assert publisher.statistics().dropped == 20 - 4 - 3
        assert [each[0] for each in await taken(subscriber, 7)] == [0, 1, 2, 3, 17, 18, 19]


async def test_the_oldest_are_dropped_for_a_slow_subscriber_and_counted(provider: str) -> None:
    async with joined(provider, when_slow="drop_oldest", window=4, publish={"queue": 4}) as (publish, subscribe):
        for number in range(20):
            await publish.publish("t", str(number).encode())
        assert publish.statistics().dropped == 12
        assert await taken(subscribe, 8) == [str(number).encode() for number in (0, 1, 2, 3, 16, 17, 18, 19)]
        await publish.publish("t", b"next")
        assert await taken(subscribe, 1) == [b"next"]
        assert subscribe.statistics().dropped == 12


async def test_a_slow_subscriber_keeps_the_last_of_each_key(provider: str) -> None:
    async with joined(provider, when_slow="keep_last", window=1) as (publish, subscribe):
        for number in range(10):
            for key in "xyz":
                await publish.publish("t", f"{key}{number}".encode(), key=key)
        assert await taken(subscribe, 4) == [b"x0", b"y9", b"z9", b"x9"]
        assert publish.statistics().dropped == 26


async def subscribe_and_stop(parent: Parent, host: str, port: int, provider: str) -> None:
    async with Subscribe((host, port), when_slow="disconnect", window=4, provider=provider):
        await parent.areceive()
        os.kill(os.getpid(), signal.SIGSTOP)
        await anyio.sleep_forever()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])
async def test_a_slow_subscriber_that_reads_nothing_is_waited_for_only_so_long(
    provider: str, child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiofabric.pipeline.publish.SECONDS_TO_READ", 0.2)
    async with Publish(listen=(HOST, 0), queue=4, provider=provider) as publish:
        subscriber = child(subscribe_and_stop, HOST, publish.address.port, provider)
        await publish.wait_for_subscribers()
        subscriber.tell("stop")
        while publish.statistics().subscribers:
            await publish.publish("t", bytes(LARGE))
            await anyio.lowlevel.checkpoint()
        assert publish.counts().peers == 1  # it may still read what it was sent
        with anyio.fail_after(9):
            await until(lambda: not publish.counts().peers)
    subscriber.kill()


async def test_a_slow_subscriber_is_disconnected_and_told(provider: str) -> None:
    async with joined(provider, when_slow="disconnect", window=4, publish={"queue": 4}) as (publish, subscribe):
        for number in range(20):
            await publish.publish("t", str(number).encode())
        assert not publish.statistics().subscribers
        assert await taken(subscribe, 4) == [b"0", b"1", b"2", b"3"]
        with pytest.raises(SubscriberTooSlowError, match="larger window="):
            await subscribe.pull()


@pytest.mark.parametrize("size", [100, 5000, 100_000])
async def test_a_subscriber_that_is_too_slow_gets_what_was_sent_to_it(provider: str, size: int) -> None:
    before = live_resources()
    sent = [bytes([number]) * size for number in range(20)]
    async with joined(provider, when_slow="disconnect", window=4, publish={"queue": 4}) as (publish, subscribe):
        for each in sent:
            await publish.publish("t", each)
        assert publish.statistics().dropped == 5  # those in the queue, and the first that had no room there
        assert await taken(subscribe, 4) == sent[:4]
        with pytest.raises(SubscriberTooSlowError):
            await subscribe.pull()
        assert subscribe.statistics().dropped == 5
        assert not publish.statistics().subscribers  # it has not come back
    await until(lambda: set(live_resources()) <= set(before))


@pytest.mark.parametrize("size", [100, 5000, 100_000])
async def test_a_publisher_that_leaves_lets_a_subscriber_read_that_was_too_slow(provider: str, size: int) -> None:
    sent = [bytes([number]) * size for number in range(20)]
    async with Subscribe(listen=(HOST, 0), window=4, when_slow="disconnect", provider=provider) as subscribe:
        async with Publish(subscribe.address, provider=provider, queue=4) as publish:
            await publish.wait_for_subscribers()
            for each in sent:
                await publish.publish("t", each)
        assert await taken(subscribe, 4) == sent[:4]
        with pytest.raises(SubscriberTooSlowError):
            await subscribe.pull()


async def test_the_publisher_may_decide_for_all(provider: str) -> None:
    options = {"queue": 2, "when_slow": "drop_oldest"}
    async with joined(provider, when_slow="hold", window=2, publish=options) as (publish, subscribe):
        for number in range(10):
            await publish.publish("t", str(number).encode())
        assert publish.statistics().subscribers[0].when_slow == "drop_oldest"
        assert await taken(subscribe, 4) == [b"0", b"1", b"8", b"9"]


async def test_a_publication_that_is_too_large_for_a_subscriber_is_dropped_for_it(provider: str) -> None:
    async with joined(provider, when_slow="hold", max_item_size=100) as (publish, subscribe):
        await publish.publish("t", bytes(200))
        await publish.publish("t", b"small")
        assert await taken(subscribe, 1) == [b"small"]
        assert subscribe.statistics().dropped == 1


async def test_a_subscriber_that_leaves_releases_the_publisher_and_its_memory(provider: str) -> None:
    before = live_resources()
    async with Publish(listen=(HOST, 0), provider=provider, queue=1) as publish, anyio.create_task_group() as tasks:
        leave = anyio.Event()

        async def subscribe() -> None:
            async with Subscribe(publish.address, provider=provider, when_slow="hold", window=1):
                await leave.wait()

        tasks.start_soon(subscribe)
        await publish.wait_for_subscribers()
        for _ in range(2):
            await publish.publish("t", bytes(LARGE))
        tasks.start_soon(publish.publish, "t", bytes(LARGE))
        await until(lambda: publish.statistics().waiting == 1)
        leave.set()
        await until(lambda: publish.statistics().published == 3)
        await publish.drain()
        assert not publish.statistics().subscribers
    await until(lambda: live_resources() == before)


async def test_a_publication_that_waits_may_be_cancelled(provider: str) -> None:
    async with joined(provider, when_slow="hold", window=1, publish={"queue": 1}) as (publish, subscribe):
        await publish.publish("t", b"0")
        await publish.publish("t", b"1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish.publish, "t", b"never")
            await until(lambda: publish.statistics().waiting == 1)
            tasks.cancel_scope.cancel()
        assert await taken(subscribe, 2) == [b"0", b"1"]
        await publish.publish("t", b"2")
        assert await taken(subscribe, 1) == [b"2"]


async def test_publications_that_wait_when_the_block_ends_raise(provider: str) -> None:
    ended: list[str] = []

    async def publish_one(publish: Publish) -> None:
        try:
            await publish.publish("t", b"never")
        except ClosedResourceError:
            ended.append("closed")

    async def leave_early() -> None:
        options: dict[str, Any] = {"listen": (HOST, 0), "provider": provider, "when_slow": "hold", "window": 1}
        async with (
            Subscribe(**options) as subscribe,  # leaves after the publisher
            Publish(subscribe.address, provider=provider, queue=1) as publish,
        ):
            await publish.wait_for_subscribers()
            await publish.publish("t", b"0")
            await publish.publish("t", b"1")
            for _ in range(3):
                tasks.start_soon(publish_one, publish)
            await until(lambda: publish.statistics().waiting == 3)
            left.append(publish)
            raise KeyError

    left: list[Publish] = []
    async with anyio.create_task_group() as tasks:
        with pytest.raises(KeyError):
            await leave_early()
    assert ended == ["closed"] * 3
    assert left[0].statistics().published == 2


async def test_the_end_tells_how_many_were_dropped(provider: str) -> None:
    async with Subscribe(listen=(HOST, 0), max_item_size=100, provider=provider) as subscribe:
        async with Publish(subscribe.address, provider=provider) as publish:
            await publish.wait_for_subscribers()
            await publish.publish("t", bytes(200))
        with pytest.raises(EndOfStream):
            await subscribe.pull()
        assert subscribe.statistics().dropped == 1


async def test_a_subscriber_follows_a_publisher_that_starts_again(provider: str) -> None:
    async with Subscribe(listen=(HOST, 0), topics="t", provider=provider, publishers=2) as subscribe:
        for number in range(2):
            async with Publish(subscribe.address, provider=provider) as publish:
                await publish.wait_for_subscribers()
                await publish.publish("t", str(number).encode())
                assert await taken(subscribe, 1) == [str(number).encode()]
        with pytest.raises(EndOfStream):
            await subscribe.pull()


async def test_after_the_block_both_ends_raise(provider: str) -> None:
    async with joined(provider) as (publish, subscribe):
        pass
    for call in (lambda: publish.publish("t", b""), publish.drain, publish.wait_for_subscribers, subscribe.pull):
        with pytest.raises(ClosedResourceError):
            await call()
    with pytest.raises(ClosedResourceError):
        subscribe.add_topics("t")


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": b"t"}, TypeError, "topic"),
    ({"topic": "t", "key": 5}, TypeError, "key"),
    ({"topic": "t" * 1025}, ValueError, "at most 1024 bytes"),
    ({"topic": "t", "header": b"h" * 1025}, ValueError, "at most 1024 bytes"),
    ({"topic": "t", "header": "text"}, TypeError, "header"),
    ({"topic": "t", "data": "text"}, TypeError, "bytes-like"),
    ({"topic": "t", "data": []}, ValueError, "1 to 256 parts"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), MISTAKES, ids=range(len(MISTAKES)))
async def test_a_mistake_in_a_publication_is_named(
    provider: str, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    async with joined(provider) as (publish, subscribe):
        with pytest.raises(error, match=text):
            await publish.publish(**{"data": b"", **arguments})
        await publish.publish("t", b"right")
        assert await taken(subscribe, 1) == [b"right"]


@pytest.mark.parametrize("when_slow", ["", "HOLD", "drop", None, 0])
def test_a_policy_is_one_of_four(when_slow: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="when_slow"):
        Subscribe("127.0.0.1:1", when_slow=when_slow)


def test_topics_of_a_subscriber_have_a_limit() -> None:
    with pytest.raises(ValueError, match="at most 60000 bytes together"):
        Subscribe("127.0.0.1:1", [f"{number:03}" * 300 for number in range(200)])
    with pytest.raises(TypeError, match="topic"):
        Subscribe("127.0.0.1:1", [b"t"])  # type: ignore[list-item]


async def test_a_topic_without_a_form_in_utf_8_is_refused(provider: str) -> None:
    async with Publish(listen=(HOST, 0), provider=provider) as publish:
        with pytest.raises(ValueError, match="a topic must have a form in UTF-8"):
            await publish.publish("\ud800", b"x")
