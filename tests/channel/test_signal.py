"""A task that waits for a signal polls its queue first, but not before other tasks have had their turn."""

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric.channel.signal import PollingSignal
from tests.cq.manual import Caller, ManualDriver, ManualWaiter

pytestmark = pytest.mark.once


class Polled:
    """A source that records its calls; a poll sets the signal in the end."""

    def __init__(self, *, must_iterate: bool, found: bool = False) -> None:
        self.calls: list[str] = []
        self.must_iterate = must_iterate
        self.found = found
        self.driver: Any = SimpleNamespace(create_waiter=self.create_waiter)
        self.loop = ManualDriver()
        double: Any = self
        self.signal = PollingSignal(double)

    async def yield_to_loop(self) -> None:
        self.calls.append("yield")
        await self.loop.yield_to_loop()

    def create_waiter(self) -> ManualWaiter:
        return ManualWaiter(self.loop)

    def poll(self) -> None:
        self.calls.append("poll")
        if self.found:
            self.signal.set()

    def prepare(self) -> None:
        self.calls.append("prepare")

    def woke(self) -> None:
        self.calls.append("woke")


def wait(on: Polled) -> Caller:
    caller = Caller(on.loop, on.signal.wait())
    on.loop.settle_down()
    return caller


def test_a_signal_that_is_set_already_is_not_waited_for() -> None:
    on = Polled(must_iterate=True)
    on.signal.set()
    assert wait(on).done
    assert on.calls == []


def test_a_source_that_may_be_polled_no_more_is_polled_after_an_iteration_of_the_loop() -> None:
    on = Polled(must_iterate=True, found=True)
    assert wait(on).done
    assert on.calls == ["yield", "poll"]


def test_a_signal_that_is_set_during_the_iteration_needs_no_poll() -> None:
    on = Polled(must_iterate=True)
    caller = Caller(on.loop, on.signal.wait())
    on.signal.set()
    on.loop.settle_down()
    assert caller.done
    assert on.calls == ["yield"]


@pytest.mark.parametrize(("must_iterate", "before"), [(False, ["prepare"]), (True, ["yield", "poll", "prepare"])])
def test_a_signal_wakes_its_task_once(must_iterate: bool, before: list[str]) -> None:
    on = Polled(must_iterate=must_iterate)
    caller = wait(on)
    assert not caller.done
    on.signal.set()
    on.signal.set()
    on.loop.settle_down()
    assert caller.done
    assert on.calls == [*before, "woke"]
