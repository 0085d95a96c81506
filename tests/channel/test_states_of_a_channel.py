"""The state machine of a byte channel, without I/O: the test is the endpoint, the peer, and the loop."""

from typing import Any

import pytest
from anyio import ClosedResourceError

from aiofabric import FabricBrokenPipeError, FabricConnectionAbortedError
from aiofabric._core import COPY_LIMIT
from aiofabric.channel.frames import CLOSE, DATA, END, FRAME_COST, GRANT, PLAIN, header
from tests.channel.scripted import LARGE, SMALL, Channel

pytestmark = pytest.mark.once

ROOM = SMALL.window - FRAME_COST  # data of one frame that uses all credits


@pytest.fixture
def peer() -> Channel:
    return Channel()


# -- sends that leave at once


@pytest.mark.parametrize(("size", "sent"), [(0, 0), (1, 1), (1000, 1000), (1001, 0)])
def test_a_frame_holds_as_much_as_the_peers_buffer(size: int, sent: int, peer: Channel) -> None:
    data = bytes(range(256)) * 4
    assert peer.channel.try_send(data[:size]) == sent
    assert peer.sent == ([PLAIN + data[:size]] if sent else [])
    assert peer.credits == 2000 - (sent + FRAME_COST if sent else 0)


@pytest.mark.parametrize(("size", "sent"), [(136, 136), (137, 0)])
def test_a_frame_needs_credits_for_its_data_and_its_cost(size: int, sent: int, peer: Channel) -> None:
    peer.spend(200)
    assert peer.channel.try_send(bytes(size)) == sent
    assert peer.credits == (0 if sent else 200)


@pytest.mark.parametrize(("left", "flows"), [(FRAME_COST, False), (FRAME_COST + 1, True)])
def test_data_flows_as_long_as_credits_for_a_byte_are_left(left: int, flows: bool, peer: Channel) -> None:
    peer.spend(left)
    woken: list[int] = []
    assert peer.channel.flowing is flows
    peer.channel.when_writable(lambda: woken.append(1))
    assert len(woken) == flows


def test_data_does_not_overtake_earlier_posts(peer: Channel) -> None:
    peer.spend(0)
    peer.post(b"first")
    peer.grant(1)
    peer.channel.when_writable(lambda: peer.told.append(None))
    assert not peer.channel.flowing
    assert peer.channel.try_send(b"x") == 0
    assert not peer.told
    peer.grant(500)
    assert peer.sent == [PLAIN + b"first"]
    assert peer.told == [None, None]  # the post, and the writer
    assert peer.channel.try_send(b"x") == 1


@pytest.mark.parametrize("size", [COPY_LIMIT, COPY_LIMIT + 1])
def test_bytes_above_the_limit_are_sent_without_a_copy(size: int) -> None:
    peer = Channel(theirs=LARGE)
    data = bytes(size)
    assert peer.channel.try_send(data) == size
    assert peer.sent == [PLAIN + data]
    assert peer.endpoint.injected == (size == COPY_LIMIT)


@pytest.mark.parametrize(("size", "sent"), [(COPY_LIMIT, COPY_LIMIT), (COPY_LIMIT + 1, 0)])
def test_memory_that_may_change_is_copied_up_to_the_limit(size: int, sent: int) -> None:
    peer = Channel(theirs=LARGE)
    assert peer.channel.try_send(memoryview(bytearray(size))) == sent
    assert len(peer.sent) == bool(sent)


def test_a_frame_that_is_too_long_to_inject_is_posted(peer: Channel) -> None:
    peer.endpoint.inline = False
    assert peer.channel.try_send(b"x") == 1
    assert peer.sent == [PLAIN + b"x"]
    assert len(peer.endpoint.transfers) == 1
    assert peer.endpoint.transfers[0].notify is None


def test_a_send_that_the_provider_refuses_raises_and_breaks_the_stream(peer: Channel) -> None:
    error = ConnectionResetError("gone")
    peer.endpoint.refusals.append(error)
    with pytest.raises(ConnectionResetError) as caught:
        peer.channel.try_send(b"x")
    assert caught.value is error
    with pytest.raises(ConnectionResetError):
        peer.channel.try_send(b"x")
    assert not peer.sent
    assert not peer.endpoint.closed  # received data may still be taken


