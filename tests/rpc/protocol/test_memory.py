"""Memory: a connection that takes more than its share waits, or loses calls, and the other connections go on."""

# Doubles: the memory of other connections is set by the test.

import struct

import pytest

from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.flow import Budget
from aiofabric.rpc.protocol.frames import NO_TIMEOUT, Flag, Kind, frame
from aiofabric.rpc.protocol.server import ServerConnection
from aiofabric.rpc.protocol.status import GoAwayReason, ProtocolError, StatusCode
from tests.rpc.protocol.network import AcceptedCall, Network

MESSAGE = 700_000
START = struct.pack("<QH", NO_TIMEOUT, 4) + b"/s/m"


def announcement(id: int, size: int = MESSAGE, flags: int = Flag.FIRST | Flag.MORE | Flag.RENDEZVOUS) -> bytes:
    """A call, and the first two bytes of a message."""
    start = frame(Kind.START, id, START, field=0xFFFF)
    return start + frame(Kind.MESSAGE, id, struct.pack("<Q", size) + b"ab", flags=flags)


def connection(budget: Budget, limits: Limits) -> ServerConnection:
    made = ServerConnection(limits, AcceptedCall, budget)
    made.receive(memoryview(Limits().preface().pack()), 0.0)
    return made


def begin(side: ServerConnection, id: int) -> None:
    side.receive(memoryview(frame(Kind.START, id, START, field=0xFFFF)), 0.0)


def proceeds(side: ServerConnection) -> int:
    """How many announcements may continue."""
    return sum(each[0] == Kind.PROCEED for each in side.take_output(0.0))


def test_announcements_of_one_connection_leave_memory_to_the_others() -> None:
    limits = Limits(memory=16 * MESSAGE)
    budget = Budget(limits.memory)
    hostile, honest = connection(budget, limits), connection(budget, limits)
    for id in range(1, 67):
        hostile.receive(memoryview(announcement(id)), 0.0)
    assert proceeds(hostile) == 5  # a quarter, and one message
    assert not budget.exhausted
    honest.receive(memoryview(announcement(1)), 0.0)
    assert proceeds(honest) == 1
    hostile.receive(memoryview(b"".join(frame(Kind.CANCEL, id) for id in (1, 2, 40))), 0.0)
    assert proceeds(hostile) == 2
    hostile.lost("gone")
    honest.lost("gone")
    assert budget.used == budget.waiting == 0
    assert not hostile.announced


def test_the_messages_of_a_connection_are_received_in_turn_when_it_holds_its_share() -> None:
    network = Network(server=Limits(memory=4 * MESSAGE))
    network.settle()
    calls = [network.call(message=bytes(MESSAGE), end=True) for _ in range(6)]
    for _ in calls:
        network.settle()
        for served in network.served.values():
            served.consumed()
    assert [len(network.served[call.id].got) for call in calls] == [1] * 6
    assert network.server.budget.used == 0


def test_an_announcement_takes_no_memory_before_it_is_reserved() -> None:
    limits = Limits(memory=MESSAGE, max_message=1 << 60)
    budget = Budget(1 << 61)
    side = connection(budget, limits)
    budget.used = budget.limit
    side.receive(memoryview(announcement(1, 1 << 60)), 0.0)
    assert side.failed is None
    assert budget.waiting == 1


def test_a_message_longer_than_the_window_must_be_announced() -> None:
    limits = Limits()
    side = connection(Budget(limits.memory), limits)
    side.receive(memoryview(announcement(1, limits.window + 1, Flag.FIRST | Flag.MORE)), 0.0)
    assert "was not announced" in str(side.failed)


@pytest.mark.parametrize("relieved", [False, True])
def test_new_calls_are_refused_past_the_limit_unless_another_connection_is_above_its_share(relieved: bool) -> None:
    limits = Limits(memory=100_000)
    budget = Budget(limits.memory)
    heavy, light = connection(budget, limits), connection(budget, limits)
    heavy.receive(memoryview(frame(Kind.START, 1, START, field=0xFFFF)), 0.0)
    for _ in range(8):
        heavy.receive(memoryview(frame(Kind.MESSAGE, 1, bytes(16_000))), 0.0)

    def reclaim() -> None:
        if relieved:
            for call in list(heavy.calls.values()):
                call.cut(8, "too much")

    budget.reclaim = reclaim
    for side, admitted in ((heavy, False), (light, relieved)):
        side.receive(memoryview(frame(Kind.START, 2, START, field=0xFFFF)), 0.0)
        assert (2 in side.calls) is admitted


