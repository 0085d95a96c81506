"""ExposedBuffers: the buffers of batches that one client may read, by address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow

from aiofabric import Access, MrMode
from aiofabric.memory import close_together

from .connection import key_of

if TYPE_CHECKING:
    from aiofabric import Info, MemoryRegion, MessageEndpoint

    from .protocol import OutgoingStream

__all__ = ["ExposedBuffers", "can_expose", "is_virtual"]


def can_expose(info: Info) -> bool:
    """Whether programs choose the keys of memory over this provider: only then a client knows them."""
    attr = info.domain_attr
    return MrMode.PROV_KEY not in attr.mr_mode and MrMode.RAW not in attr.mr_mode and attr.mr_key_size >= 8


def is_virtual(info: Info) -> bool:
    """Whether peers name memory by its virtual address."""
    return MrMode.VIRT_ADDR in info.domain_attr.mr_mode


class ExposedBuffers:
    """Registers buffers on the domain of ``connection`` until the client has freed their addresses.

    The region holds the buffer, so its memory lives as long as it is exposed.
    """

    def __init__(self, connection: MessageEndpoint, secret: int) -> None:
        self._domain = connection.domain
        self._secret = secret
        self._regions: dict[tuple[int, int], tuple[MemoryRegion, int]] = {}  # and how often it is exposed

    def expose(self, buffer: Any, stream: OutgoingStream) -> tuple[int, int]:
        """Let the client read a buffer; returns its address and length. None: an empty one.

        Raises: FabricError: the memory cannot be registered.
        """
        if buffer is None:
            return 0, 0
        if not isinstance(buffer, pyarrow.Buffer):
            buffer = pyarrow.py_buffer(buffer)
        place = buffer.address, buffer.size
        region, count = self._regions.get(place, (None, 0))
        if region is None:
            region = self._domain.register(buffer, access=Access.REMOTE_READ, key=key_of(self._secret, *place))
        self._regions[place] = region, count + 1
        stream.show(*place, place)
        return place

    def release(self, places: list[tuple[int, int]]) -> None:
        """End the exposure of buffers, once for each place."""
        ended: list[MemoryRegion] = []
        for place in places:
            region, count = self._regions.pop(place)
            if count == 1:
                ended.append(region)
            else:
                self._regions[place] = region, count - 1
        close_together(ended)

    def close(self) -> None:
        """The client has gone."""
        regions = [region for region, _ in self._regions.values()]
        self._regions.clear()
        close_together(regions)
