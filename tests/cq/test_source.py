"""Progress passes: the completions that they dispatch, their order, and when they sleep and start again. No data is
transferred.
"""

# Doubles: calls of the queue and the driver are recorded: no counter has them.

import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiofabric import FabricError
from aiofabric._ffi import constants
from aiofabric.cq.operation import State
from aiofabric.cq.polling import Waiting
from aiofabric.cq.source.source import Source
from aiofabric.cq.submission import Transfer
from aiofabric.testing import ScriptedQueue
from tests.cq.manual import Caller, Endpoint, ManualDriver
from tests.fixtures.internals import sleep_on_descriptor

pytestmark = pytest.mark.once


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    it = Endpoint(limit=1000)
    yield it
    it.close()


def test_completions_out_of_order_reach_their_own_callers(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(10)]
    callers = [endpoint.await_(t) for t in transfers]
    for n in (7, 2, 9, 0, 1, 8, 3, 6, 5, 4):
        endpoint.queue.complete(transfers[n].slot.address, length=100 + n)
    endpoint.driver.settle_down()
    assert [c.outcome.length for c in callers] == [100 + n for n in range(10)]
    assert endpoint.source.statistics().in_flight == 0


def test_reads_that_find_nothing_lose_nothing(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit() for _ in range(5)]
    callers = [endpoint.await_(t) for t in transfers]
    for transfer in transfers:
        endpoint.queue.again(3)
        endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    while endpoint.driver.delays:  # fi_trywait refused again and again without anything to read: come back later
        endpoint.driver.pass_time()
        endpoint.driver.settle_down()
    assert all(c.done for c in callers)


def test_failures_between_successes_reach_their_own_callers(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(9)]
    callers = [endpoint.await_(t) for t in transfers]
    for n, transfer in enumerate(transfers):
        if n % 3 == 1:
            endpoint.queue.fail(transfer.slot.address, 100 + n)
        else:
            endpoint.queue.complete(transfer.slot.address, length=n)
    endpoint.driver.settle_down()
    for n, caller in enumerate(callers):
        if n % 3 == 1:
            assert caller.outcome.errno == 100 + n
        else:
            assert caller.outcome.length == n
    assert endpoint.source.statistics().errors == 3


def test_completion_that_comes_twice_settles_once(endpoint: Endpoint) -> None:
    first = endpoint.submit()
    caller = endpoint.await_(first)
    endpoint.queue.complete(first.slot.address, length=1)
    endpoint.queue.complete(first.slot.address, length=2)
    endpoint.queue.fail(first.slot.address, 5)
    endpoint.driver.settle_down()
    assert caller.outcome.length == 1
    assert endpoint.source.statistics().stale == 2


def test_unknown_addresses_are_counted_and_change_nothing(endpoint: Endpoint) -> None:
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    for address in (0, 1, transfer.slot.address + 1, 2**64 - 1):
        endpoint.queue.complete(address)
        endpoint.queue.fail(address, 5)
    endpoint.driver.settle_down()
    assert not caller.done
    assert endpoint.source.statistics().stale == 8
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert caller.outcome is transfer


@pytest.mark.parametrize("flag", ["FI_REMOTE_WRITE", "FI_REMOTE_READ"])
def test_what_a_peer_did_to_our_memory_is_no_answer_to_us(endpoint: Endpoint, flag: str) -> None:
    """The context of such an entry is not ours: tcp leaves that of the previous transfer there."""
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    flags = getattr(constants, flag) | constants.FI_RMA | constants.FI_REMOTE_CQ_DATA
    endpoint.queue.complete(transfer.slot.address, flags=flags)
    endpoint.driver.settle_down()
    assert not caller.done
    assert transfer.state is State.POSTED


def test_a_turn_leaves_room_for_others(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit() for _ in range(1000)]
    endpoint.driver.settle_down()
    for transfer in transfers:
        endpoint.queue.complete(transfer.slot.address)
    between = []
    while endpoint.source.statistics().in_flight:
        endpoint.driver.iterate()
        between.append(1000 - endpoint.source.statistics().in_flight)
    assert 2 < len(between) < 20, between


def test_callback_that_raises_costs_nobody_else_an_answer(endpoint: Endpoint) -> None:
    def stumble(_: object) -> None:
        raise ValueError("the callback's own")

    transfers = [endpoint.submit() for _ in range(4)]
    transfers[1].notify = stumble
    callers = [endpoint.await_(t) for t in transfers if t.notify is None]
    for transfer in transfers[:2]:
        endpoint.queue.complete(transfer.slot.address)
    endpoint.queue.fail(transfers[2].slot.address, 5)
    endpoint.queue.complete(transfers[3].slot.address)
    endpoint.driver.settle_down()
    assert all(c.done for c in callers)
    assert [str(e) for e in endpoint.driver.reports] == ["the callback's own"]
    assert endpoint.source.statistics().in_flight == 0