def test_an_endpoint_that_admits_no_call_is_asked_for_the_reason(peer: Channel) -> None:
    peer.endpoint.admits = False
    with pytest.raises(ConnectionResetError, match="fi_send refused"):
        peer.channel.try_send(b"x")


# -- posted data, in frames as credits allow


def test_a_large_post_is_cut_into_frames(peer: Channel) -> None:
    data = bytearray(range(250)) * 6
    peer.post(data)
    first, second = peer.sent
    assert first == PLAIN + data[:1000]
    assert second == PLAIN + data[1000:]
    assert peer.channel.unsent == 0
    assert peer.credits == 2000 - 1500 - 2 * FRAME_COST


def test_lent_memory_is_free_when_all_its_frames_have_left(peer: Channel) -> None:
    peer.post(bytearray(1500))
    first, second = peer.endpoint.transfers
    second.complete()
    assert not peer.told
    first.complete()
    assert peer.told == [None]


def test_bytes_are_free_when_their_last_frame_is_handed_over(peer: Channel) -> None:
    peer.spend(1100)
    peer.post(bytes(1500))
    assert peer.sizes == [1000]
    assert not peer.told
    peer.grant(1000)
    assert peer.sizes == [500]
    assert peer.told == [None]
    assert [each.notify for each in peer.endpoint.transfers] == [None] * len(peer.endpoint.transfers)


def test_a_lent_frame_that_fails_reports_the_error_once(peer: Channel) -> None:
    peer.post(bytearray(1500))
    first, second = peer.endpoint.transfers
    error = ConnectionResetError()
    first.complete(error)
    second.complete(ConnectionResetError("another"))
    assert peer.told == [error]


def test_the_end_of_the_connection_ends_posts_that_wait(peer: Channel) -> None:
    peer.post(bytearray(2500))
    peer.post(b"behind")
    error = peer.breaks()
    assert peer.told == [error, error]
    assert peer.channel.unsent == 0
    for each in peer.endpoint.transfers:
        each.complete(error)
    assert peer.told == [error, error]


def test_no_tiny_frame_uses_the_last_credits(peer: Channel) -> None:
    """At least a quarter of the window, unless less is left to send."""
    peer.post(bytearray(2500))
    assert peer.sizes == [1000, 872]
    assert (peer.credits, peer.channel.unsent) == (0, 628)
    peer.grant(499 + FRAME_COST)
    assert peer.sizes == []
    peer.grant(1)
    assert peer.sizes == [500]
    peer.grant(127 + FRAME_COST)
    assert peer.sizes == []
    peer.grant(1)
    assert peer.sizes == [128]
    assert (peer.credits, peer.channel.unsent) == (0, 0)


def test_small_posts_share_a_frame(peer: Channel) -> None:
    peer.spend(0)
    for part in (b"one", bytearray(b"two"), b"three"):
        peer.post(part)
    assert peer.channel.unsent == 11
    assert not peer.told
    peer.grant(11 + FRAME_COST)
    assert peer.sent == [PLAIN + b"onetwothree"]
    assert peer.told == [None] * 3
    assert (peer.credits, peer.channel.unsent) == (0, 0)


def test_posts_share_a_frame_only_if_they_fit(peer: Channel) -> None:
    peer.spend(0)
    for size in (400, 600, 1):
        peer.post(bytes(size))
    peer.grant(2000)
    assert peer.sizes == [1000, 1]
    assert peer.told == [None] * 3


def test_a_post_that_shares_no_frame_is_sent_from_where_it_is(peer: Channel) -> None:
    peer.spend(0)
    for size in (600, 500):
        peer.post(bytearray(size))
    peer.grant(2000)
    assert peer.sizes == [600, 500]
    assert not peer.told
    for each in peer.endpoint.transfers[-2:]:
        each.complete()
    assert peer.told == [None] * 2


