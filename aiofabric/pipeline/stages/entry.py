"""Entry: a value on its way through a process, until everything that was made of it is finished.

A stage finishes an entry when it has handled it, and holds it for each value that it made of it. So an item that came
from another process is acknowledged when no value that was made of it can be lost any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Entry"]


class Entry:
    """A value. ``number``: the place of the value it was made of, among those of an ordered stage; -1: none.

    ``trace``: see `traces`; by default that of the first entry it was made of.

    ``finished`` is called once, when neither a stage nor a value that was made of it holds the entry; ``value`` is None
    then. ``error``: of a value that came from another process, and cannot be unpickled here; ``value`` is its pickle.
    """

    __slots__ = ("_finished", "_holders", "_made_of", "error", "number", "trace", "value")

    def __init__(
        self,
        value: Any,
        made_of: Sequence[Entry] = (),
        finished: Callable[[], object] | None = None,
        number: int = -1,
        error: Exception | None = None,
        trace: bytes = b"",
    ) -> None:
        self.value = value
        self.error = error
        self.number = number
        self.trace: bytes = trace or (made_of[0].trace if made_of else b"")
        self._made_of = made_of
        self._finished = finished
        self._holders = 1
        for each in made_of:
            each._holders += 1

    def release(self) -> None:
        """The stage, or a value that was made of this one, does not need it any more."""
        self._holders -= 1
        if self._holders:
            return
        self.value = None  # it may be an array over an item's memory, which is used again when nothing refers to it
        if self._finished is not None:
            self._finished()
        for each in self._made_of:
            each.release()