def test_each_callback_that_raises_is_reported_and_no_caller_gets_its_exception(endpoint: Endpoint) -> None:
    def stumble(transfer: Transfer) -> None:
        raise ValueError(str(transfer.length))

    transfers = [endpoint.submit(length=n) for n in range(4)]
    for transfer in transfers[1:3]:
        transfer.notify = stumble
    for transfer in transfers:
        endpoint.queue.complete(transfer.slot.address, length=transfer.length)
    assert endpoint.source.drain() == 4  # as a call that polls before it waits
    assert [str(e) for e in endpoint.driver.reports] == ["1", "2"]


def test_failure_whose_callback_raises_is_reported_and_the_next_ones_reach_their_callers(endpoint: Endpoint) -> None:
    def stumble(_: object) -> None:
        raise ValueError("the callback's own")

    first, second = endpoint.submit(), endpoint.submit()
    first.notify = stumble
    caller = endpoint.await_(second)
    endpoint.queue.fail(first.slot.address, 5)
    endpoint.queue.fail(second.slot.address, 6)
    assert endpoint.source.drain() == 2
    endpoint.driver.settle_down()
    assert [str(e) for e in endpoint.driver.reports] == ["the callback's own"]
    assert caller.outcome.errno == 6


def test_read_that_raises_is_reported_and_followed_by_another_pass(endpoint: Endpoint) -> None:
    class Failing(ScriptedQueue):
        """Its first read is an error of the provider."""

        def read(self, window: int = 0) -> Any:
            self.reads += 1
            if self.reads == 1:
                raise FabricError(constants.FI_EIO, "fi_cq_read")
            return super().read(window)

    with Failing() as failing:
        it = Endpoint(source=Source(endpoint.driver, failing, waiting=Waiting.FD))
        transfer = it.submit()
        failing.complete(transfer.slot.address)  # before the queue is armed: no descriptor tells of it
        caller = it.await_(transfer)
        it.driver.iterate()
        assert [str(e) for e in it.driver.reports] == [str(FabricError(constants.FI_EIO, "fi_cq_read"))]
        assert not caller.done
        it.driver.settle_down()
        assert caller.outcome is transfer
        it.close()


def test_statistics_count_passes_and_what_is_queued(endpoint: Endpoint) -> None:
    transfers = [endpoint.submit(n) for n in range(1002)]  # two more than the limit
    endpoint.driver.settle_down()
    found = endpoint.source.statistics()
    assert (found.queued, found.slots_in_use) == (2, len(transfers))
    assert found.passes not in (0, found.queued)


def test_queue_that_promises_a_failure_and_has_none_does_not_hold_the_loop(endpoint: Endpoint) -> None:
    class Liar(ScriptedQueue):
        """-FI_EAVAIL from fi_cq_read, nothing from fi_cq_readerr."""

        def read(self, window: int = 0) -> None:
            self.reads += 1
            assert self.reads < 100, "asked for ever"

        def read_error(self) -> None:
            return None

    with Liar() as liar:
        source = Source(endpoint.driver, liar)
        assert source.drain() == 0
        assert liar.reads == 1
        source.close()


# -- sleeping and waking


def test_post_is_followed_by_a_turn_that_arms(endpoint: Endpoint) -> None:
    """1.17's tcp matches a message that came first only inside a read after the post."""
    endpoint.source.touch()
    endpoint.driver.settle_down()
    assert endpoint.queue.armed
    reads = endpoint.queue.reads
    transfer = endpoint.submit()
    endpoint.queue.armed = False  # as a post may do that signals the queue
    endpoint.driver.settle_down()
    assert endpoint.queue.reads > reads
    assert endpoint.queue.armed
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert transfer.state is State.FINISHED


def test_one_turn_serves_all_posts_of_an_iteration(endpoint: Endpoint) -> None:
    endpoint.driver.settle_down()
    before = endpoint.source.statistics().passes
    for _ in range(50):
        endpoint.submit()
    endpoint.driver.settle_down()
    assert endpoint.source.statistics().passes == before + 1


@pytest.mark.parametrize("waiting", [Waiting.FD, Waiting.ADAPTIVE])
def test_asleep_it_costs_nothing_and_still_wakes(waiting: Waiting) -> None:
    endpoint = Endpoint(waiting=waiting)
    transfers = [endpoint.submit() for _ in range(3)]
    callers = [endpoint.await_(t) for t in transfers]
    for transfer, caller in zip(transfers, callers, strict=True):
        endpoint.driver.settle_down(10_000)
        passes = endpoint.source.statistics().passes
        assert not endpoint.driver.delays
        for _ in range(10):
            assert not endpoint.driver.iterate()
        assert endpoint.source.statistics().passes == passes
        endpoint.queue.complete(transfer.slot.address)
        assert endpoint.driver.iterate()
        endpoint.driver.settle_down(10_000)
        assert caller.done
    endpoint.close()


