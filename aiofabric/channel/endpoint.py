"""EndpointChannel: a byte channel over a message endpoint: its ends, its errors, and reads of the peer's memory.

Everything on the path of data is in C (`_core/channel`). Frames arrive through the endpoint's sink, in the reactor's
progress pass. Control frames are handled at once. Data goes to the reader that waits, with one copy; otherwise it is
queued: small frames as a copy, large ones in the pool's memory. Credits bound the queued data: a reader that does not
read grants no credits, and the writer stops.
"""

from __future__ import annotations

import errno
import warnings
from typing import TYPE_CHECKING, Any

import anyio
from anyio import ClosedResourceError

from aiofabric._core import ChannelCore
from aiofabric.channel.base import StreamStatistics
from aiofabric.channel.frames import CLOSE, END, Hello, protocol_error
from aiofabric.channel.rma import RmaChannel
from aiofabric.channel.signal import PollingSignal
from aiofabric.cq.loops.forgotten import close_soon
from aiofabric.errors import FabricBrokenPipeError
from aiofabric.flags import EndpointType

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiofabric.address import Address
    from aiofabric.info import Info
    from aiofabric.transport.connected.endpoint import MessageEndpoint

__all__ = ["EndpointChannel"]

_GRACE = 0.1
"""Seconds that a cancelled send waits until the provider has sent what it has."""


class EndpointChannel(ChannelCore, RmaChannel):
    """Bytes over ``endpoint``, which it owns; ``ours`` and ``theirs`` are the hellos of both sides."""

    def __init__(self, endpoint: MessageEndpoint, ours: Hello, theirs: Hello) -> None:
        self._handle = handle = endpoint._handle
        self._source = source = handle.source
        ChannelCore.__init__(self, handle, source, handle.tx, ours.window, theirs.payload, theirs.window)
        RmaChannel.__init__(self, endpoint)
        self.ours = ours
        self.theirs = theirs
        self._strict = source.driver.checkpoint_if_cancelled is not None
        source.interest += 1  # a queue without a descriptor must be polled
        endpoint.set_sink(self, self._ended)

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

    def check_usable(self) -> None:
        if not self._handle.loop_thread.admits():
            self._handle.check_open()

    def check_caller(self) -> None:
        self._handle.check_caller()

    def watch(self, callback: Callable[[], object] | None) -> None:
        if callback is not None:
            self._handle.check_thread()
        self._watcher = callback

    # -- fairness: for an adapter whose awaits often return at once

    @property
    def must_yield(self) -> bool:
        return self._strict or self._source.must_yield

    async def checkpoint(self) -> None:
        await self._source.checkpoint()
        self._source.loop_iterated()

    def poll(self) -> None:
        self.flush()
        self._source.poll()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` at the end of this iteration of the loop."""
        self._source.driver.call_soon(callback)

    # -- the end

    def shutdown_write(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self._end_frame < 0:
            self._end_frame = END
            self._refusal = self._refusal or ClosedResourceError("the end of this direction was announced")
            self._pump()

    def close(self, done: Callable[[], None]) -> None:
        self._closed = self._refusal = self._closed or ClosedResourceError()
        self._on_closed = done
        self._drop_received()
        self._wake_reader()
        if self._close_received or self._gone is not None:
            self._finish()
        else:
            self._end_frame = CLOSE
            self._pump()

    def _peer_closed(self) -> None:
        """The peer has stopped receiving and sending, and only waits for CLOSE from this side."""
        self._end_received = self._close_received = True
        self._say(CLOSE)
        self._lost(FabricBrokenPipeError(errno.EPIPE, "send", peer=self.peer_address))

    def _ended(self, error: BaseException) -> None:
        """The endpoint has ended; all data that it had received was delivered before."""
        self._lost(error)

    def _transmit_failed(self, error: BaseException, notify: Callable[[_Failed], object] | None) -> None:
        """A frame did not leave: the connection has ended since the last progress pass, or the provider refused the
        frame. The stream has a gap then, so it is lost.
        """
        if not isinstance(error, (OSError, ClosedResourceError)):
            raise error
        if notify is not None:
            notify(_Failed(error))
        self._lost(error)

    def _lost(self, error: Any) -> None:
        """No data can be sent any more; received data can still be taken."""
        if self._gone is None:
            self._gone = error
            self._refusal = self._closed or error
            self._fail_posted(error)
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
        self._drop_received()
        self._fail_posted(self._closed)
        self._end_exposed(self._closed)
        self._wake_writer()
        self._wake_reader()
        self._finish()

    async def _end_cancelled_send(self, error: ConnectionError) -> None:
        tx = self._handle.tx
        assert tx is not None
        in_part = self.unsent > 0
        try:
            if in_part:
                self._lost(error)  # nothing else leaves
                tx.fail_waiting(lambda: error)
            if not (in_part and self._endpoint.info.ep_attr.type == EndpointType.MSG):  # there, the close ends all
                with anyio.move_on_after(_GRACE, shield=True):
                    await tx.drained()
        finally:  # a second task.cancel() passes the shield
            if (in_part or tx.posted or tx.waiting) and not self._endpoint.closed:
                self.abort(error)

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
            send_queued=self.unsent,
            receive_queued=self._queued,
            send_credits=self._credits,
            receive_credits=self._outstanding,
        )


class _Failed:
    """The transfer of a frame that did not leave, for the posted buffer that the frame notifies."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
