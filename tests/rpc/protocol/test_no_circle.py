"""No calls wait for each other's memory for ever, however small the memory is, and in whatever order things happen.

The calls of one or two clients are made and handled by tasks that a random number generator schedules, over a network
that delays what it wants. When nothing can happen any more, every call must have ended, and no call may hold memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.flow import Budget
from tests.rpc.protocol.network import AcceptedCall, MadeCall, Network

WINDOW = 65536
LARGEST = 300_000

Task = Iterator[None]
"""Yields when it cannot go on now."""


class Reading:
    """A call whose messages a task takes one after the other."""

    reading = True

    def awaited(self) -> bool:
        return self.reading


class Made(Reading, MadeCall):
    pass


class Accepted(Reading, AcceptedCall):
    pass


class World(Network):
    """A client, and the tasks of both sides."""

    def __init__(self, limits: Limits, client: Limits, budget: Budget) -> None:
        super().__init__(client, limits, budget)
        self.tasks: list[Task] = []

    def _new_call(self) -> Accepted:
        call = Accepted()
        self.tasks.append(handler(call))
        return call


def next_message(call: Made | Accepted, random: Random | None = None) -> Iterator[None]:
    """Wait until there is a message or no more of them; now and then, stop to wait for a moment."""
    call.reading = False
    while not call.got and not call.received_end and not call.over:
        call.reading = True
        call.await_message()
        yield
        if random is not None and random.random() < 0.2:
            call.stop_awaiting()
            call.reading = False
            yield
    call.reading = False


def handler(call: Accepted) -> Task:
    """Echo each message of a stream when it has come, or all of them at the end."""
    yield
    kept = []
    while True:
        yield from next_message(call)
        if not call.got:
            break
        kept.append(call.got.pop(0))
        call.consumed()
        if call.method == "/echo/each":
            call.post(kept.pop())
            while call.sending and not call.over:
                yield
    for message in kept:
        call.post(message)
        while call.sending and not call.over:
            yield
    call.finish()


@dataclass(frozen=True)
class Plan:
    """A call: the sizes of its requests, and whether each is sent when the answer to the one before has come."""

    sizes: tuple[int, ...]
    in_turn: bool
    at_the_end: bool


def begin(network: World, plan: Plan, random: Random) -> list[Task]:
    call = Made()
    call.reading = False
    call.start(network.client, "/echo/all" if plan.at_the_end else "/echo/each")
    taken = 0

    def write() -> Task:
        for place, size in enumerate(plan.sizes):
            while plan.in_turn and not plan.at_the_end and taken < place and not call.over:
                yield
            call.post(bytes(size), end=place + 1 == len(plan.sizes))
            while call.sending:
                yield
        if not plan.sizes:
            call.half_close()

    def read() -> Task:
        nonlocal taken
        while not call.over or call.got:
            yield from next_message(call, random)
            if call.got:
                assert len(call.got.pop(0)) == plan.sizes[taken]
                call.consumed()
                taken += 1
        assert call.status is not None
        refused = call.status.code == 8 and not call.status.may_have_run  # the server has no memory for one more call
        assert refused or (call.status.code, taken) == (0, len(plan.sizes)), call.status

    return [write(), read()]


def run(networks: list[World], random: Random) -> None:
    """Let everything happen that can happen, in random order."""
    quiet = 0
    while quiet < 3:
        progress = 0
        for network in networks:
            for task in random.sample(network.tasks, len(network.tasks)):
                before = network.client.budget.used, network.server.budget.used, len(network.to_client)
                try:
                    next(task)
                except StopIteration:
                    network.tasks.remove(task)
                    progress += 1
                network.send()
                progress += before != (
                    network.client.budget.used,
                    network.server.budget.used,
                    len(network.to_client),
                )
            for queue in random.sample((network.to_client, network.to_server), 2):
                progress += network.deliver(queue, random.choice((0, 1, 3, 1000)))
                network.send()
        quiet = 0 if progress or any(each.to_client or each.to_server for each in networks) else quiet + 1


SIZES = st.sampled_from((1, 20_000, 70_000, 150_000, LARGEST))
PLANS = st.builds(Plan, st.lists(SIZES, max_size=3).map(tuple), st.booleans(), st.booleans())
MEMORY = st.integers(LARGEST, 4 * LARGEST)


@given(st.lists(PLANS, min_size=1, max_size=12), MEMORY, MEMORY, st.booleans(), st.integers(0, 1 << 32))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([Plan((LARGEST,), False, False)] * 12, LARGEST, LARGEST, False, 0)
@example([Plan((LARGEST, LARGEST), True, False)] * 12, 2 * LARGEST, LARGEST, True, 1)
def test_every_call_ends_with_little_memory_on_both_sides(
    plans: list[Plan], of_server: int, of_client: int, two_clients: bool, seed: int
) -> None:
    random = Random(seed)
    limits = Limits(window=WINDOW, memory=of_server)
    budget = Budget(of_server)
    client = Limits(window=WINDOW, memory=of_client)
    networks = [World(limits, client, budget) for _ in range(1 + two_clients)]
    for network in networks:
        network.settle()
    for place, plan in enumerate(plans):
        network = networks[place % len(networks)]
        network.tasks += begin(network, plan, random)
    run(networks, random)
    assert not any(network.tasks for network in networks), "calls wait for each other"
    assert budget.used == budget.reserved == budget.ahead == budget.waiting == 0
    for network in networks:
        mine = network.client.budget
        assert mine.used == mine.reserved == mine.ahead == mine.waiting == 0


@given(st.integers(1, 12), MEMORY, st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_unread_answers_delay_no_answer_that_a_task_waits_for(unread: int, memory: int, seed: int) -> None:
    random = Random(seed)
    network = World(Limits(window=WINDOW), Limits(window=WINDOW, memory=memory), Budget(1 << 30))
    network.settle()
    plan = Plan((LARGEST,), False, False)
    for _ in range(unread):
        write, _ = begin(network, plan, random)
        network.tasks.append(write)
    run([network], random)
    network.tasks.clear()  # handlers whose answers the program does not read
    network.tasks += begin(network, plan, random)
    run([network], random)
    assert not network.tasks
