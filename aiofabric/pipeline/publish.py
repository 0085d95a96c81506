"""Publish: the publisher's end of a pipeline with topics."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import anyio
import anyio.lowlevel

from ..arguments import check_number
from ..errors import FabricError
from ..memory import close_together
from .protocol.frames import ACK, END, ITEM_COST, READ, ProtocolError, decode_ack, encode_item, encode_signal
from .protocol.hello import Hello, Role
from .protocol.publishing import Published, Publishing, Subscription
from .protocol.sharing import FRAME_ROOM
from .protocol.topics import (
    DROPPED,
    PUBLICATION_COST,
    SUBSCRIBE,
    TOO_SLOW,
    decode_subscribe,
    encode_head,
    encode_published,
)
from .runtime.connection import RECV_SIZE, PipelineConnection, sized_for
from .runtime.end import PipelineEnd, check_limits, new_id
from .runtime.exposing import SMALL, expose, header_of, parts_of, travels
from .runtime.metering import Counts
from .statistics import PublishStatistics, SubscriberStatistics
from .topics import name_of, policy_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from ..domain import Domain
    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import StreamKeywords
    from .places import Place, PlaceFolder, Places
    from .topics import Policy

__all__ = ["Publish"]

_FRAMES_KEPT: Final = 8
"""Frames of several publications that are kept for the other subscribers."""

SECONDS_TO_READ: Final = 10.0
"""For a subscriber that was too slow, to read what it was sent."""

_log = logging.getLogger("aiofabric.pipeline")


class Publish(PipelineEnd):
    """A publisher: each publication goes to every subscriber that asked for its topic. Delivered at most once.

    Open in the block of ``async with``. The block's end waits until each subscriber has taken what was published for
    it, and tells the subscribers that no more comes. After an exception everything is closed at once.

    A subscriber gets what is published from the moment on at which this publisher knows its topics; see
    `wait_for_subscribers`. If it has no room, a queue of its own keeps publications for it, and when that is full,
    ``when_slow`` says what happens:

    * ``"hold"``: `publish` waits, for all subscribers;
    * ``"drop_oldest"``: the oldest publication in the queue is dropped for this subscriber, and counted;
    * ``"keep_last"``: a publication replaces the one in the queue that has the same topic and key, at once; the oldest
      is dropped if there are still too many;
    * ``"disconnect"``: the subscription ends. The subscriber gets what was sent to it, and `SubscriberTooSlowError`
      then; what waits in its queue is dropped. It has 10 seconds to read what was sent.

    If the memory of a large publication cannot be registered for a subscriber, the publication is dropped for it and
    counted, and the log ``aiofabric.pipeline`` warns, once for each domain. If no subscriber is connected in another
    way (over another provider, or at another address of this host), this publisher closes at once, and its block
    raises the `FabricError`.

    Args:
        places: where subscribers listen; see `aiofabric.pipeline.places`.
        listen: where this publisher listens for subscribers: ``"host:port"``, ``(host, port)``, an `Address`.
        announce: a folder in which this listener can be found.
        when_slow: for all subscribers, whatever they ask for; None: for each what it asks for.
        queue, queue_bytes: what waits at most for each subscriber. A publication counts for its bytes, those of topic,
            key and header, and 64.
        max_unacknowledged, max_unacknowledged_bytes: what each subscriber was sent and has not taken, at most; a larger
            window of the subscriber is not used.
        last_values, last_values_bytes: how many publications are kept, one for each topic and key, for subscribers that
            come later and ask for them. Above that the ones that were published longest ago leave. 0: none.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        options: of the connections, such as ``heartbeat=``; see `EndpointOptions`.
    """

    def __init__(
        self,
        places: Places | None = None,
        *,
        listen: Place | None = None,
        announce: PlaceFolder | None = None,
        when_slow: Policy | None = None,
        queue: int = 1024,
        queue_bytes: int = 16 << 20,
        max_unacknowledged: int = 65536,
        max_unacknowledged_bytes: int = 64 << 20,
        last_values: int = 1024,
        last_values_bytes: int = 16 << 20,
        provider: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> None:
        self._when_slow = None if when_slow is None else policy_of(when_slow)
        check_limits(queue=queue, queue_bytes=queue_bytes, last_values_bytes=last_values_bytes)
        check_limits(max_unacknowledged=max_unacknowledged, max_unacknowledged_bytes=max_unacknowledged_bytes)
        check_number("last_values", last_values, 32)
        hello = Hello(Role.PUBLISH, new_id(), RECV_SIZE)
        super().__init__(hello, places, listen, announce, {**options, "provider": provider})
        self._publishing = publishing = Publishing(
            most=queue, most_bytes=queue_bytes, last_values=last_values, last_values_bytes=last_values_bytes
        )
        publishing.room, publishing.forget = self._changed, _close_regions
        self._most_out = max_unacknowledged, max_unacknowledged_bytes  # for each subscriber
        self._subscribers: dict[Subscription, _Subscriber] = {}
        self._frames: dict[tuple[int, ...], bytes] = {}  # of publications that left together
        self._refusing: WeakSet[Domain] = WeakSet()  # where memory could not be registered
        self._turn = anyio.Lock()
        self._waiting = 0
        self._change: anyio.Event | None = None

    async def publish(self, topic: str, data: Any, *, key: str = "", header: bytes = b"") -> None:
        """Publish any buffer that is contiguous in C's order, or a list of buffers, which stay apart.

        Returns when the publication was sent, or waits in line, for each subscriber; only a subscriber with the policy
        ``"hold"`` makes it wait. Without subscribers it is only kept as a last value. ``key`` tells publications of one
        topic apart where only the last of each is kept.

        ``bytes`` are not copied, other buffers are: the program may change them at once. The memory of more than 192
        KiB is read by the subscribers (RMA).

        Cancelling: a publication that waits is not published.

        Raises:
            TypeError: not a buffer, or a topic that is no ``str``.
            ValueError: a topic or key of more than 1,024 bytes, a header of more than 1,024 bytes, no part, or more
                than 256 parts.
            ClosedResourceError: the block has ended.
            WrongThreadError: called from another thread than the one that entered the block.
            WrongLoopError: the event loop of the block has ended.
            ForkedError: called in a forked child.
        """
        if self._burst.ended():
            self._check_open()
            await anyio.lowlevel.checkpoint()  # before it is published: a cancelled call has published nothing
        published = _published(topic, data, key, header)
        if self._waiting or self._closed or get_ident() != self._thread or not self._publishing.publish(published):
            self._check_open()
            self._waiting += 1
            try:
                async with self._turn:
                    self._check_open()  # the block may have ended meanwhile
                    while not self._publishing.publish(published):
                        await self._wait_for_change()
            finally:
                self._waiting -= 1

    async def drain(self) -> None:
        """Wait until each subscriber has taken what was published for it, or has left.

        Raises:
            ClosedResourceError: the block has ended.
        """
        self._check_open()
        while not self._publishing.idle:
            await self._wait_for_change()
        await anyio.lowlevel.checkpoint()

    async def wait_for_subscribers(self, count: int = 1) -> None:
        """Wait until so many subscribers are connected, and this publisher knows their topics.

        Raises:
            ClosedResourceError: the block has ended.
        """
        check_limits(count=count)
        self._check_open()
        while len(self._publishing.subscriptions) < count:
            await self._wait_for_change()
        await anyio.lowlevel.checkpoint()

    def statistics(self) -> PublishStatistics:
        """The numbers of this moment."""
        publishing = self._publishing
        return PublishStatistics(
            published=publishing.published,
            dropped=publishing.dropped,
            waiting=self._waiting,
            subscribers=tuple(each.statistics() for each in self._subscribers.values() if not each.too_slow),
        )

    def counts(self) -> Counts:
        """The numbers for `aiofabric.metrics`."""
        publishing = self._publishing
        return Counts(len(self._subscribers), 0, publishing.published, publishing.acknowledged, lost=publishing.dropped)

    # -- waiting

    async def _wait_for_change(self) -> None:
        """Wait until a subscriber has come, has left, or has taken something."""
        self._check_open()
        if self._change is None:
            self._change = anyio.Event()
        await self._change.wait()
        self._check_open()

    def _changed(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change.set()

    # -- frames

    def _frame_of(self, several: list[Published]) -> bytes:
        """The frame of small publications, encoded once for all subscribers that get the same ones."""
        numbers = tuple(each.number for each in several)
        frame = self._frames.get(numbers)
        if frame is None:
            if len(self._frames) >= _FRAMES_KEPT:
                self._frames.clear()
            frame = encode_published([each.head for each in several], [each.parts[0] for each in several], numbers)
            self._frames[numbers] = frame
        return frame

    def _cannot_register(self, domain: Domain, error: FabricError) -> None:
        """The publication is dropped for the subscribers that are connected on this domain."""
        if all(each.connection.endpoint.domain is domain for each in self._subscribers.values()):
            self._fail(error)
        elif domain not in self._refusing:
            self._refusing.add(domain)
            _log.warning("a publication was dropped for a subscriber, and others may follow: %s", error)

    # -- connections

    def _joined(self, endpoint: MessageEndpoint, theirs: Hello) -> _Subscriber:
        items, size = self._most_out
        theirs = replace(
            sized_for(endpoint, theirs), window=min(theirs.window, items), window_bytes=min(theirs.window_bytes, size)
        )
        subscriber = _Subscriber(self, endpoint, theirs)
        subscriber.connection.iteration_ended = self._burst.waited
        return subscriber

    async def _finish(self) -> None:
        await self.drain()
        self._closed = True
        async with anyio.create_task_group() as tasks:  # a subscriber that is stopped delays no other
            for subscriber in list(self._subscribers.values()):
                tasks.start_soon(subscriber.leave)

    def _abort(self) -> None:
        for subscriber in list(self._subscribers.values()):
            subscriber.close()
        self._changed()


class _Subscriber:
    """A subscriber, as a publisher sees it."""

    def __init__(self, owner: Publish, endpoint: MessageEndpoint, hello: Hello) -> None:
        self._owner = owner
        self._id = hello.id
        self._recv_size = min(hello.recv_size, RECV_SIZE)
        self._over = anyio.Event()
        self._gathered: list[Published] = []  # small ones that leave together
        self._frame_left = 0
        self._told = 0  # how many the subscriber knows to be dropped
        self.too_slow = False  # the subscription has ended, and the subscriber may still read what it was sent
        self._no_more = anyio.Event()  # it is too slow, or the connection is over
        self.subscription = Subscription(hello, self._send, self._disconnect)
        self.connection = PipelineConnection(endpoint, self._arrived, self._ended, self._notes)
        self.connection.gathered = self._flush
        self.connection.sends_items = True
        owner._subscribers[self.subscription] = self
        self.connection.start()

    async def wait_end(self) -> bool:
        await self._no_more.wait()
        with anyio.move_on_after(SECONDS_TO_READ):
            await self._over.wait()  # a subscriber that is too slow leaves when it has read what it was sent
        return self.too_slow

    def close(self) -> None:
        self.connection.end(anyio.ClosedResourceError("this publisher was closed"))

    def _notes(self) -> Iterator[str]:
        subscription = self.subscription
        waiting = f"{len(subscription.queue)} publications wait, {subscription.dropped} were dropped"
        yield f"a subscriber; {subscription.items_out} publications are not acknowledged, {waiting}"

    def statistics(self) -> SubscriberStatistics:
        subscription = self.subscription
        return SubscriberStatistics(
            id=self._id,
            address=str(self.connection.endpoint.peer_address),
            topics=subscription.topics,
            when_slow=subscription.when_slow.name.lower(),
            queued=len(subscription.queue),
            not_acknowledged=subscription.items_out,
            dropped=subscription.dropped,
        )

    # -- publications

    def _send(self, published: Published) -> bool:
        """Returns False if the subscriber cannot get it."""
        if self._told != self.subscription.dropped:
            self._tell_dropped()
        if not published.small:
            self._flush()
            return self._send_large(published)
        size = len(published.head) + len(published.parts[0]) + PUBLICATION_COST
        if self._gathered:
            if size <= self._frame_left:
                self._frame_left -= size
                self._gathered.append(published)
                return True
            self._flush()
        elif self.connection.gather():
            self.connection.send(published.alone())
            return True
        self._gathered.append(published)
        self._frame_left = self._recv_size - FRAME_ROOM - size
        return True

    def _tell_dropped(self) -> None:
        self._flush()
        self._told = self.subscription.dropped
        self.connection.send(encode_signal(DROPPED, self._told))

    async def leave(self) -> None:
        """All publications were taken: the subscriber gets the number of dropped ones, and the end."""
        if self.too_slow:
            await self._over.wait()  # it was told already
            return
        if self._told != self.subscription.dropped:
            self._tell_dropped()
        self.connection.send(encode_signal(END))
        await self.connection.aclose()

    def _flush(self) -> bool:
        """Send the publications that were gathered; whether there were some."""
        several, self._gathered = self._gathered, []
        if several:
            self.connection.send(several[0].alone() if len(several) == 1 else self._owner._frame_of(several))
        return bool(several)

    def _send_large(self, published: Published) -> bool:
        if travels(published.cost - ITEM_COST, len(published.parts), self._recv_size):
            if published.frame is None:
                published.frame = b"".join(encode_item(published.head, published.parts, published.number))
            self.connection.send(published.frame)
            return True
        domain = self.connection.endpoint.domain
        if domain not in published.exposed:
            try:
                published.exposed[domain] = expose(self.connection, published.parts)
            except FabricError as error:
                self._owner._cannot_register(domain, error)
                return False
        _, parts = published.exposed[domain]
        self.connection.send(encode_item(published.head, parts, published.number))
        return True

    def _disconnect(self) -> None:
        # If the connection ended now, the subscriber could not read large publications, and might not get this frame.
        self.too_slow = True
        self._flush()
        self.connection.send(encode_signal(TOO_SLOW, self.subscription.dropped))
        self._no_more.set()

    # -- what the subscriber says

    def _arrived(self, kind: int, frame: memoryview) -> None:
        publishing = self._owner._publishing
        if kind == ACK:
            for start, end in decode_ack(frame):
                publishing.acked(self.subscription, start, end)
        elif kind == READ:
            publishing.read(self.subscription, int.from_bytes(frame[8:16], "little"))
        elif kind == SUBSCRIBE:
            wishes = decode_subscribe(frame)
            if self.too_slow:  # it does not know yet
                return
            when_slow = self._owner._when_slow
            publishing.subscribe(self.subscription, wishes, wishes.when_slow if when_slow is None else when_slow)
        else:
            raise ProtocolError(f"a subscriber does not send frames of the kind {kind}")

    def _ended(self, error: BaseException) -> None:
        owner = self._owner
        if not owner._closed:
            _log.info("the subscriber at %s has left: %s", self.connection.endpoint.peer_address, error)
        self._gathered = []
        owner._subscribers.pop(self.subscription, None)
        owner._publishing.leave(self.subscription)
        self._over.set()
        self._no_more.set()


@lru_cache(1024)
def _head(topic: str, key: str) -> bytes:
    return encode_head(name_of("topic", topic), name_of("key", key), b"")


def _published(topic: Any, data: Any, key: Any, header: Any) -> Published:
    """A publication of the program, checked. Memory that may change later is copied."""
    if type(topic) is not str or type(key) is not str:  # an unhashable one cannot be looked up
        name_of("topic", topic)
        name_of("key", key)
    head = _head(topic, key)
    if header:
        head += header_of(header)
    parts = [part if type(part) is bytes else bytes(part) for part in parts_of(data)]
    return Published(topic, key, head, parts, small=len(parts) == 1 and len(parts[0]) <= SMALL)


def _close_regions(published: Published) -> None:
    exposed, published.exposed = published.exposed, {}
    for regions, _ in exposed.values():
        with suppress(OSError):
            close_together(regions)
