"""Calls between two state machines over an ideal network. test_scripted.py has the other networks."""

import pytest

from aiofabric.rpc.protocol.connection import Limits
from aiofabric.rpc.protocol.frames import FRAME_COST
from tests.rpc.protocol.network import Network

pytestmark = pytest.mark.once


def test_a_unary_call_is_one_small_frame_each_way() -> None:
    network = Network()
    network.settle()
    network.call(message=b"", end=True)
    network.settle()
    network.recorded.clear()
    made = network.call(message=b"x" * 64, end=True)
    network.settle()
    served = network.served[made.id]
    assert (served.method, served.got, served.received_end) == ("/s/m", [b"x" * 64], True)
    served.finish(message=b"y" * 64)
    network.settle()
    assert made.got == [b"y" * 64]
    assert made.status is not None
    assert made.status.code == 0
    assert [(who, len(data)) for who, data in network.recorded] == [("client", 24 + 64), ("server", 16 + 64)]


def test_metadata_travels_both_ways_in_order() -> None:
    network = Network()
    pairs = (("a", "1"), ("k-bin", b"\0\xff"), ("a", "2"))
    made = network.call(metadata=pairs, message=b"q", end=True)
    network.settle()
    served = network.served[made.id]
    assert served.metadata == pairs
    served.send_headers(pairs[:1])
    served.finish(3, "näh", pairs)
    network.settle()
    assert made.initial_metadata == pairs[:1]
    assert made.status is not None
    assert (made.status.code, made.status.details, made.status.metadata) == (3, "näh", pairs)


