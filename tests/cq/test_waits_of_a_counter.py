"""Which tasks a counter wakes, and while which sources poll it: the state alone."""

# Doubles: the values that libfabric reads.
# Privates: an object with the methods of the counter's handle stands for it.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.cq import counter as module
from aiofabric.cq.counter import _CounterHandle, _Wait
from tests.cq.manual import ManualDriver
from tests.fixtures.methods import methods_of

pytestmark = pytest.mark.once


@methods_of(_CounterHandle, "poll", "remember", "forget")
class Counter:
    """The waits of a counter that two sources move."""

    fid = "counter"

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self.waits: dict[Any, None] = {}
        self.touched: list[int] = []
        self.sources = [
            SimpleNamespace(polled={}, wait_owners={}, touch=lambda number=number: self.touched.append(number))
            for number in range(2)
        ]
        self.moved_by = self.sources

    def wait(self, threshold: int, errors: int = 0) -> _Wait:
        wait = _Wait(threshold, errors, self.driver.create_waiter(), self.driver)
        own: Any = self
        own.remember(wait)
        return wait

    @property
    def polled(self) -> list[bool]:
        return [self in source.polled for source in self.sources]


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The values that libfabric reads."""
    values = {"value": 0, "errors": 0}
    reads = SimpleNamespace(fi_cntr_read=lambda _: values["value"], fi_cntr_readerr=lambda _: values["errors"])
    monkeypatch.setattr(module, "lib", reads)
    return values


@pytest.fixture
def counter(values: dict[str, int]) -> Any:
    return Counter()


def test_a_task_is_woken_when_its_threshold_is_reached(counter: Any, values: dict[str, int]) -> None:
    near, far = counter.wait(3), counter.wait(4)
    values["value"] = 2
    assert counter.poll() == 0
    values["value"] = 3
    assert counter.poll() == 1
    assert (near.waiter.done(), far.waiter.done()) == (True, False)
    assert counter.poll() == 0
    values["value"] = 9
    assert counter.poll() == 1


def test_a_failure_wakes_tasks_that_began_before_it(counter: Any, values: dict[str, int]) -> None:
    before = counter.wait(3)
    values["errors"] = 1
    later = counter.wait(3, errors=1)
    assert counter.poll() == 1
    assert (before.waiter.done(), later.waiter.done()) == (True, False)


def test_sources_poll_a_counter_while_a_task_waits(counter: Any) -> None:
    assert counter.polled == [False, False]
    one, other = counter.wait(1), counter.wait(2)
    assert counter.polled == [True, True]
    assert counter.touched == [0, 1, 0, 1]
    counter.forget(one)
    assert counter.polled == [True, True]
    counter.forget(other)
    counter.forget(other)
    assert counter.polled == [False, False]


def test_a_task_that_left_is_not_woken(counter: Any, values: dict[str, int]) -> None:
    wait = counter.wait(1)
    wait.waiter.set_result(None)
    values["value"] = 1
    assert counter.poll() == 1
    closed = counter.wait(1)
    counter.driver.is_closed = True
    assert counter.poll() == 1
    assert not closed.waiter.done()
