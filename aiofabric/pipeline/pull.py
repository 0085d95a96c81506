"""Pull: the consumer's end of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import check_type
from .protocol.hello import Hello, Role
from .runtime.connection import RECV_SIZE
from .runtime.end import PipelineEnd, check_limits, new_id
from .runtime.incoming import Incoming
from .runtime.intake import Intake, Scopes
from .statistics import PullStatistics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Unpack

    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import StreamKeywords
    from .places import Place, PlaceFolder, Places
    from .runtime.item import Item, Items
    from .runtime.metering import Counts

__all__ = ["Pull"]


class Pull(PipelineEnd):
    """A consumer: gets items of every producer that is connected, in the order of each producer.

    Open in the block of ``async with``. The block's end sends the acknowledgements that are left. What was not
    acknowledged goes back to its producer.

    The stream ends when ``producers`` of them have said that they have no more items: then `pull` raises
    `anyio.EndOfStream`, and ``async for`` ends. A producer that dies has not said so; another one may take its place. A
    consumer that starts after its producer has left waits for another one.

    Entering the block does not wait; `pull` does, without a time limit: put ``with anyio.fail_after(5):`` around it, or
    around the whole ``async with``.

    Args:
        places: where producers listen; see `aiofabric.pipeline.places`.
        listen: where this consumer listens for producers: ``"host:port"``, ``(host, port)``, an `Address`.
        announce: a folder in which this listener can be found.
        producers: how many must end before the stream ends; None: it never ends.
        window, window_bytes: items that may be here and not acknowledged, from each producer. An item counts for its
            bytes and 64. One that is larger than ``window_bytes`` comes alone.
        max_item_size: bytes of the largest item.
        provider: by name, such as ``"tcp"`` or ``"shm"``.
        options: of the connections, such as ``heartbeat=``; see `EndpointOptions`.
    """

    def __init__(
        self,
        places: Places | None = None,
        *,
        listen: Place | None = None,
        announce: PlaceFolder | None = None,
        producers: int | None = 1,
        window: int = 1024,
        window_bytes: int = 64 << 20,
        max_item_size: int = 1 << 30,
        provider: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> None:
        if producers is not None:
            check_limits(producers=producers)
        check_limits(window=window, window_bytes=window_bytes, max_item_size=max_item_size)
        hello = Hello(Role.PULL, new_id(), RECV_SIZE, window, window_bytes, max_item_size)
        super().__init__(hello, places, listen, announce, {**options, "provider": provider})
        self._intake = Intake(hello, producers, self._check_open)

    async def pull(self) -> Item:
        """The next item.

        Cancelling loses nothing: the next call gets the item.

        Raises:
            EndOfStream: the producers have no more items.
            ClosedResourceError: the block has ended.
            WrongThreadError: called from another thread than the one that entered the block.
            WrongLoopError: the event loop of the block has ended.
            ForkedError: called in a forked child.
        """
        intake = self._intake
        if not intake.has_next():
            await intake.wait_for_items()
        return intake.take_one()

    async def pull_or_none(self, *, when_full: bool = True) -> Item | None:
        """The next item, or None if there is none, and none comes before this consumer acknowledges what it has: all
        ``producers`` have said that they have no new items, or one of them waits for acknowledgements: in `Push.drain`,
        or with an item for which the windows of its consumers, or its own ``max_unacknowledged``, are full (not with
        ``when_full=False``). A consumer that holds items back, to handle several together, acknowledges them then.

        After None, items that another consumer has not acknowledged may still come: go on with `pull`.

        Cancelling, errors: as for `pull`.
        """
        intake = self._intake
        return intake.take_one() if await intake.are_there_items(when_full) else None

    async def pull_many(self, most: int | None = None) -> Items:
        """Small items that came together from one producer, at most ``most``: with one scope, and without an object for
        each. A larger item, or one with several parts or a header, comes alone: its parts are copied into one, and its
        header is dropped. `pull` gives all of it, and lends the memory.

        Cancelling, errors: as for `pull`. TypeError, ValueError: ``most`` is not a number from 1 on.
        """
        if most is not None:
            check_limits(most=most)
        intake = self._intake
        await intake.until_there_are_items()
        return intake.take_many(most)

    def __aiter__(self) -> AsyncIterator[Item]:
        """Each item, until the producers have no more. The body of the loop is the item's scope: the next step
        acknowledges it. After a ``break`` or an exception it is not acknowledged.
        """
        return Scopes(self.pull)

    def note_end(self, producer: bytes) -> None:
        """The program knows that a producer has no more items, and that all of them are acknowledged: it counts as one
        of ``producers``. A producer cannot tell a consumer that comes after the producer's end.
        ``producer``: the `id` of its `Push`. One that is known to have ended counts once.
        """
        check_type("producer", producer, bytes)
        self._check_open()
        self._intake.producer_ended(producer)

    def statistics(self) -> PullStatistics:
        """The numbers of this moment."""
        intake = self._intake
        return PullStatistics(
            received=intake.received,
            acknowledged=intake.acknowledged,
            redelivered=intake.redelivered,
            queued=intake.queued,
            lent_bytes=intake.memory.lent,
            ended=intake.ended,
            producers=intake.links(),
        )

    def counts(self) -> Counts:
        """The numbers for `aiofabric.metrics`."""
        return self._intake.counts()

    # -- connections

    def _joined(self, endpoint: MessageEndpoint, theirs: Hello) -> Incoming:
        return self._intake.join(Incoming(self._intake, endpoint, theirs))

    def _leave_loop(self) -> None:
        super()._leave_loop()
        self._intake.thread = 0

    async def _finish(self) -> None:
        self._closed = True
        await self._intake.finish()

    def _abort(self) -> None:
        self._intake.abort()
