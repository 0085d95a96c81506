"""A producer and its consumers against a model: arbitrary orders of pushing, acknowledging, coming and going."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiofabric.pipeline.protocol.groups import Large, cost_of
from aiofabric.pipeline.protocol.hello import Hello, Role
from aiofabric.pipeline.protocol.receipts import Receipts
from aiofabric.pipeline.protocol.sharing import Outgoing, Sharing

if TYPE_CHECKING:
    from aiofabric.pipeline.protocol.groups import ItemGroup

pytestmark = pytest.mark.once

MOST, MOST_BYTES = 20, 4000


class Consumer:
    """A consumer of the model: it checks what it is sent, and acknowledges in any order."""

    def __init__(self, window: int, window_bytes: int, *, gathers: bool = False) -> None:
        self.gathers = gathers
        hello = Hello(Role.PULL, b"c" * 16, 4096, window, window_bytes, 1 << 20)
        self.shown: list[Large] = []
        self.outgoing = Outgoing(hello, self.send)
        self.receipts = Receipts(hello)
        self.held: dict[int, tuple[int, int, bool]] = {}  # by place: number, cost, redelivered

    def send(self, sent: ItemGroup) -> None:
        self.flush()
        if self.gathers and not sent.redelivered and len(sent.items) == 1 and (sent.large is None or sent.large.in_row):
            self.outgoing.leave_open(sent)
        else:
            self.deliver(sent)

    def flush(self) -> None:
        """The gathered items arrive."""
        group, self.outgoing.open = self.outgoing.open, None
        if group is not None:
            self.deliver(group)

    def deliver(self, sent: ItemGroup) -> None:
        place = self.receipts.arrived(len(sent.items), sent.left_bytes, 0)  # raises without room
        assert place == sent.start
        for at, (item, number) in enumerate(zip(sent.items, sent.numbers, strict=True)):
            data = item
            if isinstance(item, Large):
                (data,) = item.parts
                if not item.in_row:
                    assert item is sent.large
                    assert item.exposed is None  # to a consumer before this one
                    item.exposed = []
                    self.shown.append(item)
            assert data == str(number).encode() * (len(data) // len(str(number)))
            self.held[place + at] = number, cost_of(item), sent.redelivered


def hide(large: Large) -> None:
    large.exposed = None


class Pipeline(RuleBasedStateMachine):
    at_least_once = True

    def __init__(self) -> None:
        super().__init__()
        self.producer = Sharing(at_least_once=self.at_least_once, most=MOST, most_bytes=MOST_BYTES)
        self.producer.forget = hide
        self.consumers: list[Consumer] = []
        self.finished: set[int] = set()  # numbers that were acknowledged
        self.delivered: set[int] = set()

    @rule(window=st.integers(1, 30), window_bytes=st.integers(1, 2000) | st.just(1 << 20), gathers=st.booleans())
    def come(self, window: int, window_bytes: int, gathers: bool) -> None:
        self.consumers.append(Consumer(window, window_bytes, gathers=gathers))
        self.producer.join(self.consumers[-1].outgoing)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        leaving = self.consumers.pop(data.draw(st.integers(0, len(self.consumers) - 1)))
        leaving.flush()
        self.delivered |= {number for number, _, _ in leaving.held.values()}
        self.producer.leave(leaving.outgoing)
        assert self.at_least_once or all(large.exposed is None for large in leaving.shown)

    @rule(repeats=st.integers(0, 600))
    def push(self, repeats: int) -> None:
        item = str(self.producer.pushed).encode() * repeats
        self.producer.push(item, cost_of(item))

    @rule(repeats=st.integers(1, 600), in_row=st.booleans())
    def push_large(self, repeats: int, in_row: bool) -> None:
        data = str(self.producer.pushed).encode() * repeats
        item = Large(b"", (data,), len(data), in_row)
        self.producer.push(item, cost_of(item))

    @rule(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=30))
    def push_some(self, sizes: list[int]) -> None:
        first = self.producer.pushed
        self.producer.push_some([str(first + at).encode() * size for at, size in enumerate(sizes)])

    @rule()
    def iteration_ends(self) -> None:
        for each in self.consumers:
            each.flush()

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from([each for each in self.consumers if each.held]))
        places = data.draw(st.lists(st.sampled_from(sorted(consumer.held)), min_size=1, unique=True))
        for place in places:
            number, cost, _ = consumer.held.pop(place)
            self.finished.add(number)
            consumer.receipts.ack(place, cost)
        for start, end in consumer.receipts.take():
            self.producer.acked(consumer.outgoing, start, end)

    @invariant()
    def nothing_is_lost(self) -> None:
        held = {number for each in self.consumers for number, _, _ in each.held.values()}
        held |= {number for each in self.consumers if each.outgoing.open for number in each.outgoing.open.numbers}
        waiting = self.producer.kept - len(held)  # came back, and no consumer has room
        lost = set() if self.at_least_once else self.delivered
        assert self.producer.lost == len(lost)
        assert self.producer.kept == self.producer.pushed - len(self.finished) - len(lost)
        assert waiting >= 0
        assert self.at_least_once or not waiting
        assert not held & (self.finished | lost)

    @invariant()
    def memory_is_shown_while_a_consumer_has_the_item(self) -> None:
        items = [item for each in self.consumers for group in each.outgoing.groups for item in group.items]
        large = [item for item in items if isinstance(item, Large) and not item.in_row]
        shown = [item for each in self.consumers for item in each.shown if item.exposed is not None]
        assert {id(item) for item in large} == {id(item) for item in shown}

    @invariant()
    def what_was_acknowledged_keeps_no_memory(self) -> None:
        for each in self.consumers:
            waiting = set(each.outgoing.open.numbers) if each.outgoing.open else set()
            waiting |= {number for number, _, _ in each.held.values()}
            for group in each.outgoing.groups:
                for item, number in zip(group.items, group.numbers, strict=True):
                    assert not isinstance(item, Large) or bool(item.parts) == (number in waiting)

    @invariant()
    def what_came_twice_is_marked(self) -> None:
        for each in self.consumers:
            for number, _, redelivered in each.held.values():
                assert redelivered == (number in self.delivered)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.producer.kept <= MOST
        assert self.producer.kept_bytes <= MOST_BYTES or self.producer.kept == 1

    def teardown(self) -> None:
        """A consumer with room for everything gets all that is left."""
        for each in self.consumers:
            each.flush()
            self.producer.leave(each.outgoing)
        last = Consumer(1000, 1 << 20)
        self.producer.join(last.outgoing)
        left = set(range(self.producer.pushed)) - self.finished if self.at_least_once else set()
        assert {number for number, _, _ in last.held.values()} == left


class PipelineAtMostOnce(Pipeline):
    """The items of a consumer that left are lost, and counted; none comes twice."""

    at_least_once = False


TestPipeline = Pipeline.TestCase
TestPipeline.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestPipelineAtMostOnce = PipelineAtMostOnce.TestCase
TestPipelineAtMostOnce.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
