"""Ctrl-C and SIGTERM of ``aiofabric run``: they work also while a function of the pipeline blocks the event loop."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from contextlib import contextmanager, suppress
from threading import Timer
from typing import TYPE_CHECKING, Final

from aiofabric.starting import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Signals", "handled_signals"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LATEST: Final = 2.0
"""Seconds after the second signal at which the process ends, whatever it does."""
_TOLD: Final = b"the sources stop; what they gave is finished (Ctrl-C again ends at once)\n"


class Signals:
    """The signals that came. The first one calls ``stop`` in the event loop, the second one ``cancel``."""

    def __init__(self, stop: Callable[[], object], cancel: Callable[[], object]) -> None:
        self.count = 0
        self._stop = stop
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._end = Timer(_LATEST, _leave)
        self._end.daemon = True

    def come(self, number: int, frame: FrameType | None) -> None:
        """A handler of signals. Python calls it in the main thread between two steps of any function."""
        self.count += 1
        if self.count == 1:
            with suppress(OSError, ValueError):  # no process reads it
                os.write(sys.stderr.fileno(), _TOLD)  # print could be under way
            self._loop.call_soon_threadsafe(self._stop)
        elif self.count == 2:
            self._loop.call_soon_threadsafe(self._cancel)
            self._end.start()

    def over(self) -> None:
        """The run has ended by itself."""
        self._end.cancel()


@contextmanager
def handled_signals(stop: Callable[[], object], cancel: Callable[[], object]) -> Iterator[Signals]:
    """Handle the signals in this block, and put the handlers back that were there before."""
    came = Signals(stop, cancel)
    before = {number: signal.signal(number, came.come) for number in _SIGNALS}
    try:
        yield came
    finally:
        came.over()
        for number, handler in before.items():
            if handler is not None:  # None: it was not installed by Python, and cannot be put back
                signal.signal(number, handler)


def _leave() -> None:
    """End the process and its workers, which would end only when their functions return."""
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
    os._exit(INTERRUPTED)
