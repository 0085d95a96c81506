"""States: the state of a channel, and the callbacks for its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from .subchannel import Connectivity

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["States"]


class States:
    """The current state of a channel."""

    __slots__ = ("_callbacks", "current")

    def __init__(self) -> None:
        self.current = Connectivity.IDLE
        self._callbacks: list[Callable[[], object]] = []

    @property
    def watched(self) -> bool:
        """A task waits for the next change."""
        return bool(self._callbacks)

    def change_to(self, state: Connectivity) -> None:
        if state is not self.current:
            self.current = state
            for callback in [*self._callbacks]:
                callback()

    async def wait_for_change(self, last: Connectivity) -> None:
        """Wait until the state is another one than ``last``."""
        while self.current is last:
            event = anyio.Event()
            self._callbacks.append(event.set)
            try:
                await event.wait()
            finally:
                self._callbacks.remove(event.set)
