"""Foreign clients: programs that connect to a listening port and do not speak the fabric's protocol, such as browsers.

They are refused, and would never learn why. So the log tells the owner of the listener.
"""

from __future__ import annotations

import logging

__all__ = ["ForeignClients"]

_log = logging.getLogger("aiofabric")
_SHOWN = 32  # bytes


class ForeignClients:
    """Logs the foreign clients of one listener: the first one as a warning, so that no client can fill the disk."""

    def __init__(self) -> None:
        self._level = logging.WARNING

    def refused(self, peer: object, data: bytes) -> None:
        """A client was refused after it had sent ``data``."""
        text = "a client at %s does not connect by libfabric, and is refused: it sent %r. It needs aiofabric, too"
        _log.log(self._level, text, peer, data[:_SHOWN])
        self._level = logging.INFO
