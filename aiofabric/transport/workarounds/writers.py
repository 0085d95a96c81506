"""Writers: live threads that may be in the middle of a write into shared memory.

libfabric claims an entry of a queue in shared memory, fills it and publishes it without a system call in between. So a
thread that sleeps inside a system call has published every entry that it claimed before. A thread that is stopped
(SIGSTOP, a debugger) does not count as asleep, however long it is stopped: /proc shows the difference. But /proc shows,
too, which system call it was in when it was stopped. Some of them show that the thread waited. Other system calls do
not count: a signal handler may have made them, or libfabric, to copy a large message.
"""

from __future__ import annotations

import os
import platform
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .shm_names import own_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Thread", "Unprovable", "left_a_write", "threads_that_map"]

_PROC = Path("/proc")
_MEMORY = Path("/dev/shm")
_IN_MEMORY = re.compile(r"/dev/shm/(\S+)")
_OUR_NAME = re.compile(r"aiofabric-([0-9a-f]+)-(\d+)-")
_PROVIDERS_NAME = re.compile(r"(\d+):\d+:\d+$")  # of an endpoint that libfabric named: process, user, number
_NO_ENDPOINT = "fi_sm2_"  # the table of sm2's endpoints
# Calls in which a thread waits, or lets another one run: select, poll, epoll_wait, nanosleep, sched_yield and their
# variants, and restart_syscall; and futex, if the thread waits. Their numbers are those of <sys/syscall.h>.
_WAITS, _FUTEX = {
    "x86_64": (frozenset((7, 23, 24, 35, 219, 230, 232, 270, 271, 281, 441)), 202),
    "aarch64": (frozenset((22, 72, 73, 101, 115, 124, 128, 441)), 98),
}.get(platform.machine(), (frozenset(), -1))
_FUTEX_WAITS = (0, 9)  # FUTEX_WAIT, FUTEX_WAIT_BITSET
_FUTEX_OPERATION = 0x7F  # without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
_TRAPS = ("freez", "trap", "stop")  # in names of kernel functions in which a thread waits outside of a system call


class Unprovable(Exception):
    """Processes that cannot be examined may have the memory mapped, too."""


class Thread(NamedTuple):
    """A thread of this machine. The ids of an ended thread may be reused; then an entry is kept longer, never released
    early."""

    process: int
    number: int


def threads_that_map(path: Path) -> set[Thread]:
    """Return all threads, except the calling one, of the processes that have a file mapped.

    A process that cannot be examined counts if it may send over shm: a file in /dev/shm may be its own.

    Raises:
        Unprovable: such a process exists; the text has the reason.
    """
    memory = _shared_memory()
    status = path.stat()
    mapping = re.compile(rf" {os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x} {status.st_ino} ")
    found, hidden, seen = set(), [], set[str]()
    for process in _PROC.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            mapped = (process / "maps").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except OSError:
            hidden.append(process)
            continue
        seen.update(_IN_MEMORY.findall(mapped))
        if mapping.search(mapped):
            found |= {Thread(int(process.name), number) for number in _threads(process)}
    for process in hidden:
        owner = _owner(process)
        for name, its_owner in memory.items():
            if owner == its_owner and _may_belong(name, process, seen):
                raise Unprovable(f"process {process.name} may have {path} mapped, and cannot be examined")
    return found - {Thread(os.getpid(), threading.get_native_id())}


def _may_belong(name: str, process: Path, seen: set[str]) -> bool:
    """Whether a file in /dev/shm may be the memory of a process that cannot be examined."""
    if match := _OUR_NAME.match(name):
        return match[2] == process.name
    if match := _PROVIDERS_NAME.match(name):  # often left by a killed process
        return match[1] in _ids(process)
    return name not in seen and not name.startswith(_NO_ENDPOINT)


def _ids(process: Path) -> list[str]:
    """The ids of a process in this PID namespace, and in those below."""
    with suppress(OSError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    return [process.name]


def left_a_write(thread: Thread) -> bool:
    """Whether every entry that the thread claimed is published: it has ended, or it sleeps inside a system call, or it
    was stopped in one that waits."""
    place = _PROC / str(thread.process) / "task" / str(thread.number)
    try:
        state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        if state not in "STt":
            return state in "ZX"
        with suppress(PermissionError):
            number, *arguments = (place / "syscall").read_text().split()  # "running", "-1" outside of a call, or a call
            return number.isdecimal() and (state == "S" or _waits(int(number), arguments))
        with suppress(PermissionError):
            return state == "S" and not any(trap in (place / "wchan").read_text() for trap in _TRAPS)
    except (FileNotFoundError, ProcessLookupError):
        return not place.exists()  # this kernel may lack the file
    return False


def _waits(number: int, arguments: list[str]) -> bool:
    """Whether a thread that makes this system call waits."""
    if number == _FUTEX:
        return int(arguments[1], 16) & _FUTEX_OPERATION in _FUTEX_WAITS
    return number in _WAITS


def _threads(process: Path) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        yield from (int(each.name) for each in (process / "task").iterdir())


def _owner(path: Path) -> int | None:
    """The user id of the owner; None if the process has ended, or the file is gone."""
    try:
        return path.stat().st_uid
    except FileNotFoundError:
        return None


def _shared_memory() -> dict[str, int]:
    """The files in /dev/shm, and the user of each. A process that sends over shm has a file there.

    Raises:
        Unprovable: a file belongs to a process of another PID namespace (container).
    """
    here = own_namespace()
    found = {}
    for entry in _MEMORY.iterdir():
        match = _OUR_NAME.match(entry.name)
        if match and int(match[1], 16) != here:
            raise Unprovable(f"{entry} belongs to a process of another container, which cannot be examined")
        if (owner := _owner(entry)) is not None:
            found[entry.name] = owner
    return found