def test_the_rest_of_a_lent_post_is_joined_and_free_with_its_earlier_frame(peer: Channel) -> None:
    peer.spend(1064)
    peer.post(bytearray(1100))
    peer.post(b"behind")
    assert peer.sizes == [1000]
    peer.grant(2000)
    assert peer.sizes == [106]
    assert peer.told == [None]  # the second one
    peer.endpoint.transfers[0].complete()
    assert peer.told == [None, None]


def test_a_post_that_the_provider_refuses_is_told(peer: Channel) -> None:
    error = ConnectionResetError("gone")
    peer.endpoint.refusals.append(error)
    peer.post(bytearray(100))
    assert peer.told == [error]
    with pytest.raises(ConnectionResetError):
        peer.post(b"more")
    assert peer.told == [error]


def test_a_later_frame_that_the_provider_refuses_ends_the_post(peer: Channel) -> None:
    peer.post(bytearray(2500))
    error = ConnectionResetError("gone")
    peer.endpoint.refusals.append(error)
    peer.grant(1000)
    assert peer.told == [error]
    assert peer.channel.unsent == 0
    for each in peer.endpoint.transfers:
        each.complete(error)
    assert peer.told == [error]


# -- credits of the peer


def test_taken_data_is_granted_alone_when_half_of_the_window_is_due(peer: Channel) -> None:
    peer.comes(PLAIN + bytes(900))
    assert peer.channel.statistics().receive_credits == 2000 - 964
    assert peer.channel.try_recv(1000) == bytes(900)
    assert not peer.sent
    peer.comes(PLAIN + bytes(36))
    peer.channel.try_recv(1000)  # 964 + 36 + 64 credits
    assert peer.sent == [header(GRANT, 1064)]
    assert peer.channel.statistics().receive_credits == 2000


def test_exactly_half_of_the_window_is_granted(peer: Channel) -> None:
    peer.comes(PLAIN + bytes(1000 - FRAME_COST))
    peer.channel.try_recv(1000)
    assert peer.sent == [header(GRANT, 1000)]


@pytest.mark.parametrize(("taken", "granted"), [(499, 0), (500, 500)])
def test_a_data_frame_grants_when_a_quarter_of_the_window_is_due(taken: int, granted: int, peer: Channel) -> None:
    peer.comes(PLAIN + bytes(taken - FRAME_COST))
    peer.channel.try_recv(1000)
    peer.channel.try_send(b"x")
    peer.channel.try_send(b"y")
    assert peer.sent == [header(DATA, granted) + b"x", PLAIN + b"y"]
    assert peer.channel.statistics().receive_credits == 2000 - taken + granted


def test_a_part_of_a_frame_is_granted_without_the_frames_cost(peer: Channel) -> None:
    peer.comes(PLAIN + bytes(600))
    for _ in range(2):
        peer.channel.try_recv(250)
    peer.channel.try_send(b"x")
    assert peer.sent == [header(DATA, 500) + b"x"]
    assert peer.channel.try_recv(1000) == bytes(100)
    peer.comes(PLAIN + bytes(272))
    peer.channel.try_recv(1000)
    peer.channel.try_send(b"x")
    assert peer.sent == [header(DATA, 100 + FRAME_COST + 272 + FRAME_COST) + b"x"]


def test_the_end_grants_what_is_due(peer: Channel) -> None:
    peer.comes(PLAIN + bytes(100))
    peer.channel.try_recv(1000)
    peer.channel.shutdown_write()
    assert peer.sent == [header(END, 164)]
    assert peer.channel.statistics().receive_credits == 2000


def test_grants_of_data_frames_count(peer: Channel) -> None:
    peer.spend(0)
    peer.post(b"waits")
    peer.comes(header(DATA, 1000) + b"data")
    assert peer.sent == [PLAIN + b"waits"]
    assert peer.channel.try_recv(10) == b"data"
    peer.comes(header(END, 500))
    assert peer.credits == 1000 - 5 - FRAME_COST + 500


