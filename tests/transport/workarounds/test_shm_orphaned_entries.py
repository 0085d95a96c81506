"""Orphaned entries in shared memory are published as empty; entries that are published in time are left alone."""

import mmap
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import aiofabric
from aiofabric import EndpointType, EpAttr, FabricAttr, Hints, Quirk
from aiofabric._ffi import ffi
from aiofabric.features import quirks
from aiofabric.transport.workarounds.shm_names import path_of
from aiofabric.transport.workarounds.shm_orphaned_entries import _EMPTY, PATIENCE, OrphanedEntries, _queues
from tests.cq.manual import ManualDriver


class Watch:
    """`OrphanedEntries` of an endpoint, looked at from outside as its peers see it."""

    def __init__(self, path: Path) -> None:
        self.driver = ManualDriver()
        self.published = 0
        self.orphaned_entries = OrphanedEntries(path, self.driver, self._published)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._region = ffi.from_buffer(self._map)
        self.queues = [queue for _, queue in _queues(self._region)]

    def close(self) -> None:
        ffi.release(self._region)
        self._map.close()

    def _published(self) -> None:
        self.published += 1

    def begin(self) -> None:
        self.orphaned_entries.watch()
        self.driver.settle_down()

    def claim(self) -> list[int]:
        """Take the next place of each queue; their positions."""
        positions = []
        for queue in self.queues:
            written = ffi.cast("int64_t *", queue.start)
            positions.append(written[0])
            written[0] += 1
        return positions

    @property
    def unpublished(self) -> list[list[int]]:
        return [list(queue.unpublished()) for queue in self.queues]

    def empty(self, positions: list[int]) -> list[bool]:
        places = [queue._place(position) for queue, position in zip(self.queues, positions, strict=True)]
        return [ffi.cast("char *", place)[_EMPTY] != b"\0" for place in places]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Over a copy of an endpoint's memory: what is made up here is no message that libfabric could read."""
    hints = Hints(ep_attr=EpAttr(type=EndpointType.RDM), fabric_attr=FabricAttr(prov_name="shm"))
    if Quirk.ORPHANED_ENTRIES_STAY not in quirks(aiofabric.getinfo(hints=hints)[0]):
        pytest.skip("this libfabric's shm is locked instead")
    copy = tmp_path / "memory"

    async def make() -> None:
        async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as endpoint:
            shutil.copy(path_of(endpoint.local_address), copy)

    anyio.run(make)
    watch = Watch(copy)
    yield watch
    watch.close()


def test_the_queues_are_known(watch: Watch) -> None:
    assert len(watch.queues) == (1 if aiofabric.library_version() < (2, 5) else 2)
    assert all(queue.size > 1 for queue in watch.queues)


def test_no_claim_takes_no_timer(watch: Watch) -> None:
    watch.begin()
    assert not watch.driver.delays


def test_what_stays_claimed_is_published_as_empty(watch: Watch) -> None:
    positions = watch.claim()
    watch.orphaned_entries.watch()
    watch.begin()  # another peer has gone
    watch.begin()
    assert [delay for delay, _ in watch.driver.delays] == [PATIENCE]
    assert watch.unpublished == [[position] for position in positions]
    watch.driver.pass_time()
    assert watch.unpublished == [[] for _ in positions]
    assert all(watch.empty(positions))
    assert watch.published == 1
    assert not watch.driver.delays


def test_what_is_published_in_time_is_left_alone(watch: Watch) -> None:
    positions = watch.claim()
    watch.begin()
    for queue, position in zip(watch.queues, positions, strict=True):
        ffi.cast("int64_t *", queue._place(position))[0] = position + 1
    later = watch.claim()
    watch.driver.pass_time()
    assert not any(watch.empty(positions))
    assert watch.unpublished == [[position] for position in later]  # these have a time of their own
    watch.driver.pass_time()
    assert all(watch.empty(later))


def test_memory_of_another_layout_is_left_alone(watch: Watch) -> None:
    watch.claim()
    path = watch.orphaned_entries.path
    with path.open("r+b") as file:
        file.write(b"\xff")  # no version of libfabric's
    before = path.read_bytes()
    watch.begin()
    assert not watch.driver.delays
    assert path.read_bytes() == before


def test_memory_that_cannot_be_looked_at_yet_is_later(watch: Watch) -> None:
    """No descriptor is left, perhaps; who listens for lines hears nothing of it."""
    positions = watch.claim()
    path = watch.orphaned_entries.path
    watch.orphaned_entries.path = path.parent  # a directory cannot be opened so
    watch.begin()
    watch.driver.pass_time()
    watch.orphaned_entries.path = path
    watch.driver.pass_time()
    assert watch.unpublished == [[position] for position in positions]
    watch.driver.pass_time()
    assert all(watch.empty(positions))
    assert not watch.driver.delays


def test_an_endpoint_that_closes_meanwhile_is_no_matter(watch: Watch) -> None:
    watch.claim()
    watch.begin()
    watch.orphaned_entries.path.unlink()
    watch.driver.pass_time()
    assert not watch.driver.delays
    assert not watch.published
