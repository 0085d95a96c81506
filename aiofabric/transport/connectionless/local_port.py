"""Local ports: each endpoint gets a port that no earlier endpoint of this process had.

A peer over rxd remembers which packet of an address comes next, for as long as its own endpoint is open. It takes what
a new endpoint at a known address sends for repeated packets: it acknowledges and drops them. So messages are lost, and
reads wait for ever. And what the peer still sends to the earlier endpoint can crash the new one: rxd_handle_ack takes
any number of a peer. The system chooses ports at random: among 200 endpoints in a row, two have the same port in every
second case. Here each process counts from a random port, so two processes rarely come to the same ones.
"""

from __future__ import annotations

import os
import random
from itertools import count
from typing import TYPE_CHECKING, Any

from ..._ffi import constants
from ...address import Address
from ...errors import FabricError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...info import Info

__all__ = ["open_at_new_port"]

_PORTS = range(32_768, 61_000)  # those that Linux gives to programs
_counting: tuple[int, count[int]] | None = None  # the process, and its next ports


def open_at_new_port(open_native: Callable[[Info], Any], info: Info) -> Any:
    """Open an endpoint at the address of ``info``, or at a new port if that has none; return the native endpoint."""
    address = info.src_addr
    if address is None or address.host is None or address.port != 0:
        return open_native(info)
    following = _count()
    for _ in _PORTS:
        port = _PORTS[next(following) % len(_PORTS)]
        raw = address.raw[:2] + port.to_bytes(2, "big") + address.raw[4:]  # a sockaddr_in or sockaddr_in6
        try:
            return open_native(info.replace(src_addr=Address(address.format, raw)))
        except FabricError as error:
            if error.errno != constants.FI_EADDRINUSE:
                raise
    return open_native(info)  # it fails, too, and says why


def _count() -> count[int]:
    """This process's; a child of fork must not use the next ports of its parent."""
    global _counting
    if _counting is None or _counting[0] != os.getpid():
        _counting = os.getpid(), count(random.SystemRandom().randrange(len(_PORTS)))
    return _counting[1]