# -- a peer that breaks the protocol


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([b"abc"], "it sent a frame of 3 bytes"),
        ([header(GRANT, 1)], "it granted more credits than it was sent bytes"),
        ([header(DATA, 1) + b"x"], "it granted more credits than it was sent bytes"),
        ([header(9, 0)], "it sent a frame of unknown kind 9"),
        ([PLAIN], "it sent data without credit, without bytes, or after the end"),
        ([header(END, 0), PLAIN + b"x"], "it sent data without credit, without bytes, or after the end"),
        ([PLAIN + bytes(ROOM + 1)], "it sent data without credit, without bytes, or after the end"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_cut_off(frames: list[bytes], why: str, peer: Channel) -> None:
    for frame in frames:
        assert peer.endpoint.aborts == 0
        peer.comes(frame)
    assert peer.endpoint.aborts == 1
    assert peer.source.interest == 1
    for call in (lambda: peer.channel.try_recv(1), lambda: peer.channel.try_send(b"x"), peer.channel.shutdown_write):
        with pytest.raises(FabricConnectionAbortedError, match=why):
            call()
    peer.comes(PLAIN + b"more")  # ignored
    peer.comes(b"")
    assert peer.endpoint.aborts == 1


def test_all_credits_may_be_used_and_given_back(peer: Channel) -> None:
    peer.comes(PLAIN + bytes(ROOM))
    assert peer.channel.statistics().receive_credits == 0
    assert peer.channel.try_recv(4000) == bytes(ROOM)
    assert peer.sent == [header(GRANT, 2000)]
    peer.spend(0)
    peer.grant(2000)
    assert (peer.endpoint.aborts, peer.credits) == (0, 2000)


# -- received data


def test_data_is_taken_in_parts_and_in_order(peer: Channel) -> None:
    for data in (b"abc", b"defg"):
        peer.comes(PLAIN + data)
    assert peer.channel.statistics().receive_queued == 7
    room = memoryview(bytearray(9))
    assert [peer.channel.try_recv(2), peer.channel.try_recv(1)] == [b"ab", b"c"]
    assert peer.channel.try_recv_into(room) == 4
    assert bytes(room[:5]) == b"defg\0"
    assert peer.channel.try_recv(1) is None
    assert peer.channel.try_recv_into(room) is None
    assert not peer.channel.readable


def test_a_watcher_may_take_the_data_from_the_pools_memory(peer: Channel) -> None:
    took: list[Any] = []
    peer.channel.watch(lambda: took.append(peer.channel.try_recv(3)))
    assert peer.endpoint.thread_checks == 1
    peer.comes(PLAIN + b"abc")
    assert took == [b"abc"]
    assert not peer.channel.readable
    peer.comes(PLAIN + b"defg")
    assert took == [b"abc", b"def"]
    assert peer.channel.statistics().receive_queued == 1
    peer.channel.watch(None)
    assert peer.endpoint.thread_checks == 1
    assert peer.channel.try_recv(9) == b"g"


def test_a_watcher_is_not_called_while_earlier_data_waits(peer: Channel) -> None:
    peer.comes(PLAIN + b"abc")
    calls: list[bool] = []
    peer.channel.watch(lambda: calls.append(peer.channel.readable))
    peer.comes(PLAIN + b"def")
    assert not calls
    assert peer.channel.try_recv(9) == b"abcdef"  # of several frames
    peer.comes(header(END, 0))
    assert calls == [True]


def test_the_end_is_read_after_the_data(peer: Channel) -> None:
    peer.comes(PLAIN + b"abc")
    peer.comes(header(END, 0))
    assert (peer.channel.readable, peer.channel.ended) == (True, False)
    assert peer.channel.try_recv(9) == b"abc"
    assert (peer.channel.readable, peer.channel.ended) == (True, True)
    assert [peer.channel.try_recv(9), peer.channel.try_recv(9)] == [b"", b""]
    assert peer.channel.try_recv_into(memoryview(bytearray(2))) == 0
    assert peer.channel.try_send(b"still") == 5


def test_a_channel_is_readable_while_its_watcher_may_take_fresh_data(peer: Channel) -> None:
    seen: list[tuple[bool, bool]] = []
    peer.channel.watch(lambda: seen.append((peer.channel.readable, peer.channel.ended)))
    peer.comes(PLAIN + b"abc")
    assert seen == [(True, False)]


def test_the_loss_of_the_connection_is_read_after_the_data(peer: Channel) -> None:
    peer.comes(PLAIN + b"abc")
    woken: list[str] = []
    peer.channel.watch(lambda: woken.append("reader"))
    error = peer.breaks()
    assert woken == ["reader"]
    assert peer.channel.try_recv(9) == b"abc"
    assert not peer.sent  # nothing is granted to a peer that is gone
    assert peer.channel.ended
    with pytest.raises(ConnectionResetError) as caught:
        peer.channel.try_recv(9)
    assert caught.value is error


def test_the_loss_of_the_connection_wakes_a_writer(peer: Channel) -> None:
    peer.spend(0)
    woken: list[str] = []
    peer.channel.when_writable(lambda: woken.append("writer"))
    peer.breaks()
    peer.breaks()
    assert woken == ["writer"]
    peer.channel.when_writable(lambda: woken.append("later"))
    assert woken == ["writer", "later"]


def test_a_writer_that_waits_no_more_is_not_called(peer: Channel) -> None:
    peer.spend(0)
    woken: list[str] = []
    peer.channel.when_writable(lambda: woken.append("writer"))
    peer.channel.when_writable(None)
    peer.grant(1000)
    assert not woken


@pytest.mark.parametrize(("credits", "wakes"), [(FRAME_COST, False), (FRAME_COST + 1, True)])
def test_a_writer_is_woken_when_a_byte_can_be_sent(credits: int, wakes: bool, peer: Channel) -> None:
    peer.spend(0)
    woken: list[str] = []
    peer.channel.when_writable(lambda: woken.append("writer"))
    peer.grant(credits)
    assert bool(woken) is wakes


# -- the ends


def test_the_end_is_sent_once_after_all_posted_data(peer: Channel) -> None:
    peer.spend(0)
    peer.post(b"data")
    peer.channel.shutdown_write()
    peer.channel.shutdown_write()
    assert not peer.sent
    peer.grant(1000)
    assert peer.sent == [PLAIN + b"data", header(END, 0)]
    peer.grant(1)
    peer.channel.shutdown_write()
    assert not peer.sent
    with pytest.raises(ClosedResourceError, match="the end of this direction was announced"):
        peer.channel.try_send(b"x")


def test_the_end_of_a_lost_connection_is_not_sent(peer: Channel) -> None:
    error = peer.breaks()
    peer.channel.shutdown_write()
    assert not peer.sent
    with pytest.raises(ConnectionResetError) as caught:
        peer.channel.try_send(b"x")
    assert caught.value is error


def test_a_close_waits_for_posted_data_and_for_the_peers_close(peer: Channel) -> None:
    done: list[int] = []
    peer.spend(0)
    peer.post(b"data")
    peer.channel.close(lambda: done.append(1))
    assert not peer.sent
    peer.grant(1000)
    assert peer.sent == [PLAIN + b"data", header(CLOSE, 0)]
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([], 0, 2)
    peer.comes(PLAIN + b"late")  # counted, and dropped
    assert peer.channel.statistics().bytes_received == 4
    assert peer.channel.statistics().receive_queued == 0
    peer.comes(header(CLOSE, 0))
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)
    assert not peer.sent
    peer.comes(header(CLOSE, 0))
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)


