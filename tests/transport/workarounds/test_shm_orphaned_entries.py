"""Queue entries in shared memory that a dead sender claimed are released; those of a live sender never are."""

# Privates: the folders of the system are replaced by the test's own.
# Doubles: processes that cannot be examined are imitated.

import mmap
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from psutil import STATUS_SLEEPING, STATUS_STOPPED, Process

import aiofabric
from aiofabric import EndpointType, Quirk
from aiofabric._ffi import ffi
from aiofabric.transport.workarounds import shm_orphaned_entries, writers
from aiofabric.transport.workarounds.shm_names import own_namespace, path_of
from aiofabric.transport.workarounds.shm_orphaned_entries import EMPTY_AT, OrphanedEntries, queues_of
from tests.cq.manual import ManualDriver
from tests.fixtures.peers import quirks_of


class Watch:
    """`OrphanedEntries` of an endpoint, looked at from outside as its peers see it."""

    def __init__(self, path: Path) -> None:
        self.driver = ManualDriver()
        self.published = 0
        self.orphaned_entries = OrphanedEntries(path, self.driver, self._published)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._region = ffi.from_buffer(self._map)
        self.queues = [queue for _, queue in queues_of(self._region)]

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
        places = [queue.place(position) for queue, position in zip(self.queues, positions, strict=True)]
        return [ffi.cast("char *", place)[EMPTY_AT] != b"\0" for place in places]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of /dev/shm, where other programs may have left files."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(writers, "_MEMORY", folder)
    return folder


@pytest.fixture
def watch(tmp_path: Path, memory: Path) -> Iterator[Watch]:
    """On a copy of an endpoint's memory: libfabric could not read the messages that the test makes."""
    if Quirk.ORPHANED_ENTRIES_STAY not in quirks_of("shm"):
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


@contextmanager
def another(path: Path, doing: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the memory mapped, and is ``doing`` something."""
    source = f"""
import mmap, time
with open({str(path)!r}, "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
{doing}
"""
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mapped\n"
        try:
            yield process
        finally:
            process.kill()


SLEEPING, COMPUTING = "time.sleep(1000)", "while True: pass"


def wait_for(process: subprocess.Popen[bytes], state: str) -> None:
    while Process(process.pid).status() != state:
        pass


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that computes, outside of any system call."""
    call = Path("/proc", str(process.pid), "syscall")
    process.send_signal(signal.SIGSTOP)
    wait_for(process, STATUS_STOPPED)
    while not call.read_text().startswith("-1 "):
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGSTOP)
        wait_for(process, STATUS_STOPPED)


def test_an_entry_that_no_live_process_can_fill_is_published_as_empty(watch: Watch) -> None:
    positions = watch.claim()
    watch.orphaned_entries.watch()
    watch.begin()  # another peer has gone
    assert watch.unpublished == [[] for _ in positions]
    assert all(watch.empty(positions))
    assert watch.published == 1
    assert not watch.driver.delays


def test_an_entry_beside_a_process_that_sleeps_in_the_kernel_is_published(watch: Watch) -> None:
    with another(watch.orphaned_entries.path, SLEEPING) as process:
        wait_for(process, STATUS_SLEEPING)
        positions = watch.claim()
        watch.begin()
        assert all(watch.empty(positions))


def test_a_stopped_sender_keeps_its_entry_until_it_is_killed(watch: Watch) -> None:
    """However long it is stopped, if it was stopped outside of any system call: it would continue to write to it."""
    with another(watch.orphaned_entries.path, COMPUTING) as process:
        stop(process)
        positions = watch.claim()
        watch.begin()
        for _ in range(5):
            watch.driver.pass_time()
        assert watch.unpublished == [[position] for position in positions]
        assert not watch.published
        process.kill()
        process.wait()
        watch.driver.pass_time()
        assert all(watch.empty(positions))
        assert not watch.driver.delays


WAITING = {
    "sleep": SLEEPING,
    "select": "import select; select.select([], [], [], 1000)",
    "poll": "import select; select.poll().poll(10**6)",
    "epoll": "import select; select.epoll().poll(1000)",
    "threads": "import threading; threading.Thread(target=time.sleep, args=(1000,)).start(); threading.Event().wait()",
    "with a time limit": "import threading; threading.Event().wait(1000)",
}


def states(process: subprocess.Popen[bytes]) -> list[str]:
    """The state of each of its threads."""
    stats = Path(f"/proc/{process.pid}/task").glob("*/stat")
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]