def test_wake_up_that_came_before_the_queue_was_armed_costs_no_turn(endpoint: Endpoint) -> None:
    """asyncio asks the kernel first and then runs callbacks: a task may have polled and armed meanwhile."""
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    endpoint.driver.settle_down()
    assert endpoint.source.armed
    passes = endpoint.source.statistics().passes
    (stale,) = endpoint.driver.readers.values()
    stale()
    assert endpoint.source.armed
    assert endpoint.queue.armed
    assert not endpoint.driver.iterate()
    assert endpoint.source.statistics().passes == passes
    assert endpoint.source.statistics().empty_wakeups == 1
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert caller.done


def test_look_is_refused_until_the_loop_has_gone_round() -> None:
    endpoint = Endpoint(waiting=Waiting.ADAPTIVE)
    source = endpoint.source
    endpoint.driver.settle_down(10_000)
    for pays in (False, True):  # among many tasks whose polls find nothing, a further iteration is no gain
        if pays:
            endpoint.queue.complete(endpoint.submit().slot.address)
        source.loop_iterated()
        source.poll()
        source.loop_iterated()
        source.iteration_began -= 1_000_000  # 1 ms ago
        reads = endpoint.queue.reads
        source.poll()
        assert (source.must_iterate, endpoint.queue.reads) == (pays, reads)
    caller = Caller(endpoint.driver, source.yield_to_loop())
    endpoint.driver.iterate()
    endpoint.driver.iterate()
    assert caller.done
    assert not source.must_iterate
    reads = endpoint.queue.reads
    source.poll()
    assert endpoint.queue.reads > reads
    endpoint.close()


def test_look_is_refused_sooner_while_others_have_work() -> None:
    endpoint = Endpoint(waiting=Waiting.ADAPTIVE)
    source = endpoint.source
    endpoint.driver.settle_down(10_000)

    def looks_after(nanoseconds: int) -> bool:
        source.loop_iterated()
        source.iteration_began -= nanoseconds
        reads = endpoint.queue.reads
        source.poll()
        return endpoint.queue.reads > reads

    def work() -> None:
        """A callback of other code."""
        until = time.perf_counter_ns() + 50_000
        while time.perf_counter_ns() < until:
            pass

    while not looks_after(100_000):  # other tasks of this loop may have work, too
        pass
    assert not looks_after(1_000_000)
    work()
    assert not looks_after(100_000)
    while not looks_after(100_000):  # after some iterations without other work
        pass

    def looks_after_sleep() -> bool:
        assert not looks_after(1_000_000)
        sleep_on_descriptor(source)
        work()
        return looks_after(100_000)

    while not looks_after_sleep():  # the loop may sleep for as long as it likes
        pass
    endpoint.close()


def test_the_reported_window_is_zero_while_polls_are_skipped() -> None:
    endpoint = Endpoint()
    window = endpoint.source.polling.window
    assert endpoint.source.statistics().window_ns == window.length > 0
    window.skip = 1
    assert endpoint.source.statistics().window_ns == 0
    endpoint.close()


@pytest.mark.parametrize(("busy_poll", "most"), [(60e6, 16), (1, 200)], ids=["soon after it", "late"])
def test_wake_up_soon_after_the_window_has_looks_tried_before_long(busy_poll: float, most: int) -> None:
    """The peer sleeps, too: polling may help as soon as one of the two polls."""
    driver = ManualDriver()
    endpoint = Endpoint(source=Source(driver, ScriptedQueue(), waiting=Waiting.ADAPTIVE, busy_poll=busy_poll))
    window = endpoint.source.polling.window
    window.skip = 200
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    driver.settle_down(10_000)
    assert endpoint.source.armed
    left_out = window.skip
    assert left_out > 16
    endpoint.queue.complete(transfer.slot.address)
    driver.settle_down(10_000)
    assert caller.done
    assert window.skip == min(left_out, most)
    endpoint.close()


def test_wake_ups_that_are_always_late_have_no_looks_tried() -> None:
    """A window of 1 us: any result after a sleep is late. There is no short poll either: arming finds completions."""
    driver = ManualDriver()
    endpoint = Endpoint(source=Source(driver, ScriptedQueue(), waiting=Waiting.ADAPTIVE, busy_poll=1))
    window = endpoint.source.polling.window
    glances = []

    def busy_polls() -> bool:
        endpoint.source.loop_iterated()
        reads = endpoint.queue.reads
        endpoint.source.poll()
        return endpoint.queue.reads > reads

    for tried in (1, 2, 2, 2):
        transfer = endpoint.submit()
        caller = endpoint.await_(transfer)
        driver.settle_down(10_000)
        assert (endpoint.source.armed, window.misses) == (True, tried)
        endpoint.queue.complete(transfer.slot.address)
        driver.settle_down(10_000)
        assert caller.done
        glances.append(busy_polls())
    assert window.skip > 32
    assert glances == [True, False, False, False]
    endpoint.close()


