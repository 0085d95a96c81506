"""The options of one check, which the measuring side sends to the other side."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CONNECTED", "DATAGRAM", "DESCRIBE", "RELIABLE", "CheckOptions"]

CONNECTED, RELIABLE, DATAGRAM = "connected", "connectionless", "datagram"
DESCRIBE = "describe"  # the check that asks the other host for its part of the report


class CheckOptions(NamedTuple):
    """Which operation to check, and over which endpoints."""

    provider: str
    kind: str
    """``CONNECTED``, ``RELIABLE`` or ``DATAGRAM``."""
    check: str
    sizes: list[int]
    idle: float
    """Seconds without traffic, in the check of the same name."""