@pytest.mark.parametrize("call", WAITING)
def test_an_entry_beside_a_process_that_was_stopped_while_it_waited_is_published(watch: Watch, call: str) -> None:
    """A killed sender left it. While the process is stopped, all others would wait."""
    threads = 2 if call == "threads" else 1
    with another(watch.orphaned_entries.path, WAITING[call]) as process:
        while states(process) != ["S"] * threads:
            pass
        process.send_signal(signal.SIGSTOP)
        while states(process) != ["T"] * threads:
            pass
        positions = watch.claim()
        watch.begin()
        assert all(watch.empty(positions))


def test_an_entry_is_kept_while_processes_of_another_container_share_the_memory(watch: Watch, memory: Path) -> None:
    other = memory / "aiofabric-1-1-of-a-test"
    other.touch()
    positions = watch.claim()
    watch.begin()
    watch.driver.pass_time()
    assert watch.unpublished == [[position] for position in positions]
    other.unlink()
    watch.driver.pass_time()
    assert all(watch.empty(positions))


def test_what_is_published_in_time_is_left_alone(watch: Watch) -> None:
    with another(watch.orphaned_entries.path, COMPUTING) as process:
        stop(process)
        positions = watch.claim()
        watch.begin()
        for queue, position in zip(watch.queues, positions, strict=True):
            ffi.cast("int64_t *", queue.place(position))[0] = position + 1
        later = watch.claim()
        watch.driver.pass_time()
        assert not any(watch.empty(positions))
        assert watch.unpublished == [[position] for position in later]
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
    """No descriptor is left, perhaps; the OOB listener notices nothing."""
    positions = watch.claim()
    path = watch.orphaned_entries.path
    watch.orphaned_entries.path = path.parent  # a directory cannot be opened so
    watch.begin()
    watch.driver.pass_time()
    assert watch.unpublished == [[position] for position in positions]
    watch.orphaned_entries.path = path
    watch.driver.pass_time()
    assert all(watch.empty(positions))
    assert not watch.driver.delays


def test_an_endpoint_that_closes_meanwhile_is_no_matter(watch: Watch) -> None:
    path = watch.orphaned_entries.path
    with another(path, COMPUTING) as process:
        stop(process)
        watch.claim()
        watch.begin()
        path.unlink()
        watch.driver.pass_time()
        assert not watch.driver.delays
        assert not watch.published


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("aiofabric-{space}-4242-x", True),
        ("aiofabric-{space}-17-x", False),
        ("4242:0:2", True),
        ("42:0:2", True),
        ("17:0:2", False),
        ("x", True),
    ],
)
def test_an_entry_is_kept_beside_a_process_that_cannot_be_examined(
    watch: Watch, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: bool
) -> None:
    """If memory in /dev/shm may be its own. (A folder in place of its maps cannot be read either.)"""
    (memory / name.format(space=f"{own_namespace():x}")).touch()
    (tmp_path / "proc/4242/maps").mkdir(parents=True)
    (tmp_path / "proc/4242/status").write_text("Pid:\t4242\nNSpid:\t4242\t42\n")
    monkeypatch.setattr(writers, "_PROC", tmp_path / "proc")
    positions = watch.claim()
    watch.begin()
    assert all(watch.empty(positions)) is not kept


def test_a_message_that_is_published_during_the_examination_is_kept(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard: its sender is seen asleep just after it has published; the entry must not be marked as empty then."""
    with another(watch.orphaned_entries.path, SLEEPING) as process:
        wait_for(process, STATUS_SLEEPING)
        positions = watch.claim()
        examined = []

        def publishes(thread: writers.Thread) -> bool:
            for queue, position in zip(watch.queues, positions, strict=True):
                ffi.cast("int64_t *", queue.place(position))[0] = position + 1
            examined.append(thread)
            return True

        monkeypatch.setattr(shm_orphaned_entries, "left_a_write", publishes)
        watch.begin()
        assert examined
        assert not any(watch.empty(positions))
        assert not watch.published