def test_wake_up_soon_after_a_look_that_lost_its_core_has_none_tried() -> None:
    """The peer answers soon because it runs on this core meanwhile: polling would keep the core from it."""

    class SharedQueue(ScriptedQueue):
        def longest_gap(self) -> int:
            return 1_000_000

    driver = ManualDriver()
    endpoint = Endpoint(source=Source(driver, SharedQueue(), waiting=Waiting.ADAPTIVE, busy_poll=60e6))
    window = endpoint.source.polling.window
    for skip in (0, 200):  # a poll, and one that is left out
        window.skip = skip
        misses = window.misses
        transfer = endpoint.submit()
        caller = endpoint.await_(transfer)
        driver.settle_down(10_000)
        assert (endpoint.source.armed, window.misses) == (True, misses + (not skip))
        left_out = window.skip
        endpoint.queue.complete(transfer.slot.address)
        driver.settle_down(10_000)
        assert caller.done
    assert window.skip == left_out > 16
    endpoint.close()


def test_who_goes_on_after_a_turn_is_still_one_of_many() -> None:
    """A poll wakes tasks while a pass is scheduled: none of them polls again before the others have run."""
    endpoint = Endpoint(waiting=Waiting.ADAPTIVE)
    callers = [endpoint.await_(endpoint.submit()) for _ in range(3)]
    endpoint.driver.settle_down(10_000)
    endpoint.submit()  # a pass is scheduled
    for address in endpoint.posted[:3]:
        endpoint.queue.complete(address)
    endpoint.source.loop_iterated()
    endpoint.source.poll()
    endpoint.driver.soon.popleft()()  # the turn
    assert not any(caller.done for caller in callers)
    reads = endpoint.queue.reads
    endpoint.source.poll()
    assert endpoint.queue.reads == reads
    endpoint.driver.settle_down(10_000)
    assert all(caller.done for caller in callers)
    endpoint.source.touch()
    endpoint.driver.settle_down(10_000)
    endpoint.source.loop_iterated()
    reads = endpoint.queue.reads
    endpoint.source.poll()
    assert endpoint.queue.reads > reads
    endpoint.close()