def test_a_close_drops_data_that_was_not_taken_and_wakes_the_reader(peer: Channel) -> None:
    peer.comes(PLAIN + b"data")
    woken: list[str] = []
    peer.channel.watch(lambda: woken.append("reader"))
    peer.channel.close(lambda: None)
    assert woken == ["reader"]
    assert peer.channel.statistics().receive_queued == 0
    assert peer.channel.readable
    assert peer.channel.ended
    for call in (lambda: peer.channel.try_recv(1), lambda: peer.channel.try_send(b"x"), peer.channel.shutdown_write):
        with pytest.raises(ClosedResourceError):
            call()


def test_a_close_after_the_end_sends_close(peer: Channel) -> None:
    peer.channel.shutdown_write()
    peer.channel.close(lambda: None)
    assert peer.sent == [header(END, 0), header(CLOSE, 0)]


def test_the_peers_close_is_answered_and_ends_sending(peer: Channel) -> None:
    peer.comes(PLAIN + b"data")
    peer.spend(0)
    peer.post(bytearray(5))
    peer.comes(header(CLOSE, 0))
    assert peer.sent == [header(CLOSE, 0)]
    assert isinstance(peer.told[0], FabricBrokenPipeError)
    with pytest.raises(FabricBrokenPipeError):
        peer.channel.try_send(b"x")
    assert [peer.channel.try_recv(9), peer.channel.try_recv(9)] == [b"data", b""]
    assert peer.endpoint.aborts == 0
    done: list[int] = []
    peer.channel.close(lambda: done.append(1))
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)
    assert not peer.sent


