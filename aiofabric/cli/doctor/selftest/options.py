"""The options of one check, which the measuring side sends to the other side; the names of all checks."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CHECKS", "CONNECTED", "DATAGRAM", "DESCRIBE", "PORT", "RELIABLE", "CheckOptions"]

CONNECTED, RELIABLE, DATAGRAM = "connected", "connectionless", "datagram"
CHECKS = ("messages", "tagged", "remote data", "read", "write", "write with data", "atomics", "connections", "idle",
          "interrupt", "fi_pingpong")  # fmt: skip
PORT = 47593  # of the server of a self-test
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
