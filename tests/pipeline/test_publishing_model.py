"""A publisher and its subscribers against a model: arbitrary orders of publishing, taking, coming and going."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiofabric.pipeline.protocol.frames import ITEM_COST
from aiofabric.pipeline.protocol.hello import Hello, Role
from aiofabric.pipeline.protocol.publishing import Published, Publishing, Subscription
from aiofabric.pipeline.protocol.receipts import Receipts
from aiofabric.pipeline.protocol.topics import Subscribed, WhenSlow, encode_head

pytestmark = pytest.mark.once

TOPICS = ["a", "a.b", "a.c", "b", ""]
MOST, MOST_BYTES = 8, 2000
LAST = 3


class Subscriber:
    """A subscriber of the model: it checks what it is sent."""

    def __init__(self, topics: tuple[str, ...], when_slow: WhenSlow, window: int, window_bytes: int) -> None:
        hello = Hello(Role.SUBSCRIBE, b"s" * 16, 4096, window, window_bytes, 1 << 20)
        self.subscription = Subscription(hello, self.send, self.disconnect)
        self.wishes = Subscribed(topics, when_slow, last_values=True)
        self.receipts = Receipts(hello)
        self.held: list[tuple[int, int]] = []  # place, cost
        self.numbers: list[int] = []
        self.by_key: dict[tuple[str, str], int] = {}
        self.published = 0  # for it
        self.disconnected = False
        self.refuses = False
        self.refused = 0

    def send(self, published: Published) -> bool:
        if self.refuses and not published.small:  # its memory cannot be registered for this subscriber
            self.refused += 1
            return False
        assert published.topic.startswith(self.wishes.topics)
        self.held.append((self.receipts.arrived(1, published.cost, 0), published.cost))  # raises without room
        name = published.topic, published.key
        assert self.by_key.get(name, -1) < published.number
        self.by_key[name] = published.number
        if self.wishes.when_slow != WhenSlow.KEEP_LAST:
            assert published.number > max(self.numbers, default=-1)
        self.numbers.append(published.number)
        return True

    def disconnect(self) -> None:
        self.disconnected = True


class Topics(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.publisher = Publishing(most=MOST, most_bytes=MOST_BYTES, last_values=LAST, last_values_bytes=10_000)
        self.subscribers: list[Subscriber] = []
        self.last: dict[tuple[str, str], int] = {}

    @rule(
        topics=st.lists(st.sampled_from(TOPICS), max_size=2, unique=True),
        when_slow=st.sampled_from(WhenSlow),
        window=st.integers(1, 10),
        window_bytes=st.integers(1, 2000) | st.just(1 << 20),
    )
    def come(self, topics: list[str], when_slow: WhenSlow, window: int, window_bytes: int) -> None:
        subscriber = Subscriber(tuple(topics), when_slow, window, window_bytes)
        self.subscribers.append(subscriber)
        subscriber.published = sum(topic.startswith(tuple(topics)) for topic, _ in self.last)
        self.publisher.subscribe(subscriber.subscription, subscriber.wishes, when_slow)
        if when_slow == WhenSlow.HOLD:
            wanted = [number for (topic, _), number in self.last.items() if topic.startswith(tuple(topics))]
            assert subscriber.numbers == wanted[: len(subscriber.numbers)]

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        leaving = self.subscribers.pop(data.draw(st.integers(0, len(self.subscribers) - 1)))
        self.publisher.leave(leaving.subscription)

    @precondition(lambda self: self.subscribers)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        subscriber = data.draw(st.sampled_from(self.subscribers))
        subscriber.refuses = not subscriber.refuses

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(["", "k", "l"]), size=st.integers(0, 500) | st.just(3000))
    def publish(self, topic: str, key: str, size: int) -> None:
        head = encode_head(topic.encode(), key.encode(), b"")
        published = Published(topic, key, head, [bytes(size)], small=size < 100)
        before = self.publisher.published
        if not self.publisher.publish(published):
            assert any(each.wishes.when_slow == WhenSlow.HOLD and each.subscription.queue for each in self.subscribers)
            assert self.publisher.published == before
            return
        assert published.number == before
        self.last.pop((topic, key), None)
        self.last[topic, key] = before
        while len(self.last) > LAST:
            del self.last[next(iter(self.last))]
        for each in list(self.subscribers):
            each.published += topic.startswith(each.wishes.topics)
            if each.disconnected:
                self.publisher.leave(each.subscription)
                self.subscribers.remove(each)

    @precondition(lambda self: any(each.held for each in self.subscribers))
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        subscriber = data.draw(st.sampled_from([each for each in self.subscribers if each.held]))
        place, cost = subscriber.held.pop(data.draw(st.integers(0, len(subscriber.held) - 1)))
        subscriber.receipts.ack(place, cost)
        for start, end in subscriber.receipts.take():
            self.publisher.acked(subscriber.subscription, start, end)

    @invariant()
    def each_publication_was_sent_or_waits_or_was_counted_as_dropped(self) -> None:
        for each in self.subscribers:
            subscription = each.subscription
            assert each.published == len(each.numbers) + len(subscription.queue) + subscription.dropped
            assert subscription.queued_bytes == sum(waiting.cost for waiting in subscription.queue.values())
            assert each.wishes.when_slow != WhenSlow.HOLD or subscription.dropped == each.refused

    @invariant()
    def the_queues_are_bounded(self) -> None:
        for each in self.subscribers:
            assert len(each.subscription.queue) <= MOST + LAST
            assert each.subscription.queued_bytes <= max(MOST_BYTES, 3000 + 100 + ITEM_COST) + LAST * 3200

    def teardown(self) -> None:
        while any(each.held for each in self.subscribers):
            for each in self.subscribers:
                for place, cost in each.held[:]:
                    each.held.remove((place, cost))
                    each.receipts.ack(place, cost)
                for start, end in each.receipts.take():
                    self.publisher.acked(each.subscription, start, end)
        assert self.publisher.idle


TestTopics = pytest.mark.once(Topics.TestCase)
TestTopics.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
