"""The test whether a thread may still write to a queue entry. A thread that cannot be examined may."""

# Privates: the folders of the system are replaced by the test's own.
# Doubles: /proc is replaced by files of the test.

from __future__ import annotations

from typing import Any

import pytest

from aiofabric.transport.workarounds import writers
from aiofabric.transport.workarounds.writers import Thread, left_a_write

pytestmark = pytest.mark.once

ASLEEP = "4242 (a) name) S 1 1"
STOPPED = ASLEEP.replace("S", "T")
FUTEX, NONE = writers._FUTEX, 9999


class Place:
    """/proc, of which each file has a text or an error."""

    def __init__(self, files: dict[str, Any], name: str = "") -> None:
        self.files, self.name = files, name

    def __truediv__(self, name: str) -> Place:
        return Place(self.files, name)

    def read_text(self) -> str:
        text = self.files[self.name]
        if isinstance(text, Exception):
            raise text
        return text  # type: ignore[no-any-return]

    def exists(self) -> bool:
        return bool(self.files["exists"])


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"stat": ASLEEP.replace("S", "R")}, False),
        ({"stat": STOPPED, "syscall": "-1 0x1"}, False),  # in the middle of it, perhaps
        ({"stat": STOPPED, "syscall": f"{NONE} 0x1"}, False),  # it may have copied a part of a message by this call
        ({"stat": STOPPED, "syscall": f"{FUTEX} 0x1 0x81"}, False),  # it wakes another thread
        ({"stat": STOPPED, "syscall": f"{FUTEX} 0x1 0x80"}, True),
        ({"stat": STOPPED, "syscall": f"{FUTEX} 0x1 0x189"}, True),
        ({"stat": STOPPED, "syscall": PermissionError(), "wchan": "do_signal_stop"}, False),
        ({"stat": ASLEEP.replace("S", "D")}, False),
        ({"stat": ASLEEP.replace("S", "Z")}, True),
        ({"stat": ASLEEP.replace("S", "X")}, True),
        ({"stat": ASLEEP, "syscall": "232 0x1"}, True),
        ({"stat": ASLEEP, "syscall": "running"}, False),
        ({"stat": ASLEEP, "syscall": "-1 0x1"}, False),  # outside of a call
        ({"stat": ASLEEP, "syscall": PermissionError(), "wchan": "do_epoll_wait"}, True),
        ({"stat": ASLEEP, "syscall": PermissionError(), "wchan": "ptrace_stop"}, False),
        ({"stat": ASLEEP, "syscall": PermissionError(), "wchan": PermissionError()}, False),
        ({"stat": FileNotFoundError(), "exists": False}, True),  # it has ended
        ({"stat": ProcessLookupError(), "exists": False}, True),
        ({"stat": ASLEEP, "syscall": FileNotFoundError(), "exists": True}, False),  # of a kernel without this file
    ],
)
def test_a_thread_has_left_its_write_only_if_that_is_known(
    files: dict[str, Any], left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_PROC", Place(files))
    assert left_a_write(Thread(4242, 4243)) is left
