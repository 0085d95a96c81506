"""EndpointChannel: a byte channel over a message endpoint: receiving and the end; sending is in `sending`, and reads of
the peer's memory in `rma`.

Frames arrive through the endpoint's sink, in the reactor's progress pass. Control frames are handled at once. Data is
offered to the watcher while it is still in the pool's memory, so a waiting reader takes it with one copy. Otherwise it
is copied and queued, and the pool's buffer is posted again. Credits bound the queued data: a reader that does not read
grants no credits, and the writer stops.
"""

from __future__ import annotations

import errno
import struct
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from aiofabric.channel.base import StreamStatistics, T
from aiofabric.channel.frames import CLOSE, DATA, END, FRAME_COST, GRANT, HEADER_SIZE, READ, Hello, protocol_error
from aiofabric.channel.rma import RmaChannel
from aiofabric.channel.signal import PollingSignal
from aiofabric.cq.loops.forgotten import close_soon
from aiofabric.errors import FabricBrokenPipeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiofabric.address import Address
    from aiofabric.cq.source.source import Source
    from aiofabric.info import Info
    from aiofabric.transport.connected.endpoint import MessageEndpoint

__all__ = ["EndpointChannel"]

_HEADER = struct.Struct("<I")


class EndpointChannel(RmaChannel):
    """Bytes over ``endpoint``, which it owns; ``ours`` and ``theirs`` are the hellos of both sides."""

    def __init__(self, endpoint: MessageEndpoint, ours: Hello, theirs: Hello) -> None:
        super().__init__(endpoint, ours, theirs)
        self._source = source = endpoint._handle.source
        self._strict = source.driver.checkpoint_if_cancelled is not None
        source.interest += 1  # a queue without a descriptor must be polled
        self._inbox: deque[bytes | memoryview] = deque()
        self._fresh: memoryview | None = None  # data still in the pool's memory, while the watcher runs
        self._ends_received: set[int] = set()
        self._watcher: Callable[[], object] | None = None
        self._on_closed: Callable[[], object] | None = None
        self._got_bytes = self._got_frames = 0
        endpoint.set_sink(self._arrived, self._ended)

    @property
    def local_address(self) -> Address | None:
        return self._endpoint.local_address

    @property
    def peer_address(self) -> Address | None:
        return self._endpoint.peer_address

    @property
    def info(self) -> Info:
        """The Info that the endpoint was opened from: provider, fabric, domain and their attributes."""
        return self._endpoint.info

    # -- receiving ------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        return bool(self._inbox or self._fresh is not None or END in self._ends_received or self._gone or self._closed)

    @property
    def ended(self) -> bool:
        return self.readable and not self._inbox and self._fresh is None

    def watch(self, callback: Callable[[], object] | None) -> None:
        if callback is not None:
            self._endpoint._handle.check_thread()
        self._watcher = callback

    def try_recv(self, max_bytes: int) -> bytes | None:
        piece = self._next(max_bytes)
        return bytes(piece) if isinstance(piece, memoryview) else piece

    def try_recv_into(self, buffer: memoryview) -> int | None:
        piece = self._next(len(buffer))
        if piece is None:
            return None
        count = len(piece)
        buffer[:count] = piece
        return count

    def _next(self, most: int) -> memoryview | bytes | None:
        piece: bytes | memoryview
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self._inbox:
            piece = self._inbox[0]
            if len(piece) > most:
                whole = memoryview(piece)
                self._inbox[0] = whole[most:]
                self._grant(most)
                return whole[:most]
            self._inbox.popleft()
        elif self._fresh is not None:
            piece = self._fresh
            if len(piece) > most:
                self._fresh = piece[most:]
                self._grant(most)
                return piece[:most]
            self._fresh = None
        elif END in self._ends_received:
            return b""
        elif self._gone is not None:
            raise self._gone.with_traceback(None)
        else:
            return None
        self._grant(len(piece) + FRAME_COST)
        return piece

    def _arrived(self, frame: memoryview) -> None:
        """Handle one frame from the endpoint's sink."""
        if self._closed is not None and self._on_closed is None:
            return
        size = len(frame) - HEADER_SIZE
        if size < 0:
            self._misbehaved(f"it sent a frame of {len(frame)} bytes")
            return
        (word,) = _HEADER.unpack_from(frame)
        if not word:  # PLAIN
            self._data(frame[HEADER_SIZE:], size)
            return
        kind, granted = word & 0xFF, word >> 8
        if granted:
            self._credits += granted
            if self._credits > self._most_credits:
                self._misbehaved("it granted more credits than it was sent bytes")
                return
        if kind == DATA:
            self._data(frame[HEADER_SIZE:], size)
        elif kind == END:
            self._ends_received.add(END)
            self._wake_reader()
        elif kind == CLOSE:
            self._peer_closed()
        elif kind == READ:
            if not self._peer_has_read():
                self._misbehaved("it said that it had read memory, and none was exposed")
                return
        elif kind != GRANT:
            self._misbehaved(f"it sent a frame of unknown kind {kind}")
            return
        if granted:
            self._pump()

    def _data(self, payload: memoryview, size: int) -> None:
        self._outstanding -= size + FRAME_COST
        if self._outstanding < 0 or not size or END in self._ends_received:
            self._misbehaved("it sent data without credit, without bytes, or after the end")
            return
        self._got_frames += 1
        self._got_bytes += size
        if self._closed is not None:
            return  # the channel is closing: no call takes the data, and no credits are granted
        watcher = self._watcher
        if watcher is not None and not self._inbox:
            self._fresh = payload
            watcher()
            if self._fresh is None:
                return
            payload, self._fresh = self._fresh, None
        self._inbox.append(bytes(payload))

    def _wake_reader(self) -> None:
        if self._watcher is not None:
            self._watcher()

    # -- fairness: for an adapter whose awaits often return at once

    @property
    def pace(self) -> tuple[Source, bool]:
        """The source whose ``must_yield`` counts awaits that do not wait, and whether each await takes a checkpoint."""
        return self._source, self._strict

    @property
    def must_yield(self) -> bool:
        return self._strict or self._source.must_yield

    async def checkpoint(self) -> None:
        await self._source.checkpoint()
        self._source.loop_iterated()

    def poll(self) -> None:
        self._source.poll()

    def poll_for(self, take: Callable[[], T | None]) -> T | None:
        """Poll; data that arrives is taken while it is still in the pool's memory."""
        taken: T | None = None

        def arrived() -> None:
            nonlocal taken
            if taken is None and self._fresh is not None:
                taken = take()

        self._watcher = arrived
        try:
            self._source.poll()
        finally:
            self._watcher = None
        return take() if taken is None else taken

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` at the end of this iteration of the loop."""
        self._source.driver.call_soon(callback)

    # -- the end --------------------------------------------------------------------------------------------

    def close(self, done: Callable[[], None]) -> None:
        self._closed = self._refusal = self._closed or ClosedResourceError()
        self._on_closed = done
        self._inbox.clear()
        self._wake_reader()
        if CLOSE in self._ends_received or self._gone is not None:
            self._finish()
        else:
            self._end_frame = CLOSE
            self._pump()

    def _peer_closed(self) -> None:
        """The peer has stopped receiving and sending, and only waits for CLOSE from this side."""
        self._ends_received |= {END, CLOSE}
        self._say(CLOSE)
        self._lost(FabricBrokenPipeError(errno.EPIPE, "send", peer=self.peer_address))

    def _ended(self, error: BaseException) -> None:
        """The endpoint has ended; all data that it had received was delivered before."""
        self._lost(error)

    def _lost(self, error: Any) -> None:
        if self._gone is None:
            self._gone = error
            self._refusal = self._closed or error
            self._outbox.fail(error)
            self._end_exposed(error)
            self._wake_writer()
            self._wake_reader()
        if self._on_closed is not None:
            self._finish()

    def _misbehaved(self, what: str) -> None:
        self.abort(protocol_error(f"The peer broke the byte channel's protocol: {what}", self.peer_address))

    def abort(self, error: ConnectionError | None = None) -> None:
        if self._closed is None:
            self._closed = error or ClosedResourceError()
        self._refusal = self._closed
        self._inbox.clear()
        self._outbox.fail(self._closed)
        self._end_exposed(self._closed)
        self._wake_writer()
        self._wake_reader()
        self._finish()

    def dropped(self, owner: object) -> None:
        handle = self._handle
        if not (handle.closed or handle.forked):
            unclosed = f"unclosed {type(owner).__name__}, opened at {handle.opened_at}"
            warnings.warn(unclosed, ResourceWarning, source=owner, stacklevel=3)
            close_soon(self._source.driver, self.abort)

    def _finish(self) -> None:
        if self._source.draining:
            # This runs in a progress pass. If the endpoint closed now, the completions that the provider flushes could
            # not be read, and the addresses of the receives could not be used again.
            self._source.driver.call_soon(self._finish)
            return
        if not self._endpoint.closed:
            self._source.interest -= 1
            self._endpoint.abort()
        done, self._on_closed = self._on_closed, None
        if done is not None:
            done()

    def _signal(self) -> PollingSignal:
        return PollingSignal(self._source)

    def statistics(self) -> StreamStatistics:
        return StreamStatistics(
            bytes_sent=self._sent_bytes,
            frames_sent=self._sent_frames,
            bytes_received=self._got_bytes,
            frames_received=self._got_frames,
            send_queued=self._outbox.size,
            receive_queued=sum(map(len, self._inbox)),
            send_credits=self._credits,
            receive_credits=self._outstanding,
        )
