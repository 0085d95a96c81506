"""Detection of truncation, over providers that truncate a long message silently (Quirk.TRUNCATES_SILENTLY).

udp delivers what recvmsg returns, and rxd copies what fits. So their receives are larger than requested: by one byte,
or for datagrams by one byte more than the longest datagram. A message that uses the extra bytes was too long. Peers
without libfabric may send datagrams that are longer than udp's longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._ffi import constants
from ...errors import TruncatedMessageError
from ...flags import EndpointType
from ...memory import pin
from .inbox import truncated
from .pool import Pool
from .receive import Receives

if TYPE_CHECKING:
    from ...address_vector import Peer
    from ...cq.submission import Transfer
    from ..handle import EndpointHandle

__all__ = ["DetectsTruncation", "TruncationPool"]


class DetectsTruncation(Receives):
    """Receives through a larger buffer if the provider truncates silently."""

    __slots__ = ()

    async def _receive(
        self,
        pins: Any,
        where: tuple[int, ...],
        *,
        source: Peer | None = None,
        private: bool = False,
        posted: Transfer | None = None,
    ) -> Any:
        handle = self._handle
        if not handle.cuts_off:
            try:
                return await super()._receive(pins, where, source=source, private=private, posted=posted)
            except BaseException:
                del pins, posted  # for the same reason as in `Receives._receive`
                raise
        limit = len(pins)
        datagrams = handle.info.ep_attr.type == EndpointType.DGRAM
        room = pin(bytearray(1 + (handle.max_size if datagrams else limit)), writable=True)
        message = await super()._receive(room, where, source=source, private=True)
        if datagrams and len(message) > handle.max_size:
            detail = f"A peer without libfabric sent a datagram of more than {handle.max_size} bytes, which is lost"
            error = TruncatedMessageError(constants.FI_ETRUNC, "fi_recv", detail=detail)
            error.cure, error.limit = "Let it send shorter ones", limit
            raise error
        if len(message) > limit:
            error = truncated(len(message), limit)
            if not datagrams:
                error.size = None  # the full size is unknown
            raise error
        return message


class TruncationPool(Pool):
    """A pool whose receives are one byte longer than the longest message."""

    def __init__(self, handle: EndpointHandle, size: int, count: int) -> None:
        super().__init__(handle, size, count, extra=1, limits=True)
