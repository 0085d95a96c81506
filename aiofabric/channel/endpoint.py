"""EndpointChannel: a byte channel over a message endpoint. The only implementation of credits.

Arriving frames come through the endpoint's sink, from the reactor's own turn. Control frames are dealt with on
the spot. Data is offered to the watcher while it still lies in the pool, so that a reader that is there takes it
with one copy; otherwise it is copied out and queued, and the pool's buffer is posted again. What is queued is
bounded by the credits handed out: a reader that does not read grants none, and the writer stops.
"""

from __future__ import annotations

import errno
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from aiofabric.channel.base import ByteChannel, Done, StreamStatistics
from aiofabric.channel.frames import (
    CLOSE,
    DATA,
    END,
    FRAME_COST,
    GRANT,
    HEADER_SIZE,
    PLAIN,
    Hello,
    header,
    protocol_error,
)
from aiofabric.channel.outbox import Outbox, Posted
from aiofabric.channel.signal import LookingSignal
from aiofabric.cq.source import STREAK
from aiofabric.errors import FabricBrokenPipeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiofabric.address import Address
    from aiofabric.cq.source import Source
    from aiofabric.info import Info
    from aiofabric.transport.connected import MessageEndpoint

__all__ = ["COPY_LIMIT", "EndpointChannel"]

_HEADER = struct.Struct("<I")

COPY_LIMIT = 16384
"""Bytes up to which a send is copied behind its header and over at once; more goes from where it lies."""


