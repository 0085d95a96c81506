"""Sharing: a producer's items, shared out by the credits that consumers grant.

The next items go to the consumer that has waited longest among those with credit. So a consumer that is twice as fast
gets twice as many. Items that a consumer had not acknowledged when it left come back, and go to the others before new
items, marked as redelivered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from .frames import ITEM_COST, MOST_IN_ROW, MOST_ITEMS, ProtocolError
from .groups import ItemGroup, Large, cost_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .hello import Hello

__all__ = ["FRAME_ROOM", "NUMBERED_COST", "Outgoing", "Sharing"]

NUMBERED_COST: Final = 12
"""Bytes of a small item's length and number in a frame."""
FRAME_ROOM: Final = 64
"""Bytes of a frame that are not used for items: the header, and some to spare."""
_MOST_JOINED: Final = (3 << 16) + FRAME_ROOM
"""Bytes of a frame with several items. Longer ones gain nothing, and a processor keeps less of them in its caches."""


class Outgoing:
    """The items that one consumer was sent, and its credits.

    ``send`` is called with each group, which the consumer has room for. If it leaves the group in ``open``, items of
    its kind join that group until ``open`` is None again.
    """

    __slots__ = (
        "bytes_left",
        "frame_left",
        "frame_size",
        "groups",
        "id",
        "items_left",
        "most_cost",
        "open",
        "place",
        "row_left",
        "send",
        "window",
    )

    def __init__(self, hello: Hello, send: Callable[[ItemGroup], Any]) -> None:
        self.id = hello.id
        self.frame_size = min(hello.recv_size, _MOST_JOINED)
        self.most_cost = hello.max_item_size + ITEM_COST
        self.window = self.items_left = hello.window
        self.bytes_left = hello.window_bytes
        self.send = send
        self.place = 0  # of the next item
        self.groups: deque[ItemGroup] = deque()  # that are not acknowledged, in the order of their places
        self.open: ItemGroup | None = None
        self.frame_left = 0  # bytes of the open group's frame for small items
        self.row_left = 0  # and for items of a row

    @property
    def items_out(self) -> int:
        """Items that were sent, and not acknowledged."""
        return self.window - self.items_left

    def has_room(self, cost: int) -> bool:
        """Whether the consumer has room for one item. One that is larger than its window goes when it has nothing."""
        if cost <= self.bytes_left:
            return self.items_left > 0 and cost <= self.most_cost
        return self.items_left == self.window and cost <= self.most_cost

    def give(self, group: ItemGroup) -> None:
        """Send a group, and keep it."""
        group.start = self.place
        self.place += len(group.items)
        self.items_left -= len(group.items)
        self.bytes_left -= group.left_bytes
        self.groups.append(group)
        self.send(group)

    def leave_open(self, group: ItemGroup) -> None:
        """Let items join a group of one."""
        self.open = group
        if (large := group.large) is not None:
            self.frame_left, self.row_left = 0, self.frame_size - FRAME_ROOM - large.size
        else:
            self.frame_left, self.row_left = self.frame_size - FRAME_ROOM - len(group.items[0]) - NUMBERED_COST, 0

    def join(self, item: bytes, number: int, cost: int) -> bool:
        """Add a small item to the open group; False if there is none, or if it is full."""
        group = self.open
        if group is None or (left := self.frame_left - len(item) - NUMBERED_COST) < 0:
            return False
        self.frame_left = left
        self._add(group, item, number, cost)
        return True

    def join_row(self, item: Large, number: int, cost: int) -> bool:
        """Add an item to the open group; False if that is no row, or if it is full."""
        group = self.open
        if group is None or not item.in_row or (left := self.row_left - item.size) < 0:
            return False
        self.row_left = left if len(group.items) + 1 < MOST_IN_ROW else 0
        self._add(group, item, number, cost)
        return True

    def _add(self, group: ItemGroup, item: bytes | Large, number: int, cost: int) -> None:
        group.add(item, number, cost)
        self.place += 1
        self.items_left -= 1
        self.bytes_left -= cost