def test_a_close_of_a_lost_connection_is_done_at_once(peer: Channel) -> None:
    peer.breaks()
    done: list[int] = []
    peer.channel.close(lambda: done.append(1))
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)
    assert not peer.sent
    with pytest.raises(ClosedResourceError):
        peer.channel.try_send(b"x")


def test_a_connection_that_is_lost_while_it_closes_ends_the_close(peer: Channel) -> None:
    done: list[int] = []
    peer.channel.close(lambda: done.append(1))
    peer.breaks()
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)
    with pytest.raises(ClosedResourceError):
        peer.channel.try_send(b"x")


def test_the_endpoint_closes_after_the_progress_pass(peer: Channel) -> None:
    """The completions that a close flushes must still be read."""
    done: list[int] = []
    peer.channel.close(lambda: done.append(1))
    peer.source.draining = True
    peer.comes(header(CLOSE, 0))
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([], 0, 2)
    peer.source.draining = False
    peer.source.driver.iterate()
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)


def test_a_close_after_an_abort_keeps_the_error_of_the_abort(peer: Channel) -> None:
    peer.channel.abort(ConnectionAbortedError("first"))
    done: list[int] = []
    peer.channel.close(lambda: done.append(1))
    assert (done, peer.endpoint.aborts) == ([1], 1)
    with pytest.raises(ConnectionAbortedError, match="first"):
        peer.channel.try_recv(1)


def test_an_abort_ends_everything(peer: Channel) -> None:
    peer.comes(PLAIN + b"data")
    peer.post(bytearray(2500))
    woken: list[str] = []
    peer.channel.watch(lambda: woken.append("reader"))
    peer.channel.when_writable(lambda: woken.append("writer"))
    peer.channel.abort()
    assert sorted(woken) == ["reader", "writer"]
    assert isinstance(peer.told[0], ClosedResourceError)
    assert (peer.channel.unsent, peer.channel.statistics().receive_queued) == (0, 0)
    assert (peer.endpoint.aborts, peer.source.interest) == (1, 1)
    peer.channel.abort(ConnectionAbortedError("later"))
    assert (peer.endpoint.aborts, peer.source.interest) == (1, 1)
    with pytest.raises(ClosedResourceError):
        peer.channel.try_recv(1)


def test_an_abort_during_a_close_ends_it(peer: Channel) -> None:
    done: list[int] = []
    peer.channel.close(lambda: done.append(1))
    peer.channel.abort()
    assert (done, peer.endpoint.aborts, peer.source.interest) == ([1], 1, 1)


# -- awaits


def test_a_receive_takes_what_is_there_and_polls_nothing(peer: Channel) -> None:
    peer.comes(PLAIN + b"data")
    caller = peer.call(peer.channel.recv(9))
    assert (caller.done, caller.outcome) == (True, b"data")
    assert (peer.source.polls, peer.source.checkpoints) == (0, 0)


def test_a_receive_polls_once_and_takes_fresh_data(peer: Channel) -> None:
    peer.source.at_polls.append(lambda: peer.comes(PLAIN + b"data"))
    caller = peer.call(peer.channel.recv(9))
    assert (caller.done, caller.outcome, peer.source.polls) == (True, b"data", 1)
    assert peer.channel.statistics().receive_queued == 0


