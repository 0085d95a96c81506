"""Events of an event queue, decoded (man pages: fi_eq, fi_cm)."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._ffi import constants

__all__ = ["CONNECTED", "CONNREQ", "JOIN_COMPLETE", "SHUTDOWN", "Event", "EventError"]

CONNREQ = constants.FI_CONNREQ
CONNECTED = constants.FI_CONNECTED
SHUTDOWN = constants.FI_SHUTDOWN
JOIN_COMPLETE = constants.FI_JOIN_COMPLETE


class Event(NamedTuple):
    """An event about ``fid`` (its address). ``info`` is a ``struct fi_info *`` that the receiver owns."""

    kind: int
    fid: int
    param: bytes
    info: Any


class EventError(NamedTuple):
    """A failed request about ``fid``. ``param`` is the private data of a rejecting peer."""

    fid: int
    errno: int
    provider_errno: int
    text: str
    param: bytes
