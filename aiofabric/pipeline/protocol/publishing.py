"""Publishing: which subscriber gets which publication, and what happens if it has no room.

A subscriber grants credits as a consumer does. Publications without credits wait in a queue for it. The queue is
bounded, and the policy of the subscription says what happens when it is full; see `WhenSlow`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from .frames import ITEM_COST, ProtocolError
from .topics import WhenSlow, encode_published

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .hello import Hello
    from .topics import Subscribed

__all__ = ["Published", "Publishing", "Subscription"]

_MOST_TOPICS: Final = 4096
"""Topics whose subscribers are remembered, so that the prefixes are compared once for each topic."""


class Published:
    """One publication, for all its subscribers.

    ``small``: it may share a frame with others. ``holders``: subscriptions in which it waits, or that have not read it.
    ``frame`` and ``exposed`` are the runtime's: the frame of this publication alone, and its memory that is shown.
    """

    __slots__ = ("cost", "exposed", "frame", "head", "holders", "key", "number", "parts", "small", "topic")

    def __init__(self, topic: str, key: str, head: bytes, parts: Sequence[bytes], *, small: bool) -> None:
        self.topic = topic
        self.key = key
        self.head = head
        self.parts = parts
        self.cost = ITEM_COST + len(head) + sum(map(len, parts))
        self.small = small
        self.number = 0
        self.holders = 0
        self.frame: Any = None
        self.exposed: dict[Any, Any] = {}

    def alone(self) -> bytes:
        """The frame of this small publication alone: encoded once for all subscribers."""
        if self.frame is None:
            self.frame = encode_published([self.head], self.parts, [self.number])
        frame: bytes = self.frame
        return frame


class Subscription:
    """The wishes of one subscriber, the publications that it was sent, and those that wait.

    ``send`` is called with each publication that the subscriber has room for, and returns False if it cannot be sent to
    this subscriber, which it is dropped for; ``disconnect``, when it is too slow and
    its policy is DISCONNECT: then it gets no more, and what waited for it was dropped.
    """

    __slots__ = (
        "_bytes_left",
        "_most_cost",
        "_sent",
        "_window",
        "disconnect",
        "dropped",
        "items_left",
        "place",
        "queue",
        "queued_bytes",
        "send",
        "topics",
        "when_slow",
    )

    def __init__(self, hello: Hello, send: Callable[[Published], bool], disconnect: Callable[[], Any]) -> None:
        self._window = self.items_left = hello.window
        self._bytes_left = hello.window_bytes
        self._most_cost = hello.max_item_size + ITEM_COST
        self.send = send
        self.disconnect = disconnect
        self.topics: tuple[str, ...] = ()
        self.when_slow = WhenSlow.DROP_OLDEST
        self.place = 0  # of the next publication
        self.dropped = 0
        self._sent: dict[int, tuple[int, Published | None]] = {}  # by place: cost, and what the subscriber may read
        self.queue: OrderedDict[Any, Published] = OrderedDict()
        self.queued_bytes = 0

    @property
    def items_out(self) -> int:
        """Publications that were sent, and not acknowledged."""
        return self._window - self.items_left

    @property
    def idle(self) -> bool:
        """Whether the subscriber has taken everything."""
        return not (self._sent or self.queue)

    def has_credit(self, cost: int) -> bool:
        if cost <= self._bytes_left:
            return self.items_left > 0
        return self.items_left == self._window  # larger than its window: alone

    def out(self, published: Published) -> bool:
        """Send, and keep the place until it is acknowledged. False if it cannot be sent to this subscriber."""
        place = self.place
        self._sent[place] = published.cost, None if published.small else published
        self.place = place + 1
        self.items_left -= 1
        self._bytes_left -= published.cost
        if self.send(published) or self._sent.pop(place, None) is None:  # it may have left meanwhile
            return True
        self.place = place
        self.items_left += 1
        self._bytes_left += published.cost
        return False

    def takes(self, published: Published) -> bool:
        """Whether the subscriber takes publications of this size at all."""
        return published.cost <= self._most_cost

    # -- the queue

    def wait(self, published: Published) -> Published | None:
        """Put a publication into the queue; returns one that it replaces."""
        name = (published.topic, published.key) if self.when_slow == WhenSlow.KEEP_LAST else published.number
        replaced = self.queue.get(name)
        self.queue[name] = published  # in the place of the one before: a key that changes often waits no longer
        self.queued_bytes += published.cost - (0 if replaced is None else replaced.cost)
        return replaced

    def next(self) -> Published:
        """Take the oldest publication out of the queue."""
        _, published = self.queue.popitem(last=False)
        self.queued_bytes -= published.cost
        return published

    def is_full(self, cost: int, most: int, most_bytes: int) -> bool:
        """Whether the queue has no room. A publication that is larger than the queue waits alone."""
        return len(self.queue) >= most or bool(self.queue and self.queued_bytes + cost > most_bytes)

    # -- acknowledgements

    def acked(self, start: int, end: int) -> list[Published]:
        """The subscriber has taken places; returns the publications that it does not read any more."""
        if not 0 <= start < end <= self.place:
            raise ProtocolError(f"the places {start} to {end} were acknowledged, and {self.place} were sent")
        sent = self._sent
        places = range(start, end) if end - start <= len(sent) else [each for each in sent if start <= each < end]
        found: list[Published] = []
        for place in places:
            cost, published = sent.pop(place, (0, None))
            if cost:
                self.items_left += 1
                self._bytes_left += cost
            if published is not None:
                found.append(published)
        return found

    def read(self, place: int) -> Published:
        """The subscriber has read the parts of a large publication."""
        cost, published = self._sent.get(place, (0, None))
        if published is None or not published.exposed:
            raise ProtocolError(f"the publication at the place {place} was read, and it is not exposed")
        self._sent[place] = cost, None
        return published

    def unread(self) -> list[Published]:
        """The publications that wait or may still be read, when the subscriber has left."""
        found = [published for _, published in self._sent.values() if published is not None]
        found += self.queue.values()
        self._sent.clear()
        self.queue.clear()
        return found


class Publishing:
    """The subscriptions of one publisher, and the last value of each key.

    ``most`` and ``most_bytes`` bound the queue of each subscription, ``last_values`` and ``last_values_bytes`` what is
    kept for subscribers that come later. ``room`` is called when a subscription may have room again, ``forget`` with a
    publication that has no reader left.
    """

    def __init__(self, *, most: int, most_bytes: int, last_values: int, last_values_bytes: int) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.published = self.dropped = self.acknowledged = 0
        self.subscriptions: list[Subscription] = []
        self.room: Callable[[], object] = _nothing
        self.forget: Callable[[Published], object] = _nothing
        self._last: OrderedDict[tuple[str, str], Published] = OrderedDict()  # by topic and key; the oldest first
        self._last_bytes = 0
        self._most_last = last_values
        self._most_last_bytes = last_values_bytes
        self._by_topic: dict[str, tuple[Subscription, ...]] = {}

    # -- subscribers

    def subscribe(self, subscription: Subscription, wishes: Subscribed, when_slow: WhenSlow) -> None:
        """A subscriber has said what it wants, for the first time or again."""
        before = subscription.topics
        if subscription not in self.subscriptions:
            self.subscriptions.append(subscription)
        subscription.topics = wishes.topics
        subscription.when_slow = when_slow
        self._by_topic.clear()
        if wishes.last_values:
            for published in list(self._last.values()):
                if published.topic.startswith(wishes.topics) and not published.topic.startswith(before):
                    self._offer(subscription, published, bounded=False)
        self.room()

    def leave(self, subscription: Subscription) -> None:
        """A subscriber has left."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
            self._by_topic.clear()
        for published in subscription.unread():
            self._release(published)
        self.room()

    def _subscribed(self, topic: str) -> tuple[Subscription, ...]:
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= _MOST_TOPICS:
                self._by_topic.clear()
            found = tuple(each for each in self.subscriptions if topic.startswith(each.topics))
            self._by_topic[topic] = found
        return found

    # -- publications

    def publish(self, published: Published) -> bool:
        """Give a publication to its subscribers; False if one that holds this publisher has no room."""
        subscriptions = self._subscribed(published.topic)
        for each in subscriptions:
            if (
                each.when_slow == WhenSlow.HOLD
                and (each.queue or not each.has_credit(published.cost))
                and each.takes(published)
                and each.is_full(published.cost, self.most, self.most_bytes)
            ):
                return False
        published.number = self.published
        self.published += 1
        if self._most_last:
            self._keep(published)
        for each in subscriptions:
            self._offer(each, published, bounded=True)
        return True

    def _offer(self, subscription: Subscription, published: Published, *, bounded: bool) -> None:
        if not subscription.takes(published):
            self._dropped(subscription)
            return
        published.holders += 1
        if not subscription.queue and subscription.has_credit(published.cost):
            self._out(subscription, published)
            return
        policy = subscription.when_slow
        if (
            bounded
            and policy == WhenSlow.DISCONNECT
            and subscription.is_full(published.cost, self.most, self.most_bytes)
        ):
            self._release(published)
            self._dropped(subscription)
            self._end(subscription)
            subscription.disconnect()
            return
        if (replaced := subscription.wait(published)) is not None:
            self._dropped(subscription)
            self._release(replaced)
        if bounded and policy != WhenSlow.HOLD:
            while len(subscription.queue) > self.most or (
                subscription.queued_bytes > self.most_bytes and len(subscription.queue) > 1
            ):
                self._dropped(subscription)
                self._release(subscription.next())

    def _out(self, subscription: Subscription, published: Published) -> None:
        if not subscription.out(published):
            self._dropped(subscription)
            self._release(published)

    def _end(self, subscription: Subscription) -> None:
        """Nothing more is sent to a subscriber. It may still read what it was sent, until it leaves."""
        self.subscriptions.remove(subscription)
        self._by_topic.clear()
        while subscription.queue:
            self._dropped(subscription)
            self._release(subscription.next())

    def _dropped(self, subscription: Subscription) -> None:
        subscription.dropped += 1
        self.dropped += 1

    def _release(self, published: Published) -> None:
        published.holders -= 1
        if not published.holders and published.exposed:
            self.forget(published)

    def _keep(self, published: Published) -> None:
        """Keep the last value of a key. The values of the keys that were published longest ago leave first."""
        name = published.topic, published.key
        before = self._last.pop(name, None)
        if before is not None:
            self._last_bytes -= before.cost
        if published.cost > self._most_last_bytes:
            return
        self._last[name] = published
        self._last_bytes += published.cost
        while len(self._last) > self._most_last or self._last_bytes > self._most_last_bytes:
            _, oldest = self._last.popitem(last=False)
            self._last_bytes -= oldest.cost

    # -- what subscribers say

    def acked(self, subscription: Subscription, start: int, end: int) -> None:
        """A subscriber has taken places. Raises `ProtocolError` if it was not sent all of them."""
        out = subscription.items_out
        for published in subscription.acked(start, end):
            self._release(published)
        self.acknowledged += out - subscription.items_out
        queue = subscription.queue
        while queue and subscription.has_credit(next(iter(queue.values())).cost):
            self._out(subscription, subscription.next())
        self.room()

    def read(self, subscription: Subscription, place: int) -> None:
        """A subscriber has read a large publication. Raises `ProtocolError` if there was none at this place."""
        self._release(subscription.read(place))

    @property
    def idle(self) -> bool:
        """Whether every subscriber has taken what was published for it."""
        return all(each.idle for each in self.subscriptions)


def _nothing(*_: object) -> None:
    pass