def test_a_poll_that_finds_more_queues_the_rest(peer: Channel) -> None:
    def two() -> None:
        peer.comes(PLAIN + b"one")
        peer.comes(PLAIN + b"two")

    peer.source.at_polls.append(two)
    assert peer.call(peer.channel.recv(4)).outcome == b"onet"
    peer.comes(PLAIN + b"three")  # no watcher is left behind
    assert peer.channel.statistics().receive_queued == 7


def test_a_poll_that_finds_the_end_returns_it(peer: Channel) -> None:
    peer.source.at_polls.append(lambda: peer.comes(header(END, 0)))
    assert peer.call(peer.channel.recv(9)).outcome == b""


def test_a_poll_that_fails_leaves_no_watcher(peer: Channel) -> None:
    def fails() -> None:
        raise OSError("poll")

    peer.source.at_polls.append(fails)
    assert isinstance(peer.call(peer.channel.recv(9)).outcome, OSError)
    peer.comes(PLAIN + b"data")
    assert peer.channel.try_recv(9) == b"data"


def test_a_receive_waits_until_data_arrives(peer: Channel) -> None:
    caller = peer.call(peer.channel.recv(9))
    assert not caller.done
    assert peer.source.prepared == 1
    peer.comes(PLAIN + b"data")
    assert peer.source.wakes == 1
    peer.source.driver.settle_down()
    assert (caller.done, caller.outcome) == (True, b"data")
    peer.comes(PLAIN + b"more")
    assert peer.source.wakes == 1


def test_a_receive_that_wakes_for_nothing_waits_again(peer: Channel) -> None:
    caller = peer.call(peer.channel.recv(9))
    peer.comes(PLAIN + b"data")
    assert peer.channel.try_recv(9) == b"data"  # before the task ran
    peer.source.driver.settle_down()
    assert not caller.done
    peer.comes(PLAIN + b"more")
    peer.source.driver.settle_down()
    assert caller.outcome == b"more"


def test_a_cancelled_receive_loses_nothing(peer: Channel) -> None:
    caller = peer.call(peer.channel.recv(9))
    caller.cancel()
    peer.comes(PLAIN + b"data")
    peer.source.driver.settle_down()
    assert caller.done
    assert peer.channel.try_recv(9) == b"data"


def test_a_cancelled_receive_is_forgotten(peer: Channel) -> None:
    caller = peer.call(peer.channel.recv(9))
    caller.cancel()
    peer.source.driver.settle_down()
    peer.comes(PLAIN + b"data")
    assert peer.source.wakes == 0
    assert peer.channel.statistics().receive_queued == 4


@pytest.mark.parametrize("strict", [False, True])
def test_an_await_that_returns_at_once_runs_a_checkpoint_if_it_is_due(strict: bool) -> None:
    peer = Channel(strict=strict)
    peer.source.must_yield = not strict
    assert peer.channel.must_yield
    peer.comes(PLAIN + b"data")
    caller = peer.call(peer.channel.recv(9))
    assert not caller.done
    assert peer.channel.statistics().receive_queued == 4  # a cancel now would lose nothing
    peer.source.driver.settle_down()
    assert caller.outcome == b"data"
    assert (peer.source.checkpoints, peer.source.iterations) == (1, 1)
    caller = peer.call(peer.channel.send(b"x"))
    assert (caller.done, peer.sent) == (False, [PLAIN + b"x"])
    peer.source.driver.settle_down()
    assert (caller.done, caller.outcome, peer.source.checkpoints) == (True, None, 2)


