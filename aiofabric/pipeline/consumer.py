"""Consumer: one consumer, as a producer sees it: the frames that it is sent, and those that it sends back."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio

from ..memory import close_together
from .protocol.frames import (
    ACK,
    DRAINING,
    END,
    FULL,
    READ,
    ProtocolError,
    decode_ack,
    encode_item,
    encode_items,
    encode_row,
    encode_signal,
)
from .protocol.sharing import Outgoing
from .runtime.connection import PipelineConnection
from .runtime.exposing import expose, travels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..transport.connected.endpoint import MessageEndpoint
    from .protocol.groups import ItemGroup, Large
    from .protocol.hello import Hello
    from .protocol.sharing import Sharing
    from .runtime.memory.item_pool import ItemPool

__all__ = ["Consumer", "close_regions"]


class Consumer:
    """Gets items of ``sharing`` while its connection lasts; ``left`` is called at the end, with the reason.

    ``fail`` gets the error of an item that no consumer can ever read.
    """

    def __init__(
        self,
        endpoint: MessageEndpoint,
        hello: Hello,
        sharing: Sharing,
        pool: ItemPool,
        left: Callable[[Consumer, BaseException], object],
        fail: Callable[[Exception], object],
    ) -> None:
        self._sharing = sharing
        self._pool = pool
        self._left = left
        self._fail = fail
        self._recv_size = hello.recv_size
        self._over = anyio.Event()
        self.outgoing = Outgoing(hello, self._send)
        self.connection = PipelineConnection(endpoint, self._arrived, self._ended, self._notes)
        self.connection.gathered = self._flush
        self.connection.sends_items = True

    def start(self) -> None:
        """Take frames, and get items, from now on."""
        self.connection.start()
        if not self.connection.ended:
            self._sharing.join(self.outgoing)

    async def wait_end(self) -> bool:
        await self._over.wait()
        return False

    def close(self) -> None:
        self.connection.end(anyio.ClosedResourceError("this producer was closed"))

    def announce_end(self) -> None:
        """The items that were pushed before leave first."""
        self._flush()
        self.connection.send(encode_signal(DRAINING))

    def announce_full(self) -> None:
        """The next item waits for acknowledgements of this consumer, if it has any left to give."""
        if self.outgoing.items_out:
            self._flush()
            self.connection.send(encode_signal(FULL))

    async def leave(self) -> None:
        """All items are acknowledged, and no more come."""
        self.connection.send(encode_signal(END))
        await self.connection.aclose()

    def _notes(self) -> Iterator[str]:
        yield f"a consumer; {self.outgoing.items_out} items were sent and are not acknowledged"

    # -- items

    def _send(self, group: ItemGroup) -> None:
        if not group.since:
            group.since = monotonic()
        self._flush()
        if (large := group.large) is not None:
            if large.in_row and not (group.redelivered or self.connection.gather()):
                self.outgoing.leave_open(group)
            else:
                self._send_large(group, large)
        elif len(group.items) > 1 or group.redelivered or self.connection.gather():
            self.connection.send(encode_items(group.items, group.numbers, group.redelivered))
        else:
            self.outgoing.leave_open(group)

    def _flush(self) -> bool:
        """Send the items that were gathered; whether there were some."""
        group, self.outgoing.open = self.outgoing.open, None
        if group is None:
            return False
        large = group.large
        if large is None:
            self.connection.send(encode_items(group.items, group.numbers))
        elif len(group.items) == 1:
            self._send_large(group, large)
        else:
            self.connection.send(encode_row([each.parts[0] for each in group.items], group.numbers))
        return True

    def _send_large(self, group: ItemGroup, large: Large) -> None:
        parts = large.parts
        if not travels(large.size, len(parts), self._recv_size):
            try:
                large.exposed, parts = expose(self.connection, parts, self._pool)
            except Exception as error:  # otherwise it would stay pushed, and `drain` would wait for ever
                self._fail(error)
                return
        self.connection.send(encode_item(large.header, parts, group.numbers[0], group.redelivered))

    # -- what the consumer says

    def _arrived(self, kind: int, frame: memoryview) -> None:
        if kind == ACK:
            for start, end in decode_ack(frame):
                self._sharing.acked(self.outgoing, start, end)
        elif kind == READ:
            large = self._sharing.group_at(self.outgoing, int.from_bytes(frame[8:16], "little")).large
            if large is None or large.exposed is None:
                raise ProtocolError("an item was read that is not exposed")
            close_regions(large)
        else:
            raise ProtocolError(f"a consumer does not send frames of the kind {kind}")

    def _ended(self, error: BaseException) -> None:
        self.outgoing.open = None
        self._left(self, error)
        self._sharing.leave(self.outgoing)
        self._over.set()


def close_regions(large: Large) -> None:
    """No consumer reads the item any more, or needs to."""
    regions, large.exposed = large.exposed, None
    close_together(regions or ())
