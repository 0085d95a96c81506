"""The descriptors of one source: which of them are watched while it is awake, asleep, and paused."""

from typing import Any

import pytest

from aiofabric.cq.loops.readers import Readers
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once


class Loop(ManualDriver):
    """Records what is watched on demand."""

    def __init__(self, *, watches_on_demand: bool = True) -> None:
        super().__init__()
        self.demands: list[int] = []
        self.on_demand: list[int] = []
        if watches_on_demand:
            self.demand = self.demands.append

    def add_reader(self, fd: int, callback: Any, *, on_demand: bool = False) -> None:
        super().add_reader(fd, callback)
        if on_demand:
            self.on_demand.append(fd)


def nothing() -> None:
    pass


def test_descriptors_are_watched_from_the_start() -> None:
    loop = Loop()
    readers = Readers(loop)
    readers.add(5, nothing)
    readers.add(None, nothing)  # a queue without a descriptor
    readers.add(6, nothing, on_demand=True)
    assert loop.readers == {5: nothing, 6: nothing}
    assert (loop.on_demand, loop.demands) == ([6], [])


def test_a_source_that_sleeps_asks_for_the_one_on_demand() -> None:
    loop = Loop()
    readers = Readers(loop)
    readers.add(5, nothing)
    readers.sleep()
    assert loop.demands == []
    readers.add(6, nothing, on_demand=True)
    readers.sleep()
    readers.sleep()
    assert loop.demands == [6, 6]
    assert set(loop.readers) == {5, 6}


def test_a_loop_that_watches_all_the_time_is_not_asked() -> None:
    loop = Loop(watches_on_demand=False)
    readers = Readers(loop)
    readers.add(6, nothing, on_demand=True)
    readers.sleep()
    assert loop.readers == {6: nothing}


def test_paused_descriptors_are_watched_again_when_the_source_sleeps() -> None:
    loop = Loop()
    readers = Readers(loop)
    readers.add(5, nothing)
    readers.add(6, nothing, on_demand=True)
    readers.pause()
    assert not loop.readers
    readers.pause()
    readers.add(7, nothing)
    assert not loop.readers
    loop.on_demand.clear()
    readers.sleep()
    assert set(loop.readers) == {5, 6, 7}
    assert (loop.on_demand, loop.demands) == ([6], [6])
    del loop.readers[5]
    readers.sleep()  # they are watched already
    assert set(loop.readers) == {6, 7}
    readers.pause()
    assert not loop.readers