@pytest.mark.parametrize("due", [False, True])
def test_a_send_that_is_posted_and_leaves_at_once_runs_a_checkpoint_if_it_is_due(due: bool) -> None:
    peer = Channel(theirs=LARGE)
    peer.source.must_yield = due
    caller = peer.call(peer.channel.send(bytes(40_001)))
    assert peer.sizes == [40_000, 1]
    peer.source.driver.settle_down()
    assert (caller.done, caller.outcome) == (True, None)
    assert peer.source.checkpoints == due
    assert peer.source.polls == 0


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_send_of_bytes_returns_when_the_provider_has_them(kind: Any) -> None:
    """They never change, so the task need not wait until they have left."""
    peer = Channel(theirs=LARGE)
    caller = peer.call(peer.channel.send(kind(COPY_LIMIT + 1)))
    assert caller.done is (kind is bytes)
    assert peer.sizes == [COPY_LIMIT + 1]
    peer.endpoint.transfers[0].complete()
    peer.source.driver.settle_down()
    assert caller.done


def test_a_send_polls_for_its_completion_before_it_waits(peer: Channel) -> None:
    def complete() -> None:
        for each in peer.endpoint.transfers:
            each.complete()

    peer.source.at_polls.append(complete)
    caller = peer.call(peer.channel.send(bytearray(1500)))
    assert (caller.done, caller.outcome) == (True, None)
    assert (peer.source.polls, peer.source.checkpoints) == (1, 0)


def test_a_send_waits_until_the_provider_has_its_data(peer: Channel) -> None:
    caller = peer.call(peer.channel.send(bytearray(1500)))
    assert not caller.done
    for each in peer.endpoint.transfers:
        each.complete()
    peer.source.driver.settle_down()
    assert (caller.done, caller.outcome) == (True, None)


def test_a_send_that_fails_raises_the_error(peer: Channel) -> None:
    caller = peer.call(peer.channel.send(bytearray(1500)))
    error = ConnectionResetError()
    peer.endpoint.transfers[0].complete(error)
    peer.source.driver.settle_down()
    assert caller.outcome is error


def test_a_cancelled_send_of_which_all_was_handed_over_goes_on(peer: Channel) -> None:
    caller = peer.call(peer.channel.send(bytearray(1500)))
    caller.cancel()
    peer.source.driver.settle_down()
    assert caller.done
    assert not peer.endpoint.closed
    assert peer.channel.try_send(b"x") == 1


def test_a_cancelled_send_with_a_part_unsent_breaks_the_stream(peer: Channel) -> None:
    caller = peer.call(peer.channel.send(bytearray(2500)))
    caller.cancel()
    peer.source.driver.settle_down()
    assert caller.done
    assert peer.endpoint.closed
    with pytest.raises(ConnectionAbortedError, match="a send was cancelled with part of its bytes unsent"):
        peer.channel.try_send(b"x")


def test_a_writer_waits_for_credits(peer: Channel) -> None:
    peer.spend(0)
    caller = peer.call(peer.channel.wait_writable())
    peer.source.driver.settle_down()
    assert not caller.done
    assert peer.source.checkpoints == 1
    peer.grant(1000)
    peer.source.driver.settle_down()
    assert (caller.done, caller.outcome) == (True, None)
    assert not peer.sent


def test_a_writer_that_waits_is_told_of_the_end(peer: Channel) -> None:
    peer.spend(0)
    caller = peer.call(peer.channel.wait_writable())
    peer.source.driver.settle_down()
    error = peer.breaks()
    peer.source.driver.settle_down()
    assert caller.outcome is error


def test_a_cancelled_writer_is_forgotten(peer: Channel) -> None:
    peer.spend(0)
    caller = peer.call(peer.channel.wait_writable())
    peer.source.driver.settle_down()
    caller.cancel()
    peer.source.driver.settle_down()
    assert caller.done
    peer.grant(1000)
    assert peer.source.wakes == 0


def test_call_soon_is_of_this_iteration(peer: Channel) -> None:
    called: list[int] = []
    peer.channel.call_soon(lambda: called.append(1))
    assert not called
    peer.source.driver.iterate()
    assert called == [1]


def test_statistics_count_frames_and_bytes(peer: Channel) -> None:
    peer.channel.try_send(b"abc")
    peer.channel.try_send(b"de")
    peer.comes(PLAIN + b"x")
    said = peer.channel.statistics()
    assert (said.frames_sent, said.bytes_sent) == (2, 5)
    assert (said.frames_received, said.bytes_received) == (1, 1)
