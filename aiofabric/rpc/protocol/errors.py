"""ProtocolError: the peer sent what no correct peer sends. It ends the connection."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["GoAwayReason", "ProtocolError"]


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
