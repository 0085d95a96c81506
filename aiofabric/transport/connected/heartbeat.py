"""Heartbeat of a connection over a device that answers for its process: verbs.

The kernel's TCP is not involved, so there is no keepalive. Instead each side writes no bytes to the memory of the peer,
once in each period of an idle connection. The peer's device acknowledges such a write, whatever its process does; the
write needs no region there (InfiniBand specification, C9-88).

    idle -> asked -> idle (the write has completed)
              |
              +----> lost: for half a period, nothing that is posted has completed

A peer that takes no messages for that time, because it posts no receives, counts as lost too, as over tcp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._ffi import constants
from ...errors import FabricError
from ...memory import pin
from ...remote_region import RemoteRegion

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..handle import EndpointHandle

__all__ = ["Heartbeat"]

_NOWHERE = RemoteRegion(0, 0, 0)
_SILENT = (
    "Nothing that was sent has completed for half of the time of heartbeat=: the peer's device does not answer, or the "
    "peer takes no messages"
)


class Heartbeat:
    """Looks twice in each period whether anything has completed.

    Args:
        handle: the connected endpoint.
        period: seconds. The loss of the peer is noticed within 1.5 times as long.
        lost: called once when the peer does not answer.
    """

    __slots__ = ("_cancel", "_handle", "_lost", "_oldest", "_pause", "_was_idle")

    def __init__(self, handle: EndpointHandle, period: float, lost: Callable[[], None]) -> None:
        self._handle = handle
        self._pause = period / 2
        self._lost = lost
        self._oldest: Any = None  # the operation that has been posted for the longest time, at the last look
        self._was_idle = False
        self._look_later()

    def end(self) -> None:
        """The endpoint is closed."""
        self._cancel()

    def _look_later(self) -> None:
        self._cancel = self._handle.source.driver.call_later(self._pause, self._look)

    def _look(self) -> None:
        handle = self._handle
        handle.source.drain()  # the loop may have been busy, and completions may wait to be read
        route = handle.tx
        if route is None or handle.gone is not None or not handle.native_open:
            return
        oldest = next(iter(route.posted), None)
        if route.shut is not None:
            self._lost()
            return
        if oldest is not None and oldest is self._oldest:
            handle.lost_because(_SILENT)
            self._lost()
            return
        if oldest is None and self._was_idle:
            try:
                oldest = route._post_rma("fi_write", pin(b""), _NOWHERE, None, constants.FI_COMPLETION)
            except FabricError:  # the provider refuses it, or the post has found the end: no task would get the error
                self._lost()
                return
            self._was_idle = False
        else:
            self._was_idle = oldest is None
        self._oldest = oldest
        self._look_later()
