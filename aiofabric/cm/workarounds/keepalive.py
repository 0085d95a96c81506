"""Keepalive: the kernel notices that the host of a peer is gone, and wakes no process while it is alive (tcp(7)).

An idle connection sends one small packet in each period (TCP_KEEPIDLE). Unacknowledged data, or a reader that keeps a
full window closed, ends the connection after the same time (TCP_USER_TIMEOUT). Without that option the kernel would
repeat unacknowledged data for a quarter of an hour.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ..._ffi import constants
from ...errors import NotSupportedError
from ...features import Feature
from ...workarounds import is_on, state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .borrowed_socket import BorrowedSocket

__all__ = ["LEAST", "MOST", "agree", "notice_silence", "unwatched"]

LEAST = 3.0
"""Seconds of the shortest period: the kernel counts in whole seconds."""

MOST = 32767.0
"""Seconds of the longest period: MAX_TCP_KEEPIDLE (linux/tcp.h)."""

_TCP = ("tcp", "net")  # providers whose socket can be found
_TWO_PROBES = 6.0  # seconds; longer periods have time for a second probe


def notice_silence(sock: socket.socket | BorrowedSocket, seconds: float) -> None:
    """End the connection within 1.5 times ``seconds`` (at least `LEAST`) after the last packet from the peer."""
    idle = int(seconds)
    probes = 2 if seconds >= _TWO_PROBES else 1
    interval = max(1, int(0.45 * seconds / probes))
    tcp = socket.IPPROTO_TCP
    sock.setsockopt(tcp, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(tcp, socket.TCP_KEEPINTVL, interval)
    sock.setsockopt(tcp, socket.TCP_KEEPCNT, probes)
    # Half a second less than the probes take, so that the last probe finds the time expired.
    sock.setsockopt(tcp, socket.TCP_USER_TIMEOUT, (idle + probes * interval) * 1000 - 500)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def agree(periods: Iterable[float | None]) -> float | None:
    """The period of a connection: the shorter one of its two sides, within the limits of the kernel."""
    asked = [min(max(LEAST, period), MOST) for period in periods if period]
    return min(asked, default=None)


def unwatched(provider: str, peer: object) -> NotSupportedError:
    """The error of a connection with a heartbeat whose socket may not be changed, or was not found."""
    error = NotSupportedError(constants.FI_ENOSYS, "heartbeat", peer=peer)
    if not is_on("keepalive"):
        error.detail = (
            f"The workaround 'keepalive' is {state('keepalive')}, and the tcp provider has no heartbeat of its own"
        )
        error.cure = "Leave heartbeat= out, or switch the workaround on (AIOFABRIC_WORKAROUNDS=keepalive)"
    elif provider in _TCP:
        error.detail = (
            "The heartbeat needs the connection's kernel socket, and aiofabric could not identify it this time. Before "
            f"libfabric {Feature.GET_FD.since}, aiofabric finds it by the number of its descriptor, and another thread "
            "that opens a file at the same moment may take that number. Or the connection has ended already"
        )
        error.cure = "Connect again"
    else:
        error.detail = f"aiofabric cannot identify the socket of a connection over {provider}"
        error.cure = "Leave heartbeat= out, or use the provider tcp"
    return error
