"""When the next pass of a source comes: the rule alone, with every state that it reads set by the test."""

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric._core import EMPTY_WAKEUPS
from aiofabric.cq.source.delays import Delays
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once

DELAYS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02]
POLL_DELAYS = DELAYS[:4]


class Passes:
    """A source whose state the test sets; it records what it is told to do."""

    def __init__(self, *, descriptor: bool = True, polls: bool = False) -> None:
        self.driver = ManualDriver()
        self.polls = polls
        self.polling = SimpleNamespace(over=lambda: self.told.append("polled"))
        self.readers = SimpleNamespace(
            sleep=lambda: self.told.append("watch"), pause=lambda: self.told.append("do not watch")
        )
        self.told: list[str] = []
        self.is_quiet = True
        self.empty_polls = self.empty_streak = self.interest = self.completions = 0
        self.events_due = self.paused = False
        self.recheck = True
        self.polled: dict[Any, None] = {}
        self.queued: list[Any] = []
        source: Any = self
        self.delays = Delays(source, without_descriptor=not descriptor)

    def quiet(self) -> bool:
        self.told.append("quiet?")
        return self.is_quiet

    def sleep(self) -> None:
        self.told.append("sleep")

    def touch(self) -> None:
        self.told.append("again")

    def progress(self) -> None:
        self.told.append("pass")

    # -- for the test

    def end_pass(self, moved: int = 0) -> list[str]:
        """End a pass; return the orders to the source."""
        self.told.clear()
        self.delays.end_pass(moved)
        return self.told

    def passes(self, count: int) -> list[float | None]:
        """The delays after as many passes without a completion; None: there is none."""
        found: list[float | None] = []
        for _ in range(count):
            self.end_pass()
            found.append(self.driver.pass_time() if self.driver.delays else None)
        return found


# -- a queue with a descriptor


def test_a_quiet_source_sleeps() -> None:
    source = Passes()
    source.empty_polls = 5
    assert source.end_pass() == ["quiet?", "sleep"]
    assert not source.driver.delays
    assert source.empty_polls == 0


def test_a_source_that_may_not_sleep_passes_twice_at_once_and_then_after_growing_delays() -> None:
    source = Passes()
    source.is_quiet = False
    assert source.end_pass() == ["quiet?", "again"]
    assert source.events_due
    assert source.end_pass() == ["quiet?", "again"]
    assert not source.driver.delays
    assert source.end_pass() == ["quiet?", "watch"]
    assert [delay for delay, _ in source.driver.delays] == [DELAYS[1]]
    source.end_pass()
    assert [delay for delay, _ in source.driver.delays] == [DELAYS[1]]  # one timer at a time
    source.driver.pass_time()
    assert source.told[-1] == "pass"
    assert source.passes(5) == [DELAYS[3], DELAYS[4], DELAYS[5], DELAYS[5], DELAYS[5]]
    assert not source.paused


def test_the_next_passes_read_event_queues_only_if_one_of_them_is_not_quiet() -> None:
    source = Passes()
    source.is_quiet = source.recheck = False
    for _ in range(2):
        assert source.end_pass() == ["quiet?", "again"]
        assert not source.events_due
    source.end_pass()
    assert source.events_due  # the pass after a delay does, in any case


def test_after_several_empty_wakeups_the_descriptor_is_not_watched() -> None:
    source = Passes()
    source.is_quiet = False
    source.empty_streak = EMPTY_WAKEUPS - 1
    source.empty_polls = 2
    assert source.end_pass() == ["quiet?", "watch"]
    source.driver.pass_time()
    source.empty_streak = EMPTY_WAKEUPS
    assert source.end_pass() == ["quiet?", "do not watch"]
    assert source.paused
    source.driver.pass_time()
    assert source.empty_streak == EMPTY_WAKEUPS - 1  # it is tried again
    assert source.told[-1] == "pass"


@pytest.mark.parametrize("streak", [EMPTY_WAKEUPS - 1, EMPTY_WAKEUPS])
@pytest.mark.parametrize("may", [True, False, None])
def test_a_descriptor_that_may_stay_readable_is_left_alone_for_a_while(may: bool | None, streak: int) -> None:
    source = Passes()
    source.empty_streak = streak
    source.delays.may_stay_readable = None if may is None else lambda: bool(may)
    if may and streak == EMPTY_WAKEUPS:
        assert source.end_pass() == ["quiet?", "do not watch"]
        assert [delay for delay, _ in source.driver.delays] == [DELAYS[1]]
        assert source.paused
    else:
        assert source.end_pass() == ["quiet?", "sleep"]
        assert not source.driver.delays


