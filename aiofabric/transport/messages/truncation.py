"""Whole messages, or an error, over providers that cut a long one off and say nothing (Quirk.TRUNCATES_SILENTLY).

udp takes what recvmsg returns, and rxd copies what fits. So their receives have more room than was asked for: a
datagram's longest, where there is such a thing, else one byte; a message that uses it was too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...flags import EndpointType
from ...memory import pin
from .inbox import truncated
from .pool import Pool
from .receive import Receives

if TYPE_CHECKING:
    from ...cq.submission import Transfer
    from ..handle import EndpointHandle

__all__ = ["DetectsTruncation", "TruncationPool"]


class DetectsTruncation(Receives):
    """Receives into the caller's memory by way of a larger buffer, where the provider makes it necessary."""

    __slots__ = ()

    async def _receive(
        self, pins: Any, where: tuple[int, ...], *, private: bool = False, posted: Transfer | None = None
    ) -> Any:
        handle = self._handle
        if not handle.cuts_off:
            try:
                return await super()._receive(pins, where, private=private, posted=posted)
            except BaseException:
                del pins, posted  # as there
                raise
        limit = len(pins)
        datagrams = handle.info.ep_attr.type == EndpointType.DGRAM
        room = pin(bytearray(handle.max_size if datagrams else limit + 1), writable=True)
        message = await super()._receive(room, where, private=True)
        if len(message) > limit:
            error = truncated(len(message), limit)
            if not datagrams:
                error.size = None  # how much more there was nobody knows
            raise error
        return message


class TruncationPool(Pool):
    """A pool whose receives have one byte more than a message may."""

    def __init__(self, handle: EndpointHandle, size: int, count: int) -> None:
        super().__init__(handle, size, count, extra=1, limits=True)
