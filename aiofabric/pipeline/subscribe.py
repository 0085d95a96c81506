"""Subscribe: the subscriber's end of a pipeline with topics."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ..arguments import check_type
from .protocol.frames import HEADER, ITEM_COST, ProtocolError
from .protocol.hello import Hello, Role
from .protocol.topics import (
    DROPPED,
    PUBLISHED,
    TOO_SLOW,
    Publications,
    Subscribed,
    decode_head,
    decode_published,
    encode_subscribe,
)
from .runtime.connection import RECV_SIZE
from .runtime.end import PipelineEnd, check_limits, new_id
from .runtime.incoming import Incoming, Rest
from .runtime.intake import Intake, Scopes
from .runtime.item import Item
from .statistics import SubscribeStatistics
from .topics import name_of, policy_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Unpack

    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import StreamKeywords
    from .places import Place, PlaceFolder, Places
    from .runtime.item import Origin
    from .runtime.metering import Counts
    from .topics import Policy

__all__ = ["Publication", "Subscribe", "SubscriberTooSlowError"]

_MOST_BYTES = 60_000
"""Bytes of all topics of a subscriber, which travel in one message."""

_names = lru_cache(1024)(decode_head)


class SubscriberTooSlowError(ConnectionAbortedError):
    """The publisher has ended this subscription, because its queue was full: ``when_slow="disconnect"``."""


class Publication(Item):
    """One publication, an `Item` with its ``topic`` and ``key``.

    One of less than 16 KiB is the program's. A larger one is in memory that is lent until the scope ends, and counts
    against the subscriber's window until then. ``number`` counts the publisher's publications of all topics,
    from 0. ``producer``: 16 bytes that name the publisher. ``redelivered`` is False.
    """

    __slots__ = ("key", "topic")

    def __init__(self, origin: Origin, place: int, cost: int, parts: Sequence[Any], number: int, head: bytes) -> None:
        super().__init__(origin, place, cost, parts, number, False)
        self.topic, self.key, self.header = _names(head)

    def __repr__(self) -> str:
        return f"<Publication {self.number}, {self.topic!r}, {len(self)} bytes>"


class Subscribe(PipelineEnd):
    """A subscriber: gets the publications of the publishers that are connected whose topic begins with one of its own.

    Open in the block of ``async with``. The stream ends when ``publishers`` of them have said that they have no more:
    then `pull` raises `anyio.EndOfStream`, and ``async for`` ends. What is published while the connection is lost is
    not received; numbers that are missing, or `statistics`, show it.

    Args:
        places: where publishers listen; see `aiofabric.pipeline.places`.
        topics: prefixes, one or several. ``""``: everything. An empty list: nothing yet.
        when_slow: ``"hold"``, ``"drop_oldest"``, ``"keep_last"`` or ``"disconnect"``; see `Publish`, which may decide
            otherwise.
        last_values: whether to get the last value of each topic and key first, as far as the publisher has kept them.
        listen: where this subscriber listens for publishers: ``"host:port"``, ``(host, port)``, an `Address`.
        announce: a folder in which this listener can be found.
        publishers: how many must end before the stream ends; None: it never ends.
        window, window_bytes: publications that may be on their way to this subscriber, or here and not taken, from each
            publisher. With ``"keep_last"`` choose a small window: what is on its way is not replaced.
        max_item_size: bytes of the largest publication, with topic, key and header. Larger ones are dropped.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        options: of the connections, such as ``heartbeat=``; see `EndpointOptions`.
    """

    def __init__(
        self,
        places: Places | None = None,
        topics: str | Iterable[str] = "",
        *,
        when_slow: Policy = "drop_oldest",
        last_values: bool = False,
        listen: Place | None = None,
        announce: PlaceFolder | None = None,
        publishers: int | None = 1,
        window: int = 1024,
        window_bytes: int = 64 << 20,
        max_item_size: int = 1 << 30,
        provider: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> None:
        if publishers is not None:
            check_limits(publishers=publishers)
        check_limits(window=window, window_bytes=window_bytes, max_item_size=max_item_size)
        check_type("last_values", last_values, bool)
        hello = Hello(Role.SUBSCRIBE, new_id(), RECV_SIZE, window, window_bytes, max_item_size)
        super().__init__(hello, places, listen, announce, {**options, "provider": provider})
        self._wishes = Subscribed(_topics(_several(topics)), policy_of(when_slow), last_values)
        self._intake = Intake(hello, publishers, self._check_open)
        self._dropped_before = 0  # by connections that have ended

    async def pull(self) -> Publication:
        """The next publication.

        Cancelling loses nothing: the next call gets it.

        Raises:
            EndOfStream: the publishers have no more.
            SubscriberTooSlowError: a publisher has ended this subscription.
            ClosedResourceError: the block has ended.
            WrongThreadError: called from another thread than the one that entered the block.
            WrongLoopError: the event loop of the block has ended.
            ForkedError: called in a forked child.
        """
        intake = self._intake
        await intake.until_there_are_items()
        return cast("Publication", intake.take_one())

    def __aiter__(self) -> AsyncIterator[Publication]:
        """Each publication, until the publishers have no more. The body of the loop is its scope."""
        return Scopes(self.pull)

    def add_topics(self, *topics: str) -> None:
        """Get publications with these prefixes, too. With ``last_values``, the last values of these come now."""
        self._change_topics(_topics([*self._wishes.topics, *topics]))

    def remove_topics(self, *topics: str) -> None:
        """Get no publications with these prefixes any more, after those that are on their way.

        Raises:
            ValueError: a topic that this subscriber does not have.
        """
        left = list(self._wishes.topics)
        for topic in topics:
            if topic not in left:
                raise ValueError(f"this subscriber does not have the topic {topic!r}: it has {left}")
            left.remove(topic)
        self._change_topics(tuple(left))

    def statistics(self) -> SubscribeStatistics:
        """The numbers of this moment."""
        intake = self._intake
        return SubscribeStatistics(
            received=intake.received,
            dropped=self._dropped_before + sum(each.dropped for each in self._publishers()),
            queued=intake.queued,
            lent_bytes=intake.memory.lent,
            ended=intake.ended,
            publishers=intake.links(),
        )

    def _publishers(self) -> list[_Publisher]:
        return cast("list[_Publisher]", list(self._intake.incoming))

    def _change_topics(self, topics: tuple[str, ...]) -> None:
        if self._entered:
            self._check_open()
        self._wishes = self._wishes._replace(topics=topics)
        for each in self._publishers():
            each.subscribe(self._wishes)

    def counts(self) -> Counts:
        """The numbers for `aiofabric.metrics`."""
        return self._intake.counts()

    # -- connections

    def _joined(self, endpoint: MessageEndpoint, theirs: Hello) -> Incoming:
        publisher = _Publisher(self, endpoint, theirs)
        self._intake.join(publisher)
        publisher.subscribe(self._wishes)
        return publisher

    def _leave_loop(self) -> None:
        super()._leave_loop()
        self._intake.thread = 0

    async def _finish(self) -> None:
        self._closed = True
        await self._intake.finish()

    def _abort(self) -> None:
        self._intake.abort()


class _Publisher(Incoming):
    """A publisher, as a subscriber sees it."""

    def __init__(self, owner: Subscribe, endpoint: MessageEndpoint, hello: Hello) -> None:
        super().__init__(owner._intake, endpoint, hello)
        self._subscriber = owner
        self._too_slow: SubscriberTooSlowError | None = None
        self.dropped = 0

    def subscribe(self, wishes: Subscribed) -> None:
        self.connection.send(encode_subscribe(wishes))

    def other_frame(self, kind: int, frame: memoryview) -> None:
        if kind == PUBLISHED:
            self._published(decode_published(frame))
        elif kind == DROPPED:
            self.dropped = HEADER.unpack_from(frame)[4]
        elif kind == TOO_SLOW:
            self.dropped = HEADER.unpack_from(frame)[4]
            self.finished = True  # it is not connected again
            self._too_slow = SubscriberTooSlowError(
                f"the publisher at {self.connection.endpoint.peer_address} has ended this subscription: its queue "
                "for it was full, and the policy is 'disconnect'. Take publications faster, or choose a larger "
                "window= or Publish(queue=...), or when_slow='drop_oldest'"
            )
            if not self._pending:
                self.all_ready()
        else:
            raise ProtocolError(f"a publisher does not send frames of the kind {kind}")

    def _published(self, publications: Publications) -> None:
        heads, items, numbers = publications
        for head in heads:
            _names(head)  # raises unless it is a head
        sizes = [len(head) + len(item) for head, item in zip(heads, items, strict=True)]
        place = self.receipts.arrived(len(items), ITEM_COST * len(items) + sum(sizes), max(sizes))
        self.ready(_PublishedRest(self, place, items, numbers, heads))

    def all_ready(self) -> None:
        if self._too_slow is not None:
            self.connection.end(self._too_slow)  # the publisher waits for that

    def _connection_ended(self, error: BaseException) -> None:
        super()._connection_ended(error)
        self._subscriber._dropped_before += self.dropped  # at once: the program may ask next
        if self._too_slow is not None:  # also if the connection broke meanwhile
            self.owner.fail(self._too_slow)

    def check_header(self, header: bytes) -> None:
        _names(header)

    def item_of(
        self, place: int, cost: int, parts: Sequence[Any], number: int, redelivered: bool, header: bytes
    ) -> Publication:
        return Publication(self, place, cost, parts, number, header)


class _PublishedRest(Rest):
    """Small publications of one frame, of which some may have been pulled."""

    __slots__ = ("heads",)

    def __init__(
        self, incoming: Incoming, place: int, items: list[bytes], numbers: Sequence[int], heads: list[bytes]
    ) -> None:
        super().__init__(incoming, place, items, numbers, False)
        self.heads = heads

    def cost(self, start: int, end: int) -> int:
        return super().cost(start, end) + sum(map(len, self.heads[start:end]))

    def next_item(self) -> Publication:
        at = self.at
        self.at = at + 1
        item, head = self.items[at], self.heads[at]
        cost = ITEM_COST + len(head) + len(item)  # the whole head counts
        return Publication(self.incoming, self.place + at, cost, (item,), self.numbers[at], head)


def _several(topics: Any) -> Iterable[str]:
    if isinstance(topics, str):
        return [topics]
    if isinstance(topics, (bytes, bytearray, memoryview)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics must be a str, or several, such as a list of them, not {topics!r:.100}")
    return topics


def _topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Topics of the program, checked, each once."""
    found = tuple(dict.fromkeys(topics))
    size = sum(2 + len(name_of("topic", topic)) for topic in found)
    if size > _MOST_BYTES:
        raise ValueError(f"the topics of a subscriber have at most {_MOST_BYTES} bytes together, not {size}")
    return found