def test_queue_that_may_not_be_armed_is_asked_once_in_an_iteration(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    quiet = endpoint.queue.quiet

    def noted() -> bool:
        asked.append(quiet())
        return asked[-1]

    monkeypatch.setattr(endpoint.queue, "quiet", noted)
    transfers = [endpoint.submit() for _ in range(5)]
    endpoint.queue.refuse_quiet(1)
    callers = [endpoint.await_(transfer) for transfer in transfers]
    assert asked == [False]
    endpoint.driver.settle_down()
    assert asked == [False, True]
    for transfer in transfers:
        endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down()
    assert all(caller.done for caller in callers)


def test_descriptor_is_reset_before_the_loop_goes_round() -> None:
    """The descriptor is still readable after a poll has found the completion: the loop would wake up for it."""
    endpoint = Endpoint(waiting=Waiting.ADAPTIVE)
    endpoint.driver.settle_down(10_000)
    transfer = endpoint.submit()
    endpoint.queue.complete(transfer.slot.address)
    endpoint.source.loop_iterated()
    endpoint.source.poll()
    assert transfer.state is State.FINISHED
    assert not endpoint.source.armed
    caller = Caller(endpoint.driver, endpoint.source.yield_to_loop())
    assert endpoint.queue.armed
    endpoint.driver.settle_down(10_000)
    assert caller.done
    assert endpoint.source.statistics().wakeups == 0
    endpoint.close()


@pytest.mark.parametrize("stuck", [False, True])
def test_queue_that_refuses_is_polled_with_growing_delays(endpoint: Endpoint, stuck: bool) -> None:
    """1.17's tcp refuses fi_trywait while a message waits for a receive; its descriptor may stay readable."""
    transfer = endpoint.submit()
    endpoint.queue.refuse_quiet(60)
    endpoint.queue.stuck(stuck)
    delays = []
    endpoint.driver.settle_down(50)
    while endpoint.driver.delays:
        assert (endpoint.driver.readers == {}) is stuck, "others' messages wake, a stuck descriptor would spin"
        delays.append(endpoint.driver.pass_time())
        endpoint.driver.settle_down(50)
        if len(delays) == 10:
            endpoint.queue.stuck(False)
            endpoint.queue.refuse_quiet(0)
    assert delays == sorted(delays)
    assert len(delays) > 5
    assert endpoint.driver.readers != {}
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down(10)
    assert transfer.state is State.FINISHED


def test_stuck_descriptor_is_left_alone_where_messages_wait_for_receives(endpoint: Endpoint) -> None:
    """1.17's tcp, the other way: fi_trywait says 0."""
    may_stay_readable = True
    endpoint.source.delays.may_stay_readable = lambda: may_stay_readable
    endpoint.queue.stuck(True)
    endpoint.driver.settle_down(50)
    for _ in range(10):
        assert endpoint.driver.readers == {}
        assert endpoint.driver.pass_time() == 0.001
        endpoint.driver.settle_down(50)
    may_stay_readable = False
    endpoint.queue.stuck(False)
    endpoint.driver.pass_time()
    endpoint.driver.settle_down(50)
    assert endpoint.driver.readers != {}
    assert not endpoint.driver.delays


def test_descriptor_that_wakes_for_a_peers_sake_is_served(endpoint: Endpoint) -> None:
    """RMA of a peer progresses in our reads, and has no completion here."""
    endpoint.source.delays.may_stay_readable = lambda: False
    endpoint.queue.stuck(True)
    before = endpoint.source.statistics().wakeups
    for _ in range(500):
        assert endpoint.driver.iterate()
    assert endpoint.source.statistics().wakeups - before == 500


def test_post_ends_the_delay_of_a_queue_that_refuses(endpoint: Endpoint) -> None:
    endpoint.submit()
    endpoint.queue.refuse_quiet(50)
    endpoint.driver.settle_down(10)
    assert endpoint.driver.delays
    transfer = endpoint.submit()
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down(10)  # no time passed
    assert transfer.state is State.FINISHED


def test_queue_without_descriptor_is_looked_at_while_somebody_waits() -> None:
    endpoint = Endpoint(descriptor=False)
    assert endpoint.source.statistics().waiting is Waiting.POLL
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    delays = []
    for _ in range(8):
        endpoint.driver.settle_down(10_000)  # polls within its window, in passes
        delays.append(endpoint.driver.pass_time())
    assert delays == sorted(delays)
    assert delays[-1] == 0.005
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down(10_000)
    endpoint.driver.pass_time()
    endpoint.driver.settle_down(10_000)
    assert caller.done
    endpoint.close()


def test_polling_by_choice_ends_on_the_descriptor() -> None:
    endpoint = Endpoint(waiting=Waiting.POLL)
    transfer = endpoint.submit()
    caller = endpoint.await_(transfer)
    for _ in range(4):
        endpoint.driver.settle_down(10_000)
        endpoint.driver.pass_time()
    endpoint.driver.settle_down(10_000)
    assert not endpoint.driver.delays
    assert endpoint.queue.armed
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down(10_000)
    assert caller.done
    endpoint.close()


def test_polling_stops_only_if_it_may_and_later_if_nothing_came() -> None:
    endpoint = Endpoint(descriptor=False)
    may, asked = False, 0

    def may_stop() -> bool:
        nonlocal asked
        asked += 1
        return may

    endpoint.source.delays.may_stop_polling = may_stop
    for polls in range(16):
        endpoint.driver.settle_down(10_000)
        assert (polls, asked) == (polls, 0)
        endpoint.driver.pass_time()
    endpoint.driver.settle_down(10_000)
    assert asked == 1
    may = True
    endpoint.driver.pass_time()
    endpoint.driver.settle_down(10_000)
    assert (asked, endpoint.driver.delays) == (2, [])
    endpoint.close()


@pytest.mark.parametrize("refused", [True, False])
def test_polling_does_not_stop_while_a_refused_operation_waits(refused: bool) -> None:
    """No descriptor and no completion tells when the provider has room for it."""
    endpoint = Endpoint(descriptor=False)
    endpoint.source.delays.may_stop_polling = lambda: True
    endpoint.answers.extend([-constants.FI_EAGAIN] * 1000 * refused)
    endpoint.submit()
    for _ in range(40):
        endpoint.driver.settle_down(10_000)
        if not endpoint.driver.delays:
            break
        endpoint.driver.pass_time()
    assert bool(endpoint.driver.delays) is refused
    endpoint.close()


class Events:
    """An event queue whose descriptor is always readable, although there is no event, as that of net is."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.drained = 0

    def fileno(self) -> int:
        return self.descriptor

    def drain(self) -> int:
        self.drained += 1
        return 0

    def quiet(self) -> bool:
        return True

    def wait_failed(self, error: Any) -> int:
        return 0


@pytest.mark.parametrize("waits", [True, False])
def test_queue_without_descriptor_leaves_an_event_queue_alone_that_stays_readable(waits: bool) -> None:
    """Its descriptor would wake the loop again and again. Events are looked for when the completions are."""
    endpoint = Endpoint(descriptor=False)
    if waits:
        endpoint.await_(endpoint.submit())
    with ScriptedQueue() as readable:
        readable.stuck(True)
        events = Events(readable.fileno() or 0)
        endpoint.source.attach_queue(events)
        endpoint.driver.settle_down(10_000)
        assert endpoint.driver.readers == {}
        before = events.drained
        for _ in range(3):
            endpoint.driver.pass_time()
            endpoint.driver.settle_down(10_000)
        assert events.drained >= before + 3
        endpoint.close()


def test_queue_without_descriptor_is_looked_at_rarely_while_nobody_waits() -> None:
    """A peer that writes to our memory needs our polls, although no task here waits."""
    endpoint = Endpoint(descriptor=False)
    for _ in range(3):
        endpoint.driver.settle_down(10_000)
        assert endpoint.driver.pass_time() == 0.005
    transfer = endpoint.submit()
    endpoint.await_(transfer)
    endpoint.driver.settle_down(10_000)
    assert endpoint.driver.pass_time() == 0.0005, "a task waits: the long delay is over"
    endpoint.close()


def test_attached_queues_are_drained_in_passes_that_they_cause(endpoint: Endpoint) -> None:
    class Events:
        waiting = 0
        drained = 0
        asked = 0

        def drain(self) -> int:
            self.drained += 1
            found, self.waiting = self.waiting, 0
            return found

        def quiet(self) -> bool:
            self.asked += 1
            return not self.waiting

        def wait_failed(self, error: object) -> int:
            raise AssertionError(error)

        def fileno(self) -> None:
            return None

    events = Events()
    endpoint.source.attach_queue(events)
    endpoint.source.touch()
    endpoint.driver.settle_down()
    assert events.asked == 1
    endpoint.source.touch()
    endpoint.driver.settle_down()
    assert events.asked == 1  # fi_trywait succeeded, and the queue was not drained since
    before = events.drained
    events.waiting = 3
    endpoint.source.touch_events()
    endpoint.driver.settle_down()
    assert events.waiting == 0
    assert events.asked > 1
    assert events.drained > before


def test_closed_source_leaves_the_loop_and_has_no_turns(endpoint: Endpoint) -> None:
    endpoint.submit()
    endpoint.queue.refuse_quiet(50)
    endpoint.driver.settle_down(10)
    endpoint.submit()
    endpoint.source.close()
    endpoint.queue.close()
    assert endpoint.driver.readers == {}
    assert endpoint.driver.delays == []
    endpoint.driver.settle_down(10)  # the scheduled pass finds it closed: the queue records reads
    endpoint.source.close()
    endpoint.source.touch()
    assert not endpoint.driver.soon


def test_closing_from_inside_a_turn_ends_that_turn(endpoint: Endpoint) -> None:
    """A callback may close the last endpoint of the queue, which must not be read any more."""

    def close(_: object) -> None:
        endpoint.source.close()
        endpoint.queue.close()

    transfers = [endpoint.submit() for _ in range(100)]
    transfers[0].notify = close
    for transfer in transfers:
        endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.settle_down(10)
    assert endpoint.driver.reports == []
    assert endpoint.source.closed


def test_woken_for_nothing_while_a_turn_is_on_its_way_it_asks_to_be_woken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """trio waits for a descriptor once for each request: the pass must request it again."""
    asked: list[int] = []
    monkeypatch.setattr(ManualDriver, "demand", staticmethod(asked.append))
    endpoint = Endpoint()
    endpoint.submit()  # a pass is scheduled
    endpoint.source.prepare()  # ... and the queue is armed meanwhile
    assert endpoint.source.armed
    assert len(asked) == 1
    (woken,) = endpoint.driver.readers.values()
    woken()  # such as a part of a message: no operation has completed
    endpoint.driver.settle_down()
    assert endpoint.source.armed
    assert len(asked) == 2
    endpoint.close()


# -- trio, where each await is an iteration


@pytest.fixture
def on_trio() -> Iterator[Endpoint]:
    driver = ManualDriver()
    driver.demand = lambda _: None
    driver.checkpoint_if_cancelled = driver.checkpoint
    it = Endpoint(source=Source(driver, ScriptedQueue(), waiting=Waiting.ADAPTIVE))
    driver.settle_down(10_000)
    yield it
    it.close()


def _look_that_finds(endpoint: Endpoint) -> int:
    """A pass is scheduled after it; return the number of reads of the queue."""
    endpoint.queue.complete(endpoint.submit().slot.address)
    endpoint.source.loop_iterated()
    endpoint.source.poll()
    return endpoint.queue.reads


def test_turn_waits_for_a_task_that_only_lets_the_loop_go_round(on_trio: Endpoint) -> None:
    """The task polls next, or waits and arms. An earlier pass would read and arm without effect."""
    reads = _look_that_finds(on_trio)
    caller = Caller(on_trio.driver, on_trio.source.yield_to_loop())
    while not caller.done:
        on_trio.driver.iterate()
    assert on_trio.queue.reads == reads
    assert not on_trio.source.armed
    on_trio.driver.settle_down(10_000)  # it did neither: the pass is still scheduled
    assert on_trio.source.armed


def test_turn_does_not_wait_for_ever(on_trio: Endpoint) -> None:
    _look_that_finds(on_trio)
    for _ in range(10_000):  # the window that the poll left open ends first
        caller = Caller(on_trio.driver, on_trio.source.yield_to_loop())
        while not caller.done:
            on_trio.driver.iterate()
        if on_trio.source.armed:
            break
    assert on_trio.source.armed


def test_iteration_without_a_pass_lets_the_next_wait_poll() -> None:
    driver = ManualDriver()
    driver.demand = lambda _: None
    driver.checkpoint_if_cancelled = driver.checkpoint
    endpoint = Endpoint(source=Source(driver, ScriptedQueue(), waiting=Waiting.ADAPTIVE, busy_poll=1e6))
    windows: list[int] = []
    read = endpoint.queue.read

    def noted(window: int = 0) -> Any:
        windows.append(window)
        return read(window)

    caller = Caller(driver, endpoint.source.yield_to_loop())
    driver.settle_down()
    assert caller.done
    endpoint.queue.read = noted  # type: ignore[method-assign]
    endpoint.source.prepare()
    driver.iterate()
    assert windows[0] > 0
    endpoint.close()


def test_misses_between_answers_that_are_there_at_once_put_no_look_off() -> None:
    """They are not consecutive: a busy host causes one kind, a task slower than its peer the other."""

    class PromptQueue(ScriptedQueue):
        def longest_gap(self) -> int:
            return 0

    queue = PromptQueue()
    endpoint = Endpoint(source=Source(ManualDriver(), queue, waiting=Waiting.ADAPTIVE, busy_poll=5))
    window = endpoint.source.polling.window

    def poll() -> None:
        endpoint.source.loop_iterated()
        endpoint.source.polling.over()
        endpoint.source.poll()

    for misses in range(1, 101):
        while window.misses < misses:  # again if another process had the core between the two calls
            poll()
        assert (window.misses, window.skip) == (misses, 0)
        transfer = endpoint.submit()
        queue.complete(transfer.slot.address)
        while transfer.state is not State.FINISHED:
            poll()
    assert window.hits == 0
    endpoint.close()


# -- event queues beside a queue that refuses


def test_an_event_queue_is_drained_if_the_other_queue_refuses_to_sleep_again_and_again(endpoint: Endpoint) -> None:
    """fi_trywait refuses for both queues of a fabric, and does not say for which."""
    with ScriptedQueue() as descriptor:
        events = Events(descriptor.fileno() or 0)
        endpoint.source.attach_queue(events)
        endpoint.source.touch_events()
        endpoint.driver.settle_down()
        before = events.drained
        endpoint.queue.refuse_quiet(2)
        endpoint.source.touch()
        endpoint.driver.settle_down()
        assert events.drained == before  # its own descriptor tells of events
        endpoint.queue.refuse_quiet(3)
        endpoint.source.touch()
        endpoint.driver.settle_down()
        endpoint.driver.pass_time()
        endpoint.driver.settle_down()
        assert events.drained == before + 1
        endpoint.source.close()


def test_two_passes_follow_a_refusal_at_once_and_the_next_one_after_the_shortest_delay(endpoint: Endpoint) -> None:
    endpoint.driver.settle_down()
    for _ in range(2):  # a queue that was quiet starts again
        endpoint.queue.refuse_quiet(2)
        endpoint.source.touch()
        endpoint.driver.settle_down()
        assert (endpoint.driver.delays, endpoint.queue.armed) == ([], True)
        endpoint.queue.refuse_quiet(3)
        endpoint.source.touch()
        endpoint.driver.settle_down()
        assert endpoint.driver.pass_time() == 0.001
        endpoint.driver.settle_down()
        assert (endpoint.driver.delays, endpoint.queue.armed) == ([], True)


def test_a_queue_that_refuses_wants_its_descriptor_watched_meanwhile(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ManualDriver, "demand", staticmethod(asked.append))
    endpoint.driver.settle_down()
    endpoint.queue.refuse_quiet(3)
    endpoint.source.touch()
    endpoint.driver.settle_down()
    assert endpoint.driver.delays
    assert asked == [endpoint.queue.fileno()]


def test_the_delays_of_a_refused_post_grow_to_the_longest(endpoint: Endpoint) -> None:
    endpoint.answers.extend([-constants.FI_EAGAIN] * 20)
    endpoint.submit()
    delays = []
    for _ in range(8):
        endpoint.driver.settle_down()
        delays.append(endpoint.driver.pass_time())
    assert len(set(delays)) >= 4
    assert delays[-1] == 0.02


# -- calls outside of a pass


def test_a_drain_that_finds_nothing_or_runs_after_the_loop_schedules_no_pass(endpoint: Endpoint) -> None:
    transfer = endpoint.submit()
    endpoint.driver.settle_down()
    assert endpoint.source.drain() == 0
    assert not endpoint.driver.soon
    endpoint.queue.complete(transfer.slot.address)
    endpoint.driver.is_closed = True
    assert endpoint.source.drain() == 1
    assert not endpoint.driver.soon


def test_a_checkpoint_of_a_source_takes_an_iteration_of_the_loop(endpoint: Endpoint) -> None:
    endpoint.driver.settle_down()
    caller = Caller(endpoint.driver, endpoint.source.checkpoint())
    assert not caller.done
    endpoint.driver.settle_down()
    assert caller.done


def test_a_yield_to_the_loop_arms_the_queue_and_begins_another_iteration() -> None:
    endpoint = Endpoint(waiting=Waiting.ADAPTIVE)
    endpoint.driver.settle_down(10_000)
    endpoint.source.loop_iterated()
    endpoint.source.poll()
    assert not endpoint.source.armed
    began = endpoint.source.iteration_began
    caller = Caller(endpoint.driver, endpoint.source.yield_to_loop())
    assert endpoint.source.armed
    endpoint.driver.soon.popleft()()  # the iteration has no pass
    endpoint.driver.soon.popleft()()
    assert caller.done
    assert endpoint.source.iteration_began > began
    endpoint.close()


def test_a_source_that_is_woken_without_a_descriptor_polls_for_a_while() -> None:
    endpoint = Endpoint(source=Source(ManualDriver(), ScriptedQueue(), waiting=Waiting.ADAPTIVE, busy_poll=60e6))
    endpoint.driver.settle_down(10_000_000)
    windows: list[int] = []
    read = endpoint.queue.read

    def noted(window: int = 0) -> Any:
        windows.append(window)
        return read(window)

    endpoint.queue.read = noted  # type: ignore[method-assign]
    endpoint.source.wake()
    endpoint.driver.iterate()
    assert windows[0] > 0
    endpoint.close()


@pytest.mark.parametrize("woken", [0, 1])
def test_a_queue_that_cannot_be_waited_for_is_reported_unless_a_task_got_the_error(
    endpoint: Endpoint, woken: int
) -> None:
    class Waited(Events):
        """A task waits for an event."""

        def wait_failed(self, error: Any) -> int:
            assert (error().call, error().errno) == ("fi_trywait", constants.FI_EIO)
            return woken

    def fails() -> bool:
        raise FabricError(constants.FI_EIO, "fi_trywait")

    with ScriptedQueue() as descriptor:
        endpoint.source.attach_queue(Waited(descriptor.fileno() or 0))
        endpoint.queue.quiet = fails  # type: ignore[method-assign]
        endpoint.source.touch()
        endpoint.driver.iterate()
        assert len(endpoint.driver.reports) == 1 - woken
        endpoint.source.close()


class LongReads(ScriptedQueue):
    """Returns all its completions at once."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Any] = []

    def read(self, window: int = 0) -> Any:
        self.all += super().read(window) or ()
        found, self.all = self.all, []
        while more := super().read(window):
            found += more
        return found


@pytest.mark.parametrize("count", [64, 65, 300])
def test_a_queue_may_return_any_number_of_completions_at_once(count: int) -> None:
    endpoint = Endpoint(limit=1000, source=Source(ManualDriver(), LongReads()))
    transfers = [endpoint.submit(number) for number in range(count)]
    callers = [endpoint.await_(transfer) for transfer in transfers]
    for number, transfer in enumerate(transfers):
        endpoint.queue.complete(transfer.slot.address, length=number)
    endpoint.driver.settle_down()
    assert [caller.done and caller.outcome.length for caller in callers] == list(range(count))
    endpoint.close()


# -- messages that wait for the end of the iteration


LATE = 0.011  # seconds; above the 10 ms after which the loop counts as late


def wait_long(source: Source) -> None:
    source.message_waits()
    time.sleep(LATE)
    source.messages_leave()


def test_messages_leave_one_by_one_after_they_waited_for_long_twice(endpoint: Endpoint) -> None:
    """The program computed meanwhile, and will do so again. Once may be another process that had the core."""
    wait_long(endpoint.source)
    assert not endpoint.source.hurries
    wait_long(endpoint.source)
    assert endpoint.source.hurries


def test_gaps_between_messages_that_wait_show_it_too(endpoint: Endpoint) -> None:
    source = endpoint.source
    for _ in range(3):
        assert not source.hurries
        source.message_waits()
        time.sleep(LATE)
    source.message_waits()
    assert source.hurries


def test_seldom_gaps_do_not_count(endpoint: Endpoint) -> None:
    source = endpoint.source
    for _ in range(3):
        wait_long(source)
        for _ in range(100):
            source.message_waits()
            source.messages_leave()
    assert not source.hurries


def test_time_in_which_no_message_waits_does_not_count(endpoint: Endpoint) -> None:
    source = endpoint.source
    for _ in range(3):
        source.message_waits()
        source.messages_leave()
        time.sleep(LATE)
        source.messages_leave()
    assert not source.hurries


def test_messages_wait_again_after_a_hundred_times_as_long(endpoint: Endpoint) -> None:
    """Then one gap is enough."""
    source = endpoint.source
    wait_long(source)
    wait_long(source)
    assert source.hurries
    while source.hurries:
        time.sleep(0.01)
    wait_long(source)
    assert source.hurries


def test_an_await_that_could_return_at_once_yields_in_a_long_iteration(endpoint: Endpoint) -> None:
    source = endpoint.source
    while source.must_yield:  # on a busy machine, another process may have the core in between
        source.loop_iterated()
    time.sleep(LATE)
    assert source.must_yield
    while source.must_yield:
        source.loop_iterated()
