"""How a call ends, and how a connection does: StatusCode, GoAwayReason and ProtocolError."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["GoAwayReason", "ProtocolError", "StatusCode"]

MOST_CODE: Final = 65535
"""The largest number of a status: STATUS has two bytes for it."""
MOST_DETAILS: Final = 8192
"""Bytes of the longest text in STATUS; a server cuts a longer one."""


class StatusCode(IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    """The client or the handler has cancelled the call."""
    UNKNOWN = 2
    """A handler raised an exception other than RpcError."""
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    """The time limit of the client has passed."""
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    """A limit of the server or of the client: the size of a message, the number of calls, memory."""
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    """The server has no such method."""
    INTERNAL = 13
    UNAVAILABLE = 14
    """No server was reached, or the connection was lost. `RpcError.may_have_run` says whether the call may have run."""
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GoAwayReason(IntEnum):
    """Why a connection ends; sent in GOAWAY."""

    NONE = 0
    """An orderly end: the server drains, or the client has closed."""
    MALFORMED = 1
    """A frame that cannot be decoded, or that its state does not allow."""
    FLOW_CONTROL = 2
    """More bytes than were granted."""
    LIMIT = 3
    """A limit of the connection was exceeded: interned names, or frames that cost the receiver much."""
    VERSION = 4
    """No version in common, or another protocol."""
    CREDENTIALS = 5
    """The credentials of the preface were refused."""


class ProtocolError(Exception):
    """The peer broke the protocol. ``reason`` and the text go to the peer in GOAWAY."""

    def __init__(self, text: str, reason: GoAwayReason = GoAwayReason.MALFORMED) -> None:
        super().__init__(text)
        self.reason = reason
