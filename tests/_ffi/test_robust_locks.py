"""A lock whose owner was killed is taken over. A lock whose owner lives, or is unknown, is waited for."""

import ctypes
import mmap
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiofabric import library_version
from aiofabric._ffi import address_of, ffi, lib
from tests.fixtures.children import Child, Parent

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
        reason="glibc's spin lock on x86-64 is the one that is known",
    ),
]

PROCESS, LOCK, COUNTS, VERSION = 4, 24, 48, 4  # of libfabric 1.17 (struct smr_region, ofi_shm.h)
FREE = 1
TIMEOUT = 10.0  # seconds: a dead owner is found some thousand times faster
NUMBER = 1 << 5  # the owner's number begins here; other processes subtract from the part below


class Memory:
    """A lock, a word beside it, and what 1.17 counts, in a file that processes share: where an endpoint has them."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._view = ffi.from_buffer(self._map)
        self.words = ffi.cast("int32_t *", self._view + LOCK)
        self.counts = ffi.cast("int64_t *", self._view + COUNTS)

    def be_an_endpoint_s(self, process: int = 0) -> None:
        self._map[0] = VERSION
        self._map[PROCESS : PROCESS + 4] = process.to_bytes(4, "little")

    def close(self) -> None:
        ffi.release(self._view)
        self._map.close()

    @property
    def lock(self) -> int:
        return int(self.words[0])

    @lock.setter
    def lock(self, value: int) -> None:
        self.words[0] = value

    @property
    def said(self) -> bool:
        return bool(self.words[1])

    def say(self) -> None:
        self.words[1] = 1

    def take(self) -> None:
        lib.aiofabric_make_locks_robust(library_version() < (1, 18))
        lib.aiofabric_spin_lock(self.words)


class Taking(threading.Thread):
    """Takes the lock, and records whether the word was set by then. Waits in C, without the interpreter's lock."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(daemon=True)  # a thread that never gets the lock does not keep the process alive
        self.memory = memory
        self.said = False
        self.start()

    def run(self) -> None:
        self.memory.take()
        self.said = self.memory.said

    def got_it(self) -> bool:
        self.join(TIMEOUT)
        in_time = not self.is_alive()
        self.memory.lock = FREE  # a thread that waits after a failure does not wait for ever
        self.join()
        return in_time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "memory"
    file.write_bytes(bytes(mmap.PAGESIZE))
    return file


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    memory = Memory(path)
    memory.lock = FREE
    yield memory
    memory.close()


def owner(parent: Parent, path: Path) -> None:
    memory = Memory(path)
    memory.take()
    parent.tell("taken")
    parent.receive()
    memory.say()
    memory.lock = FREE
    parent.receive()


def forked_owner(parent: Parent, path: Path) -> None:
    memory = Memory(path)
    lib.aiofabric_make_locks_robust(library_version() < (1, 18))
    child = os.fork()
    if not child:
        memory.take()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    parent.tell("taken")
    parent.receive()


def test_a_free_lock_is_taken(memory: Memory) -> None:
    memory.take()
    assert memory.lock != FREE


@pytest.mark.parametrize("waited_for", [True, False], ids=["waited for", "a zombie"])
def test_a_killed_owner_s_lock_is_taken_over(
    child: Callable[..., Child], memory: Memory, path: Path, waited_for: bool
) -> None:
    process = child(owner, path)
    assert process.receive() == "taken"
    if waited_for:
        process.kill()
    else:
        os.kill(process.pid, signal.SIGKILL)
    assert Taking(memory).got_it()


def test_it_is_after_others_have_tried_to_take_it(child: Callable[..., Child], memory: Memory, path: Path) -> None:
    """Each process without aiofabric that finds it taken subtracts 1."""
    process = child(owner, path)
    assert process.receive() == "taken"
    process.kill()
    memory.lock -= NUMBER - 1
    assert Taking(memory).got_it()


def test_an_owner_that_too_many_have_made_unknown_is_waited_for(
    child: Callable[..., Child], memory: Memory, path: Path
) -> None:
    """The subtracted sum has reached the lock's number, and the process with the number before may have ended."""
    process = child(owner, path)
    assert process.receive() == "taken"
    memory.lock -= NUMBER
    taking = Taking(memory)
    taking.join(0.1)
    process.tell("let go")
    assert taking.got_it()
    assert taking.said


@pytest.mark.skipif(library_version() >= (1, 18), reason="later versions look whether a pool is empty")
@pytest.mark.parametrize("endpoint", [True, False])
def test_what_a_dead_sender_may_have_taken_is_counted(
    child: Callable[..., Child], memory: Memory, path: Path, endpoint: bool
) -> None:
    """1.17 does not check whether a pool is empty. It counts, and a sender does so last."""
    if endpoint:
        memory.be_an_endpoint_s()
    memory.counts[0] = 7
    process = child(owner, path)
    assert process.receive() == "taken"
    process.kill()
    assert Taking(memory).got_it()
    assert (memory.counts[0], memory.counts[1]) == (7 - endpoint, 0)


@pytest.mark.alone  # the file keeps every other process from taking over, too
def test_an_owner_may_live_where_others_count_their_processes(
    child: Callable[..., Child], memory: Memory, path: Path
) -> None:
    """A container that shares /dev/shm has process ids of its own: its process 17 is not ours."""
    process = child(owner, path)
    assert process.receive() == "taken"
    process.kill()
    elsewhere = Path("/dev/shm", f"aiofabric-1-{os.getpid()}-elsewhere")
    elsewhere.touch()
    try:
        taking = Taking(memory)
        taking.join(0.1)
        assert taking.is_alive()
    finally:
        elsewhere.unlink()
    assert taking.got_it()


def test_a_forked_owner_has_its_own_number(child: Callable[..., Child], memory: Memory, path: Path) -> None:
    process = child(forked_owner, path)
    assert process.receive() == "taken"
    assert Taking(memory).got_it()


def test_a_living_owner_is_waited_for(child: Callable[..., Child], memory: Memory, path: Path) -> None:
    process = child(owner, path)
    assert process.receive() == "taken"
    taking = Taking(memory)
    taking.join(0.1)  # a hundred times what a dead owner has
    process.tell("let go")
    assert taking.got_it()
    assert taking.said


@pytest.mark.skipif(library_version() >= (1, 18), reason="the layout of 1.17 is known")
def test_a_lock_in_the_memory_of_a_process_that_has_ended_is_taken(
    child: Callable[..., Child], memory: Memory, path: Path
) -> None:
    process = child(owner, path)
    assert process.receive() == "taken"
    process.kill()
    memory.be_an_endpoint_s(process.pid)
    memory.lock = 0  # the process that took it is not known
    assert Taking(memory).got_it()


def test_who_is_not_known_is_waited_for(memory: Memory) -> None:
    """A process without aiofabric writes no number. The memory belongs to this process, which lives."""
    memory.be_an_endpoint_s(os.getpid())
    lock = ctypes.c_void_p(address_of(memory.words))
    ctypes.CDLL(None).pthread_spin_lock(lock)
    taking = Taking(memory)
    taking.join(0.1)
    memory.say()
    ctypes.CDLL(None).pthread_spin_unlock(lock)
    assert taking.got_it()
    assert taking.said
