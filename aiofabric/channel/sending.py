"""Sending: the half of an endpoint's channel that spends credits. Data is sent in frames as far as credits allow.

Small data is copied behind its header. ``bytes`` never change, so they are sent without a copy, and the send returns as
soon as the provider has them. With fifteen frames in flight, one poll collects the completions of all of them; waiting
for each cost 25 us of the 50 us that a frame of 64 KiB took. Other memory is lent until its frames have left.
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
"""Bytes up to which a send is copied behind its header and returns at once; larger data is sent without a copy."""


class Sending(ByteChannel):
    """Sends data, grants and the end of the stream, as credits allow; grants travel in the headers of data frames."""

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
        self._end_frame: int | None = None  # END or CLOSE, to be sent after all posted data
        self._said: set[int] = set()
        self._on_writable: Callable[[], object] | None = None
        self._taken = 0  # credits of data that the application has taken, and that were not granted again yet
        self._outstanding = self._window  # credits that the peer may still use, by this side's count
        self._gone: Exception | None = None  # the error of receiving when all data was taken
        self._closed: Exception | None = None  # the error of all calls after this side has closed
        self._refusal: Exception | None = None  # the error of sending: one of these two, or after the end was announced
        self._sent_bytes = self._sent_frames = 0

    @property
    def flowing(self) -> bool:
        """Whether only the provider delays new data: no earlier data is queued, and credits are left."""
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
        if self._end_frame is None:
            self._end_frame = END
            self._refusal = self._refusal or ClosedResourceError("the end of this direction was announced")
            self._pump()

    def _pump(self) -> None:
        """Send posted data as far as credits allow, then END or CLOSE if one is due."""
        while self._outbox:
            # No tiny frame at the end of the credits: the peer grants at least a quarter of the window at a time.
            room = min(self._payload, self._credits - FRAME_COST)
            if room < min(self._outbox.size, self._least):
                return
            piece, posted = self._outbox.next_frame(room)
            self._send_data([self._data_header(), piece], len(piece), None if posted is None else posted.sent)
            self._outbox.report_sent()
        if self._end_frame is not None and self._end_frame not in self._said:
            self._say(self._end_frame)
        if self._on_writable is not None and self._credits > FRAME_COST:
            self._wake_writer()

    def _data_header(self) -> bytes:
        if self._taken * 4 < self._window:
            return PLAIN
        taken, self._taken = self._taken, 0
        self._outstanding += taken
        return header(DATA, taken)

    def _grant(self, size: int) -> None:
        """Data was taken: grant credits in a data frame once a quarter of the window is due, alone once half is due."""
        self._taken += size
        if self._taken * 2 >= self._window:
            self._say(GRANT)

    def _send_data(self, frame: Any, size: int, done: Done | None = None) -> None:
        self._credits -= size + FRAME_COST
        self._sent_frames += 1
        self._sent_bytes += size
        self._transmit(frame, done)

    def _transmit(self, frame: Any, done: Done | None = None) -> None:
        """Hand a frame to the provider; ``done`` is for a frame whose memory is lent."""
        handle = self._handle
        try:
            if not handle.thread_check.admits():
                raise handle.refuse("fi_send")
            route: Any = handle.tx
            if type(frame) is list or not route.inject(frame):
                transfer = route.post(frame)
                if done is not None:
                    transfer.notify = partial(_report, done)
        except (OSError, ClosedResourceError) as error:
            # The connection ended since the last progress pass, or the provider refused the frame (FabricError). The
            # stream has a gap then, so it is lost.
            if done is not None:
                done(error)
            self._lost(error)

    def _say(self, kind: int) -> None:
        """Send a control frame, unless CLOSE was already sent."""
        if CLOSE in self._said or self._gone is not None:
            return
        if kind in (END, CLOSE):
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
        """No data can be sent any more; received data can still be taken."""


def _report(done: Done, transfer: Operation) -> None:
    done(transfer.error)
