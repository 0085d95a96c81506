"""Tools for the tests of programs that use aiofabric, and for aiofabric's own tests.

`live_resources` lists objects that were not closed. `ScriptedQueue` replaces a completion queue in tests about the
order of events: give it to a `Source`, and write completions into it.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from .cq.queue import Entry, ErrorEntry
from .resource import live_resources as live_resources

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ScriptedQueue", "live_resources"]


class ScriptedQueue:
    """A completion queue that returns the completions that a test writes into it, in that order; nothing is
    transferred.

    It behaves like a hardware queue: the descriptor becomes readable only for completions that are written while the
    queue is armed, and only `quiet` arms it. A reactor that sleeps without calling `quiet` is never woken. Close it
    after the source that reads it; a context manager.

    Args:
        descriptor: whether there is a wait descriptor; without one a queue can only be polled.
    """

    native_queue = None

    def __init__(self, *, descriptor: bool = True) -> None:
        self._script: deque[Entry | ErrorEntry | None] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if descriptor else None
        self._refused_quiet = 0
        self._stuck = False
        self.armed = False
        self.reads = 0
        self.closed = False

    # -- called by the test

    def complete(self, context: int, *, length: int = 0, flags: int = 0, data: int = 0, tag: int = 0) -> None:
        """The operation whose slot has the address ``context`` succeeded; ``length`` is in bytes."""
        self._write((context, flags, length, 0, data, tag))

    def fail(
        self, context: int, errno: int, *, flags: int = 0, length: int = 0, overflow: int = 0, address: bytes = b""
    ) -> None:
        """The operation failed with ``errno`` (positive, of fi_errno); ``overflow`` bytes did not fit.

        ``address`` is the sender of a message from an unknown peer (FI_EADDRNOTAVAIL).
        """
        self._write(ErrorEntry(context, flags, length, overflow, 0, errno, 0, "", 2**64 - 1, address=address))

    def again(self, times: int = 1) -> None:
        """The next ``times`` reads find nothing; later entries come after them."""
        self._script.extend([None] * times)

    def refuse_quiet(self, times: int) -> None:
        """The next ``times`` calls of `quiet` return False although there is nothing to read, as 1.17's tcp does."""
        self._refused_quiet = times

    def stuck(self, readable: bool) -> None:
        """Make the descriptor always readable, with or without something to read."""
        self._stuck = readable
        self._signal()

    def _signal(self) -> None:
        if self._fd is not None:
            os.eventfd_write(self._fd, 1)

    def _write(self, entry: Entry | ErrorEntry) -> None:
        self._script.append(entry)
        if self.armed:
            self._signal()
        self.armed = False

    # -- called by a source

    def read(self, window: int = 0) -> Sequence[Entry] | None:
        """Up to 64 successes in a row; ``()`` for none, None if a failure is next."""
        assert not self.closed, "a closed queue was read: libfabric would have crashed"
        self.reads += 1
        if self._script and self._script[0] is None:
            self._script.popleft()
            return ()
        if self._script and isinstance(self._script[0], ErrorEntry):
            return None
        found: list[Entry] = []
        while self._script and len(found) < 64:
            entry = self._script[0]
            if entry is None or isinstance(entry, ErrorEntry):
                break
            found.append(entry)
            self._script.popleft()
        return found

    def read_error(self) -> ErrorEntry | None:
        """The next entry, which must be a failure."""
        entry = self._script.popleft()
        assert isinstance(entry, ErrorEntry), "fi_cq_readerr without a failure at the head of the queue"
        return entry

    def longest_gap(self) -> int:
        return 1

    def quiet(self) -> bool:
        """Whether there is nothing to read; if so, the next entry written makes the descriptor readable."""
        assert not self.closed, "a closed queue was asked: libfabric would have crashed"
        if self._fd is not None and not self._stuck:
            with suppress(BlockingIOError):
                os.eventfd_read(self._fd)
        if self._refused_quiet:
            self._refused_quiet -= 1
            return False
        self.armed = not self._script
        return self.armed

    def fileno(self) -> int | None:
        """The wait descriptor, if there is one."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; a later read is an error, because libfabric would crash."""
        if not self.closed and self._fd is not None:
            os.close(self._fd)
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
