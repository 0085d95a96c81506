"""Exposed memory: large data that the peer reads out of this side's memory (RMA), instead of getting it in frames.

A frame of 64 KiB costs both sides some 20 us in Python, and the receiver a copy. So the owner of large data registers
its memory, sends the description in the stream, and waits. The peer reads the data to where it wants it, and answers
with a READ frame. Like GRANT, that frame is handled when it arrives, so no task has to read the stream for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aiofabric.channel.base import ByteChannel
from aiofabric.channel.frames import READ
from aiofabric.flags import Access, Caps

if TYPE_CHECKING:
    from types import TracebackType

    from aiofabric.channel.signal import Signal
    from aiofabric.memory import MemoryRegion
    from aiofabric.remote_region import RemoteRegion
    from aiofabric.transport.connected.endpoint import MessageEndpoint

__all__ = ["ExposedMemory", "RmaChannel"]

_READ_MOST: Final = 64 << 20
"""Bytes of one read. A provider may allow less."""


class ExposedMemory:
    """Memory that the peer may read. At the end of the block, later reads are refused."""

    def __init__(self, region: MemoryRegion, signal: Signal) -> None:
        self._region = region
        self._signal = signal
        self.error: Exception | None = None

    @property
    def remote(self) -> RemoteRegion:
        """The description to send to the peer, which passes it to `RmaChannel.read_exposed`."""
        return self._region.remote

    def over(self, error: Exception | None = None) -> None:
        """The peer has read everything, or the channel has ended."""
        self.error = error
        self._signal.set()

    async def was_read(self) -> None:
        """Wait until the peer has read everything. Raises the channel's error if the channel ends before."""
        await self._signal.wait()
        if self.error is not None:
            try:
                raise self.error.with_traceback(None)
            finally:
                self.error = None  # its traceback refers to this object

    def __enter__(self) -> ExposedMemory:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._region.close()


class RmaChannel(ByteChannel):
    """Exposes memory to the peer, and reads the peer's. The peer reads in the order in which the memory was exposed."""

    _refusal: Exception | None

    def __init__(self, endpoint: MessageEndpoint) -> None:
        self._endpoint = endpoint
        self._exposed: deque[ExposedMemory] = deque()

    @property
    def has_rma(self) -> bool:
        """Whether the peer can read this side's memory, and this side the peer's."""
        return Caps.RMA in self._endpoint.info.caps and self._endpoint._handle.reaches_memory

    def expose(self, data: Any) -> ExposedMemory:
        """Let the peer read a contiguous buffer; the caller must not change it before the peer has read it.

        Raises:
            FabricError: the provider cannot register the memory.
        """
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        exposed = ExposedMemory(self._endpoint.domain.register(data, access=Access.REMOTE_READ), self._signal())
        self._exposed.append(exposed)
        return exposed

    async def read_exposed(self, buffer: memoryview, remote: RemoteRegion) -> None:
        """Read what the peer exposes into ``buffer``, which is as long, and tell the peer.

        Cancelling: the provider may still write into ``buffer``, which stays pinned. Abort the channel then.

        Raises:
            FabricError: the connection has ended, or the peer no longer exposes the memory.
        """
        most = min(_READ_MOST, self._endpoint.info.ep_attr.max_msg_size)
        for start in range(0, len(buffer), most):
            part = buffer[start : start + most]
            await self._endpoint.read_into(part, remote[start : start + len(part)])
        self._say(READ)

    @abstractmethod
    def _say(self, kind: int) -> None:
        """Send a frame without data. `ChannelCore` does, in C."""

    def _peer_has_read(self) -> bool:
        """A READ frame has arrived; False if nothing was exposed."""
        if not self._exposed:
            return False
        self._exposed.popleft().over()
        return True

    def _end_exposed(self, error: Exception) -> None:
        while self._exposed:
            self._exposed.popleft().over(error)