@pytest.mark.parametrize("size", [16384, 16385, 65536, 65537, 262144, 262145, 3 << 20])
def test_a_message_of_any_size_arrives_whole(size: int) -> None:
    network = Network()
    network.settle()
    message = bytes(range(256)) * (size // 256 + 1)
    made = network.call(message=message[:size], end=True)
    network.settle()
    served = network.served[made.id]
    assert served.got == [message[:size]]
    served.finish(message=message[:size])
    network.settle()
    assert made.got == [message[:size]]
    assert made.status is not None
    assert made.status.code == 0
    served.consumed()
    made.consumed()
    assert (network.client.budget.used, network.server.budget.used) == (0, 0)


def test_a_sender_stops_when_its_credits_are_spent_and_goes_on_when_messages_are_consumed() -> None:
    network = Network(server=Limits(window=65536))
    network.settle()
    made = network.call()
    count = 0
    while made.post(b"x" * 1000):
        count += 1
    assert count == 65536 // (1000 + FRAME_COST)
    network.settle()
    served = network.served[made.id]
    assert len(served.got) == count
    assert "writable" not in made.events
    for _ in range(count):
        served.consumed()
    network.settle()
    assert "writable" in made.events
    assert len(served.got) == count + 1


def test_two_large_messages_are_reserved_one_after_the_other() -> None:
    network = Network(server=Limits(memory=1 << 20))
    network.settle()
    first, second = (network.call(message=b"x" * 700_000, end=True) for _ in range(2))
    network.settle()
    assert [len(network.served[call.id].got) for call in (first, second)] == [1, 0]
    network.served[first.id].consumed()
    network.settle()
    assert [len(network.served[call.id].got) for call in (first, second)] == [1, 1]


def test_a_message_longer_than_the_limit_ends_its_call_only() -> None:
    network = Network(server=Limits(max_message=100_000))
    network.settle()
    long, short = network.call(message=b"x" * 100_001, end=True), network.call(message=b"x", end=True)
    network.settle()
    assert long.status is not None
    assert long.status.code == 8
    assert "100001 vs. 100000" in long.status.details
    assert short.status is None
    assert network.server.budget.used == 0


def test_cancel_ends_the_call_here_at_once_and_there_when_it_arrives() -> None:
    network = Network()
    made = network.call(message=b"x")
    network.settle()
    assert made.cancel(1, "no longer wanted")
    assert not made.cancel()
    assert made.events == ["ended"]
    network.settle()
    served = network.served[made.id]
    assert served.events == ["started", "cancelled"]
    served.finish(message=b"too late")
    network.settle()
    assert made.got == []
    assert network.client.failed is network.server.failed is None


def test_a_start_that_has_not_left_is_taken_back_and_has_not_run() -> None:
    network = Network()
    network.settle()
    made = network.call(message=b"x", end=True)
    made.cancel()
    assert made.status is not None
    assert not made.status.may_have_run
    network.settle()
    assert made.id not in network.served


def test_an_expired_call_is_not_sent_and_the_time_left_is_stamped_when_it_leaves() -> None:
    network = Network()
    network.settle()
    expired = network.call(deadline=network.now + 1, message=b"x", end=True)
    alive = network.call(deadline=network.now + 10, message=b"x", end=True)
    network.now += 2
    network.settle()
    assert expired.status is not None
    assert expired.status.code == 4
    assert not expired.status.may_have_run
    assert expired.id not in network.served
    assert network.served[alive.id].deadline == pytest.approx(network.now + 8)


def test_a_call_refused_by_goaway_has_not_run() -> None:
    network = Network()
    early = network.call(message=b"x", end=True)
    network.settle()
    network.server.drain()
    network.send()
    crossing = network.call(message=b"x", end=True)  # the client has not read GOAWAY
    network.settle()
    late = network.call(message=b"x", end=True)
    network.settle()
    assert crossing.id in network.served
    assert not network.client.usable
    assert late.status is not None
    assert not late.status.may_have_run
    for call in (early, crossing):
        network.served[call.id].finish(message=b"y")
    network.settle()
    assert network.client.finished


def test_a_lost_connection_ends_every_call() -> None:
    network = Network()
    network.settle()
    sent = network.call(message=b"x", end=True)
    network.settle()
    held = network.call(message=b"x", end=True)
    network.client.lost("cut")
    network.server.lost("cut")
    assert [(call.status.code, call.status.may_have_run) for call in (sent, held) if call.status] == [
        (14, True),
        (14, False),
    ]
    assert network.served[sent.id].events[-1] == "cancelled"
    assert (network.client.budget.used, network.server.budget.used) == (0, 0)


def test_names_are_interned_until_the_table_is_full_and_sent_in_full_then() -> None:
    network = Network(server=Limits(table=100))
    network.settle()
    names = [f"/service/method-{number}" for number in range(5)]
    for name in [*names, *names]:
        made = network.call(name, (("key-" + name[-1], "v"),), message=b"", end=True)
        network.settle()
        assert network.served[made.id].method == name
    assert network.server.failed is None
    assert network.client.names.room >= 0


def test_calls_before_the_servers_preface_have_the_smallest_window() -> None:
    network = Network()
    made = network.call()
    network.settle()
    assert made.window == 65536
    served = network.served[made.id]
    count = 0
    for _ in range(1000):  # it would stop here if the server granted at half of its own window
        made.post(b"x" * 10_000)
        network.settle()
        while len(served.got) > count:
            served.consumed()
            count += 1
        network.settle()
    assert len(served.got) == 1000


def test_the_budget_refuses_new_calls_while_it_is_exhausted() -> None:
    network = Network(server=Limits(memory=100_000))
    network.settle()
    full = network.call()
    for _ in range(10):
        full.post(b"x" * 16_000)
    network.settle()
    refused = network.call(message=b"x", end=True)
    network.settle()
    assert refused.status is not None
    assert (refused.status.code, refused.status.may_have_run) == (8, False)
    for _ in range(10):
        network.served[full.id].consumed()
    accepted = network.call(message=b"x", end=True)
    network.settle()
    assert accepted.status is None


def test_too_many_resets_end_the_connection() -> None:
    network = Network(server=Limits(resets=1, reset_burst=10))
    for _ in range(12):
        made = network.call(message=b"x")
        network.settle()
        made.cancel()
        network.settle()
    assert network.server.failed is not None
    assert network.client.goaway_received is not None
    assert network.client.goaway_received[1] == 3


def test_a_cancelled_call_counts_until_its_handler_has_ended() -> None:
    network = Network(server=Limits(max_calls=2))
    network.settle()
    calls = []
    for _ in range(2):  # twice the limit may run, since a client counts no call that it has cancelled
        calls += [network.call(message=b"x") for _ in range(2)]
        network.settle()
        for call in calls:
            call.cancel()
    network.settle()
    refused = network.call(message=b"x")
    network.settle()
    assert refused.status is not None
    assert refused.status.code == 8
    network.served[calls[0].id].release()
    accepted = network.call(message=b"x")
    network.settle()
    assert accepted.status is None


def test_metadata_that_is_refused_here_leaves_the_names_of_both_sides_equal() -> None:
    network = Network()
    network.settle()
    refused = network.call("/new/method", (("key", "x" * 40_000),), message=b"", end=True)
    assert refused.status is not None
    assert (refused.status.code, refused.status.may_have_run) == (8, False)
    made = network.call("/new/method", message=b"x", end=True)
    network.settle()
    assert network.server.failed is None
    assert network.served[made.id].method == "/new/method"