@pytest.mark.parametrize("reason", ["counter", "refused"])
def test_what_has_no_descriptor_is_polled_while_the_source_sleeps(reason: str) -> None:
    source = Passes()
    if reason == "counter":
        source.polled[object()] = None
    else:
        source.queued = [SimpleNamespace(refused=0), SimpleNamespace(refused=1)]
    assert source.end_pass() == ["quiet?", "sleep"]
    assert source.driver.pass_time() == DELAYS[0]
    assert source.passes(7) == [*DELAYS[1:], DELAYS[5], DELAYS[5]]
    source.delays.reset()
    assert source.passes(1) == [DELAYS[0]]


def test_operations_that_wait_for_room_need_no_polls() -> None:
    source = Passes()
    source.queued = [SimpleNamespace(refused=0)]
    assert source.passes(2) == [None, None]


# -- a queue without a descriptor


def test_a_queue_without_a_descriptor_is_polled_after_growing_delays() -> None:
    source = Passes(descriptor=False, polls=True)
    source.interest = 1
    assert source.end_pass() == ["polled"]
    source.driver.pass_time()
    assert source.passes(5) == [*POLL_DELAYS[1:], POLL_DELAYS[3], POLL_DELAYS[3]]
    source.end_pass(moved=1)
    assert source.driver.pass_time() == POLL_DELAYS[0]


def test_a_queue_for_which_no_task_waits_is_polled_seldom() -> None:
    source = Passes(descriptor=False, polls=True)
    assert source.passes(3) == [POLL_DELAYS[3]] * 3
    source.end_pass(moved=1)
    assert source.driver.pass_time() == POLL_DELAYS[0]
    source.polled[object()] = None
    source.delays.reset()
    assert source.passes(2) == POLL_DELAYS[:2]


@pytest.mark.parametrize("moved", [0, 1])
@pytest.mark.parametrize("may", [True, False, None])
@pytest.mark.parametrize("blind", [False, True])
def test_polling_stops_when_it_may(blind: bool, may: bool | None, moved: int) -> None:
    source = Passes(descriptor=False, polls=True)
    source.completions = 1
    source.polled = {object(): None} if blind else {}
    source.delays.may_stop_polling = None if may is None else lambda: bool(may)
    assert source.end_pass(moved) == ["polled"]
    stops = may is True and not moved and not blind
    assert bool(source.driver.delays) is not stops


def test_polling_that_was_resumed_for_nothing_stops_later() -> None:
    """A peer whose messages wait for their receives rings the doorbell again at once."""
    source = Passes(descriptor=False, polls=True)
    source.completions = 1
    source.delays.may_stop_polling = lambda: True
    source.end_pass()
    assert not source.driver.delays
    for _ in range(16):
        source.end_pass()
        assert source.driver.pass_time()
    source.end_pass()
    assert not source.driver.delays
    source.empty_polls = 0
    source.completions += 1
    source.end_pass()
    assert not source.driver.delays


def test_a_question_that_was_not_agreed_to_is_asked_after_each_empty_pass() -> None:
    """A doorbell agrees when all peers have answered. A ring starts from the beginning."""
    source = Passes(descriptor=False, polls=True)
    source.completions = 1
    answers = [False, False, True, False]
    source.delays.may_stop_polling = lambda: answers.pop(0)
    for left in (3, 2):
        source.end_pass()
        assert (len(answers), bool(source.driver.delays)) == (left, True)
    source.end_pass()
    assert (len(answers), bool(source.driver.delays)) == (1, False)
    source.completions += 1
    source.end_pass()
    assert not answers
    source.delays.reset()
    for _ in range(16):
        source.end_pass()
        assert source.driver.pass_time()


def test_the_descriptor_of_an_event_queue_that_stays_readable_is_not_watched() -> None:
    source = Passes(descriptor=False, polls=True)
    source.empty_streak = EMPTY_WAKEUPS - 1
    assert source.end_pass() == ["polled"]
    source.driver.pass_time()
    assert not source.events_due
    source.empty_streak = EMPTY_WAKEUPS
    assert source.end_pass() == ["polled", "do not watch"]
    source.driver.pass_time()
    assert source.events_due  # no wake-up tells of events


def test_a_source_with_a_descriptor_polls_a_few_times_before_it_sleeps() -> None:
    source = Passes(polls=True)
    source.interest = 1
    assert source.passes(4) == POLL_DELAYS
    assert source.end_pass() == ["polled", "quiet?", "sleep"]
    assert not source.driver.delays
    source.paused = True
    assert source.passes(1) == [POLL_DELAYS[0]]
    assert not source.events_due  # its descriptor is watched again


def test_a_delay_can_be_cancelled() -> None:
    source = Passes(descriptor=False, polls=True)
    source.end_pass()
    source.delays.cancel()
    source.delays.cancel()
    assert not source.driver.delays
    assert source.empty_polls == 1
    source.end_pass()
    source.delays.reset()
    assert not source.driver.delays
    assert source.empty_polls == 0
