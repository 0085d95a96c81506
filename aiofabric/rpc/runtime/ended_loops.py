"""Channels and servers that the program left open when their event loop ended.

Open endpoints are referenced by aiofabric's tables until they are closed, so the garbage collector cannot free the
objects of a channel. A program that runs one loop after the other would keep the descriptors of all of them. So a new
channel or server closes the endpoints of those whose loop, in the same thread, has ended.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from ...cq.loops.drivers import Driver

__all__ = ["watch"]

_here = threading.local()


class Owner(Protocol):
    """A channel or a server."""

    driver: Driver

    def loop_ended(self) -> None:
        """Close the endpoints; call nothing of the loop."""


def watch(owner: Owner) -> None:
    """Close what earlier loops of this thread have left open, and find ``owner`` later in the same way."""
    owners: WeakSet[Owner] | None = getattr(_here, "owners", None)
    if owners is None:
        owners = _here.owners = WeakSet()
    for other in [*owners]:
        if other.driver.closed():
            owners.discard(other)
            other.loop_ended()
    owners.add(owner)