class EndpointChannel(ByteChannel):
    """Bytes over ``endpoint``, which it owns from now on; ``ours`` and ``theirs`` were exchanged on connecting."""

    def __init__(self, endpoint: MessageEndpoint, ours: Hello, theirs: Hello) -> None:
        self._endpoint = endpoint
        self.ours = ours
        self.theirs = theirs
        self._source = source = endpoint._handle.source
        self._strict = source.driver.checkpoint_if_cancelled is not None
        self.checkpoint = source.checkpoint  # type: ignore[method-assign]
        source.interest += 1  # where no descriptor wakes us, somebody has to look
        self._window = ours.window
        self._payload = theirs.payload
        self._copied = min(COPY_LIMIT, self._payload)
        self._least = min(self._copied, theirs.window // 4)
        # Sending.
        self._credits = self._most_credits = theirs.window
        self._outbox = Outbox()
        self._farewell: int | None = None  # END or CLOSE, once everything posted has gone out
        self._said: set[int] = set()
        self._on_writable: Callable[[], object] | None = None
        # Receiving.
        self._inbox: deque[bytes | memoryview] = deque()
        self._fresh: memoryview | None = None  # a payload still in the pool, while the watcher is being called
        self._taken = 0  # credits of what was taken, not granted again yet
        self._outstanding = self._window  # credits that the peer holds, by our own count
        self._heard: set[int] = set()
        self._watcher: Callable[[], object] | None = None
        # The end.
        self._gone: Exception | None = None  # how receiving ends when everything was taken
        self._closed: Exception | None = None  # what every call raises: we have closed
        self._on_closed: Callable[[], object] | None = None
        self._sent_bytes = self._sent_frames = self._got_bytes = self._got_frames = 0
        endpoint.set_sink(self._arrived, self._ended)

    @property
    def local_address(self) -> Address | None:
        return self._endpoint.local_address

    @property
    def peer_address(self) -> Address | None:
        return self._endpoint.peer_address

    @property
    def info(self) -> Info:
        """What the endpoint was opened from: provider, fabric, domain and their attributes."""
        return self._endpoint.info

    # -- receiving ------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        return bool(self._inbox or self._fresh is not None or END in self._heard or self._gone or self._closed)

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
        elif END in self._heard:
            return b""
        elif self._gone is not None:
            raise self._gone.with_traceback(None)
        else:
            return None
        self._grant(len(piece) + FRAME_COST)
        return piece

    def _grant(self, size: int) -> None:
        """Bytes were taken: credits go back with data when a quarter is due, by themselves when half is."""
        self._taken += size
        if self._taken * 2 >= self._window:
            self._say(GRANT)

    def _arrived(self, frame: memoryview) -> None:
        """The endpoint's sink."""
        if self._closed is not None and self._on_closed is None:
            return
        if len(frame) < HEADER_SIZE:
            self._misbehaved(f"it sent a frame of {len(frame)} bytes")
            return
        (word,) = _HEADER.unpack_from(frame)
        kind, granted = word & 0xFF, word >> 8
        if granted:
            self._credits += granted
            if self._credits > self._most_credits:
                self._misbehaved("it granted more credits than it was sent bytes")
                return
        if kind == DATA:
            self._data(frame[HEADER_SIZE:])
        elif kind == END:
            self._heard.add(END)
            self._wake_reader()
        elif kind == CLOSE:
            self._peer_closed()
        elif kind != GRANT:
            self._misbehaved(f"it sent a frame of unknown kind {kind}")
            return
        if granted:
            self._pump()

    def _data(self, payload: memoryview) -> None:
        self._outstanding -= len(payload) + FRAME_COST
        if self._outstanding < 0 or not payload or END in self._heard:
            self._misbehaved("it sent data without credit, without bytes, or after the end")
            return
        self._got_frames += 1
        self._got_bytes += len(payload)
        if self._closed is not None:
            return  # closing: nobody will take it, and nobody is granted more
        self._fresh = payload
        if not self._inbox:
            self._wake_reader()
        if self._fresh is not None:
            self._inbox.append(bytes(self._fresh))
            self._fresh = None

    def _wake_reader(self) -> None:
        if self._watcher is not None:
            self._watcher()

    # -- pace: for a face that answers many awaits at once ---------------------------------------------------

    @property
    def pace(self) -> tuple[Source, int]:
        """Whose ``streak`` counts the awaits that need not wait, and above what they take a checkpoint all the same.

        It begins anew when the loop goes round. On trio every await takes one.
        """
        return self._source, 0 if self._strict else STREAK

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when this iteration of the loop is over."""
        self._source.driver.call_soon(callback)

    # -- sending --------------------------------------------------------------------------------------------

    @property
    def flowing(self) -> bool:
        """Whether what is sent now waits for nothing but the provider."""
        return bool(
            self._credits > FRAME_COST
            and not self._outbox
            and self._farewell is None
            and self._gone is None
            and self._closed is None
        )

    @property
    def unsent(self) -> int:
        return self._outbox.size

    def try_send(self, data: memoryview) -> int:
        self._check_sendable()
        size = len(data)
        if not size or size > self._copied or size + FRAME_COST > self._credits or self._outbox:
            return 0
        self._send_data(self._data_header() + data, size, None)
        if self._gone is not None:
            raise self._gone.with_traceback(None)
        return size

    def post(self, data: memoryview, done: Done) -> None:
        self._check_sendable()
        if not data:
            done(None)
            return
        self._outbox.add(Posted(data, done))
        self._pump()

    def when_writable(self, callback: Callable[[], object] | None) -> None:
        self._on_writable = callback
        if self._closed or self._gone or self.flowing:
            self._wake_writer()

    def _check_sendable(self) -> None:
        error = self._closed or self._gone
        if error is not None:
            raise error.with_traceback(None)
        if self._farewell is not None:
            raise ClosedResourceError("the end of this direction was announced")

    def _pump(self) -> None:
        """Send what is posted as far as there are credits, then what was to follow it."""
        while self._outbox:
            # Not a sliver at the end of the credits: more will come, by half windows.
            room = min(self._payload, self._credits - FRAME_COST)
            if room < min(self._outbox.size, self._least):
                return
            piece, posted = self._outbox.next_frame(room)
            self._send_data([self._data_header(), piece], len(piece), None if posted is None else posted.sent)
        if self._farewell is not None and self._farewell not in self._said:
            self._say(self._farewell)
        if self._credits > FRAME_COST:
            self._wake_writer()

    def _data_header(self) -> bytes:
        if self._taken * 4 < self._window:
            return PLAIN
        taken, self._taken = self._taken, 0
        self._outstanding += taken
        return header(DATA, taken)

    def _send_data(self, frame: Any, size: int, done: Done | None) -> None:
        self._credits -= size + FRAME_COST
        self._sent_frames += 1
        self._sent_bytes += size
        self._transmit(frame, done)

    def _transmit(self, frame: Any, done: Done | None = None) -> None:
        try:
            self._endpoint.send_nowait(frame, done)
        except (ConnectionError, ClosedResourceError) as error:  # gone since the last turn
            if done is not None:
                done(error)
            self._lost(error)

    def _say(self, kind: int) -> None:
        """Send a control frame, unless our last word was said."""
        if CLOSE in self._said or self._gone is not None:
            return
        if kind != GRANT:
            self._said.add(kind)
        taken, self._taken = self._taken, 0
        self._outstanding += taken
        self._transmit(header(kind, taken))

    def _wake_writer(self) -> None:
        callback, self._on_writable = self._on_writable, None
        if callback is not None:
            callback()

    # -- the end --------------------------------------------------------------------------------------------

    def shutdown_write(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self._farewell is None:
            self._farewell = END
            self._pump()

    def close(self, done: Callable[[], None]) -> None:
        self._closed = self._closed or ClosedResourceError()
        self._on_closed = done
        self._inbox.clear()
        self._wake_reader()
        if CLOSE in self._heard or self._gone is not None:
            self._finish()
        else:
            self._farewell = CLOSE
            self._pump()

    def _peer_closed(self) -> None:
        """It takes nothing and sends nothing any more; our CLOSE is all that it waits for."""
        self._heard |= {END, CLOSE}
        self._say(CLOSE)
        self._lost(FabricBrokenPipeError(errno.EPIPE, "send", peer=self.peer_address))

    def _ended(self, error: BaseException) -> None:
        """The endpoint is gone, after everything that it had received."""
        self._lost(error)

    def _lost(self, error: Any) -> None:
        """Nothing can be sent any more; what was received can be taken."""
        if self._gone is None:
            self._gone = error
            self._outbox.fail(error)
            self._wake_writer()
            self._wake_reader()
        if self._on_closed is not None:
            self._finish()

    def _misbehaved(self, what: str) -> None:
        self.abort(protocol_error(f"The peer broke the byte channel's protocol: {what}", self.peer_address))

    def abort(self, error: ConnectionError | None = None) -> None:
        if self._closed is None:
            self._closed = error or ClosedResourceError()
        self._inbox.clear()
        self._outbox.fail(self._closed)
        self._wake_writer()
        self._wake_reader()
        self._finish()

    def _finish(self) -> None:
        if self._source.draining:
            # Called by a message of this very turn. Closing in its midst, the queue could not be read for what
            # the provider flushes, and the addresses of the receives could not be lent again.
            self._source.driver.call_soon(self._finish)
            return
        if not self._endpoint.closed:
            self._source.interest -= 1
            self._endpoint.abort()
        done, self._on_closed = self._on_closed, None
        if done is not None:
            done()

    def _signal(self) -> LookingSignal:
        return LookingSignal(self._source)

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