class Sharing:
    """The items of one producer.

    ``at_least_once``: items come back from a consumer that has left; otherwise they are lost, and counted.
    ``most`` and ``most_bytes`` bound what is not acknowledged. ``room`` is called when items may be pushed again,
    ``idle`` when everything is acknowledged, ``each_acked`` with the number of each item that is, and ``forget`` with
    each `Large` that nobody needs any more.
    """

    def __init__(self, *, at_least_once: bool, most: int, most_bytes: int) -> None:
        self.at_least_once = at_least_once
        self.most = most
        self.most_bytes = most_bytes
        self.consumers: list[Outgoing] = []
        self.pushed = self.acknowledged = self.redelivered = self.lost = 0
        self.kept = self.kept_bytes = 0  # items that are not acknowledged
        self.room: Callable[[], object] = _nothing
        self.idle: Callable[[], object] = _nothing
        self.forget: Callable[[Large], object] = _nothing
        self.each_acked: Callable[[int], object] | None = None
        self._ready: deque[Outgoing] = deque()  # consumers, the one that has waited longest first
        self._returned: deque[ItemGroup] = deque()

    # -- consumers

    def join(self, consumer: Outgoing) -> None:
        """A consumer has come; it may get items at once."""
        self.consumers.append(consumer)
        self._ready.append(consumer)
        self._redeliver()
        self.room()

    def leave(self, consumer: Outgoing) -> None:
        """A consumer has gone: others get what it had not acknowledged."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._ready.remove(consumer)
        groups, consumer.groups = consumer.groups, deque()
        for group in groups:
            if group.large is not None:
                self.forget(group.large)
            if self.at_least_once:
                self._take_back(group)
            else:
                self.lost += group.left
                self._release(group.left, group.left_bytes)
        self._redeliver()
        self.room()

    def _take_back(self, group: ItemGroup) -> None:
        pairs = list(group.not_acknowledged())
        items, numbers = [item for item, _ in pairs], [number for _, number in pairs]
        self._returned.append(ItemGroup(items, numbers, group.left_bytes, redelivered=True, since=group.since))

    def _redeliver(self) -> None:
        while self._returned:
            group = self._returned[0]
            consumer = self._next(cost_of(group.items[0]))
            if consumer is None:
                return
            count = 1 if group.large is not None else self._how_many(consumer, group.items)
            items, numbers = group.items[:count], group.numbers[:count]
            cost = sum(map(cost_of, items))
            if count == len(group.items):
                self._returned.popleft()
            else:
                self._returned[0] = ItemGroup(
                    group.items[count:],
                    group.numbers[count:],
                    group.left_bytes - cost,
                    redelivered=True,
                    since=group.since,
                )
            self.redelivered += count
            consumer.give(ItemGroup(items, numbers, cost, redelivered=True, since=group.since))

    # -- items

    def push(self, item: Any, cost: int) -> int:
        """Send one item; returns its number, or -1 if it has no room here, or no consumer has. One larger than all
        memory goes alone.
        """
        if not self._has_room(cost):
            return -1
        consumer = self._next(cost)
        if consumer is None:
            return -1
        number = self.pushed
        self.pushed = number + 1
        self.kept += 1
        self.kept_bytes += cost
        if not (consumer.join_row if type(item) is Large else consumer.join)(item, number, cost):
            consumer.give(ItemGroup([item], [number], cost))
        return number

    def _has_room(self, cost: int) -> bool:
        kept = self.kept
        return not self._returned and kept < self.most and (not kept or self.kept_bytes + cost <= self.most_bytes)

    def push_some(self, items: Sequence[bytes]) -> int:
        """Send as many of the first small items as one frame and one consumer take; returns how many. 0: none now."""
        cost = cost_of(items[0])
        if not self._has_room(cost) or (consumer := self._next(cost)) is None:
            return 0
        count = min(self._how_many(consumer, items), self.most - self.kept)
        part = items[:count]
        cost = ITEM_COST * count + sum(map(len, part))
        while count > 1 and self.kept_bytes + cost > self.most_bytes:  # the first one fits
            count //= 2
            part = items[:count]
            cost = ITEM_COST * count + sum(map(len, part))
        number = self.pushed
        self.pushed += count
        self.kept += count
        self.kept_bytes += cost
        numbers = range(number, number + count)
        consumer.give(ItemGroup(part, numbers if count > 1 else [number], cost))  # others may join the only one
        return count

    def _how_many(self, consumer: Outgoing, items: Sequence[bytes]) -> int:
        """How many of the first items one frame to the consumer may have; at least one."""
        room = consumer.frame_size - FRAME_ROOM
        count = min(len(items), consumer.items_left, MOST_ITEMS, room // NUMBERED_COST)
        if consumer.most_cost < room:  # smaller than a frame, so each item must be looked at
            count = next((at for at in range(count) if cost_of(items[at]) > consumer.most_cost), count)
        while count > 1:
            size = sum(map(len, items[:count]))
            fits = size + NUMBERED_COST * count <= room and size + ITEM_COST * count <= consumer.bytes_left
            if fits:
                break
            mean = max(1, size // count)
            count = min(
                count - 1, max(1, min(room // (mean + NUMBERED_COST), consumer.bytes_left // (mean + ITEM_COST)))
            )
        return count

    def _next(self, cost: int) -> Outgoing | None:
        """The consumer for the next item. It goes to the end, as those do that have no room."""
        ready = self._ready
        if len(ready) == 1:  # 0.2 us instead of 0.4
            return ready[0] if ready[0].has_room(cost) else None
        for _ in range(len(ready)):
            consumer = ready[0]
            ready.rotate(-1)
            if consumer.has_room(cost):
                return consumer
        return None

    # -- acknowledgements

    def acked(self, consumer: Outgoing, start: int, end: int) -> None:
        """A consumer has acknowledged places. Raises `ProtocolError` if it was not sent all of them."""
        most = consumer.place if consumer.open is None else consumer.open.start
        if not 0 <= start < end <= most:
            raise ProtocolError(f"the places {start} to {end} were acknowledged, and {most} were sent")
        groups = consumer.groups
        at = 0
        while at < len(groups) and (group := groups[at]).start < end:
            if group.end <= start:
                at += 1
                continue
            numbers = () if self.each_acked is None else group.numbers_to_ack(start, end)
            items, size = group.ack(start, end)
            consumer.items_left += items
            consumer.bytes_left += size
            self.acknowledged += items
            if group.left:
                at += 1
            else:
                del groups[at]
                if (large := group.large) is not None:
                    self.forget(large)
                    large.parts = ()  # before `each_acked`: then the memory may be lent to another item
            if self.each_acked is not None:
                for number in numbers:
                    self.each_acked(number)
            self._release(items, size)
        self._redeliver()
        self.room()

    def _release(self, items: int, size: int) -> None:
        self.kept -= items
        self.kept_bytes -= size
        if not self.kept:
            self.idle()

    def age_of_oldest(self, now: float) -> float:
        """Seconds since the item was sent first that waits longest for its acknowledgement; 0 if none waits."""
        sent = (group for consumer in self.consumers for group in consumer.groups)
        return max((now - group.since for group in (*sent, *self._returned)), default=0.0)

    def group_at(self, consumer: Outgoing, place: int) -> ItemGroup:
        """The group whose first item has this place. Raises `ProtocolError` if there is none."""
        for group in consumer.groups:
            if group.start == place:
                return group
        raise ProtocolError(f"the item at the place {place} was read, and it is not exposed")


def _nothing(*_: object) -> None:
    pass
