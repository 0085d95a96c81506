"""Sending: the half of an endpoint's channel that spends credits. Bytes go out in frames as far as there are any.

Small data is copied behind its header. ``bytes``, which nobody changes, are sent from where they lie, and are over
for their sender as soon as the provider has them: with fifteen frames under way it looks once at what became of all
of them, where waiting for each cost 25 us of the 50 that a frame of 64 KiB took. Other memory is lent until its
frames have left.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import ClosedResourceError

from aiofabric.channel.base import ByteChannel, Done
from aiofabric.channel.frames import CLOSE, DATA, END, FRAME_COST, GRANT, PLAIN, Hello, header
from aiofabric.channel.outbox import Outbox, Posted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiofabric.cq.operation import Operation
    from aiofabric.transport.connected.endpoint import MessageEndpoint

__all__ = ["COPY_LIMIT", "Sending"]

COPY_LIMIT = 16384
"""Bytes up to which a send is copied behind its header and over at once; more goes from where it lies."""


class Sending(ByteChannel):
    """Credits, frames and farewells on their way to the peer; grants for what was taken from it go with them."""

    def __init__(self, endpoint: MessageEndpoint, ours: Hello, theirs: Hello) -> None:
        self._endpoint = endpoint
        self._handle = endpoint._handle
        self.ours = ours
        self.theirs = theirs
        self._window = ours.window
        self._payload = theirs.payload
        self._copied = min(COPY_LIMIT, self._payload)
        self._least = min(self._copied, theirs.window // 4)
        self._credits = self._most_credits = theirs.window
        self._outbox = Outbox()
        self._farewell: int | None = None  # END or CLOSE, once everything posted has gone out
        self._said: set[int] = set()
        self._on_writable: Callable[[], object] | None = None
        self._taken = 0  # credits of what was taken, not granted again yet
        self._outstanding = self._window  # credits that the peer holds, by our own count
        self._gone: Exception | None = None  # how receiving ends when everything was taken
        self._closed: Exception | None = None  # what every call raises: we have closed
        self._refusal: Exception | None = None  # what sending raises: one of these two, or the end was announced
        self._sent_bytes = self._sent_frames = 0

    @property
    def flowing(self) -> bool:
        """Whether what is sent now waits for nothing but the provider."""
        return self._credits > FRAME_COST and not self._outbox.size and self._refusal is None

    @property
    def unsent(self) -> int:
        return self._outbox.size

    def try_send(self, data: bytes | memoryview) -> int:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        size = len(data)
        if not 0 < size <= self._payload or size + FRAME_COST > self._credits or self._outbox.size:
            return 0
        if size <= self._copied:
            self._send_data(self._data_header() + data, size)
        elif type(data) is bytes:
            self._send_data([self._data_header(), data], size)
        else:
            return 0
        if self._gone is not None:
            raise self._gone.with_traceback(None)
        return size

    def post(self, data: memoryview, done: Done) -> None:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if not data:
            done(None)
            return
        self._outbox.add(Posted(data, done))
        self._pump()

    def when_writable(self, callback: Callable[[], object] | None) -> None:
        self._on_writable = callback
        if self._closed or self._gone or self.flowing:
            self._wake_writer()

    def shutdown_write(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self._farewell is None:
            self._farewell = END
            self._refusal = self._refusal or ClosedResourceError("the end of this direction was announced")
            self._pump()

    def _pump(self) -> None:
        """Send what is posted as far as there are credits, then what was to follow it."""
        while self._outbox:
            # Not a sliver at the end of the credits: more will come, by half windows.
            room = min(self._payload, self._credits - FRAME_COST)
            if room < min(self._outbox.size, self._least):
                return
            piece, posted = self._outbox.next_frame(room)
            self._send_data([self._data_header(), piece], len(piece), None if posted is None else posted.sent)
            self._outbox.report_sent()
        if self._farewell is not None and self._farewell not in self._said:
            self._say(self._farewell)
        if self._on_writable is not None and self._credits > FRAME_COST:
            self._wake_writer()

    def _data_header(self) -> bytes:
        if self._taken * 4 < self._window:
            return PLAIN
        taken, self._taken = self._taken, 0
        self._outstanding += taken
        return header(DATA, taken)

    def _grant(self, size: int) -> None:
        """Bytes were taken: credits go back with data when a quarter is due, by themselves when half is."""
        self._taken += size
        if self._taken * 2 >= self._window:
            self._say(GRANT)

    def _send_data(self, frame: Any, size: int, done: Done | None = None) -> None:
        self._credits -= size + FRAME_COST
        self._sent_frames += 1
        self._sent_bytes += size
        self._transmit(frame, done)

    def _transmit(self, frame: Any, done: Done | None = None) -> None:
        """Hand a frame to the provider; ``done`` is for one whose memory is lent."""
        handle = self._handle
        try:
            if not handle.thread_check.admits():
                raise handle.refuse("fi_send")
            route: Any = handle.tx
            if type(frame) is list or not route.inject(frame):
                transfer = route.post(frame)
                if done is not None:
                    transfer.notify = partial(_report, done)
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

    @abstractmethod
    def _lost(self, error: Any) -> None:
        """Nothing can be sent any more; what was received can be taken."""


def _report(done: Done, transfer: Operation) -> None:
    done(transfer.error)
