"""A progress bar on stderr, if stderr is a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import Self

__all__ = ["Progress"]

_LENGTH = 24


class Progress:
    """A bar of a given number of steps; a context manager that removes the bar at the end."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw("")
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def step(self, words: str) -> None:
        """Show that one step is done."""
        self._done += 1
        self._draw(words)

    def _draw(self, words: str) -> None:
        if self._shown:
            full = _LENGTH * self._done // self._steps
            line = f"{'█' * full}{'░' * (_LENGTH - full)} {self._done}/{self._steps} {words}"
            sys.stderr.write(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()