def test_small_messages_beside_waiting_announcements_do_not_add_up_all_calls_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(memory=16 * MESSAGE)
    budget = Budget(limits.memory)
    side = connection(budget, limits)
    counted = 0

    def share_used(self: ServerConnection) -> int:
        nonlocal counted
        counted += 1
        return sum(call.share_used for call in self.calls.values())

    for id in range(1, 67):
        side.receive(memoryview(announcement(id)), 0.0)
    assert len(side.announced) == 61
    monkeypatch.setattr(ServerConnection, "share_used", property(share_used))
    side.receive(memoryview(frame(Kind.START, 100, START, field=0xFFFF)), 0.0)
    for _ in range(1000):
        side.receive(memoryview(frame(Kind.MESSAGE, 100, b"x")), 0.0)
        side.calls[100].consumed()
    assert counted < 10
    for _ in range(66):
        side.receive(memoryview(frame(Kind.CANCEL, min(side.calls))), 0.0)
    assert not side.announced
    assert budget.used == 0


def test_a_flood_of_refused_calls_reclaims_memory_once() -> None:
    limits = Limits(memory=100_000)
    budget = Budget(limits.memory)
    side = connection(budget, limits)
    asked: list[bool] = []
    budget.reclaim = lambda: asked.append(True)
    budget.used = budget.limit + 1  # of others
    for id in range(1, 100):
        side.receive(memoryview(frame(Kind.START, id, START, field=0xFFFF)), 0.0)
    assert not side.calls
    assert asked == [True]
    budget.used = 0
    side.receive(memoryview(frame(Kind.START, 100, START, field=0xFFFF)), 0.0)
    assert list(side.calls) == [100]


def test_metadata_of_running_calls_counts_and_is_free_when_they_end() -> None:
    limits = Limits(memory=200_000)
    network = Network(server=limits)
    network.settle()
    calls = [network.call(metadata=(("key", "x" * 15_000),)) for _ in range(20)]
    network.settle()
    refused = [call for call in calls if call.over]
    assert len(refused) == 6
    for call in refused:
        assert call.status is not None
        assert (call.status.code, call.status.may_have_run) == (StatusCode.RESOURCE_EXHAUSTED, False)
    running = [call for call in calls if not call.over]
    running[0].cancel()
    network.settle()
    network.served[running[1].id].finish()
    network.settle()
    assert not network.call(metadata=(("key", "x" * 15_000),)).over
    network.settle()
    network.cut()
    assert (network.server.budget.used, network.server.budget.running) == (0, 0)


def test_many_short_pairs_of_metadata_count_with_their_objects() -> None:
    network = Network(server=Limits(memory=1 << 20))
    network.settle()
    network.call(metadata=tuple(("k", "v") for _ in range(400)))
    network.settle()
    assert network.server.budget.running > 60_000


def test_announced_messages_do_not_wait_for_running_calls() -> None:
    """A call may wait for its message: the message must not wait for the end of the call."""
    limits = Limits(memory=MESSAGE)
    budget = Budget(limits.memory)
    side = connection(budget, limits)
    budget.running = budget.limit  # of others
    side.receive(memoryview(announcement(1)), 0.0)
    assert budget.exhausted
    assert proceeds(side) == 1


def with_unread_answers() -> ServerConnection:
    """A connection of whose answers more than half of the memory is unread."""
    limits = Limits(memory=100_000, max_calls=100)
    side = connection(Budget(limits.memory), limits)
    side.take_output(0.0)
    side.handed_over(60_000)
    return side


def test_a_client_that_reads_is_refused_calls_and_keeps_its_connection() -> None:
    side = with_unread_answers()
    for id in range(1, 2001):
        begin(side, id)
        assert not side.calls
        side.handed_over(sum(map(len, side.take_output(0.0))))
        if id % 100 == 0:  # it reads all, and more answers are under way
            side.has_left(side.unsent)
            side.handed_over(60_000)
    assert side.failed is None


def test_a_client_that_reads_nothing_and_begins_calls_loses_its_connection() -> None:
    side = with_unread_answers()
    for id in range(1, 202):
        assert side.failed is None
        begin(side, id)
    assert side.failed is not None
    assert side.failed.reason is GoAwayReason.LIMIT
    assert "does not read 60000 bytes of answers" in str(side.failed)
    (goaway,) = [each for each in side.take_output(0.0) if each[0] == Kind.GOAWAY]
    assert str(side.failed).encode() in goaway


def test_the_calls_of_a_client_say_why_the_server_has_ended_their_connection() -> None:
    network = Network()
    call = network.call()
    network.settle()
    network.server.fail(ProtocolError("The client does not read its answers", GoAwayReason.LIMIT))
    network.settle()
    assert call.status is not None
    assert call.status.code == StatusCode.UNAVAILABLE
    assert "The server has ended the connection: The client does not read its answers" in call.status.details
