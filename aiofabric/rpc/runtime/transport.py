"""RpcTransport: an endpoint and the protocol's connection over it.

Input comes from the endpoint's sink, in the progress pass. Output is gathered: the first frame leaves at once, and the
others of the same pass of the loop in one fabric message when the pass ends. An arriving message also counts as the
start of a new iteration. So the first frame after it leaves at once, and a single task that polls for replies is never
delayed. Pieces of large messages go last, at most two at a time
with the provider, so that a small frame never waits for more than those.
"""

from __future__ import annotations

from functools import partial
from signal import SIGINT, raise_signal
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from anyio import ClosedResourceError

from ..._core import FrameOutput
from ...errors import WrongLoopError
from ...transport.connect import connect
from ...transport.connected.closing import abort_when_drained

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...address import Address
    from ...cq.operation import Operation
    from ...transport.connected.endpoint import MessageEndpoint
    from ..protocol.client import ClientConnection
    from ..protocol.connection import Limits
    from ..protocol.server import ServerConnection

__all__ = ["RECV_COUNT", "RpcTransport", "connect_endpoint"]

RECV_COUNT: Final = 16
"""Receive buffers of a connection; an idle connection has touched none of their memory."""

PIECES: Final = 2
"""Pieces of large messages that the provider may hold at a time."""

LINGER: Final = 1.0
"""Seconds that a failed connection stays open, so that the peer reads why."""


async def connect_endpoint(
    node: str | Address | None, service: str | int | None, limits: Limits, **options: Any
) -> MessageEndpoint:
    """Connect to an RPC server."""
    return await connect(node, service, recv_size=limits.recv_size, recv_count=RECV_COUNT, **options)


class RpcTransport:
    """Runs ``connection`` over ``endpoint``, which it owns. ``on_end`` is called once with the reason of the end."""

    def __init__(
        self,
        endpoint: MessageEndpoint,
        connection: ClientConnection | ServerConnection,
        on_end: Callable[[RpcTransport, BaseException], object],
    ) -> None:
        self.endpoint = endpoint
        self.connection = connection
        self._on_end: Callable[[RpcTransport, BaseException], object] | None = on_end
        self._handle: Any = endpoint._handle
        self._handle.what = "RPC connection"  # in the texts of errors
        self.source = source = endpoint._handle.source
        self.driver = source.driver
        self._pieces = 0
        self._lingers = False
        self._cancel_preface_timer: Callable[[], None] | None = None
        self.ended = False
        source.interest += 1  # a queue without a descriptor must be polled
        connection.transport = self
        self._output = FrameOutput(source, self._handle.tx, self._transmit, self._pass_ends)
        connection.send_now = self._output
        connection.flush = self._flush
        connection.has_failed = self._linger
        endpoint.set_sink(connection, self._endpoint_ended)
        self._flush()

    # -- output

    def poll(self) -> None:
        """Before a task waits: send what is gathered and poll the queue, unless other tasks are about to run."""
        source = self.source
        if not source._others_woken:
            connection = self.connection
            if connection.output:
                self._flush()
            source.poll()

    def _pass_ends(self) -> None:
        interrupted = self._output.pass_ended()
        if self.connection.output or self.connection.rotation:
            self._flush()
        if interrupted:
            raise_signal(SIGINT)

    def _flush(self) -> None:
        if self.ended:
            return
        connection = self.connection
        if connection.output:
            output = connection.take_output(monotonic())
            if len(output) == 1:
                self._transmit(output[0])
            elif output:
                self._transmit_many(output)
        if connection.rotation:
            self._send_pieces()

    def _transmit_many(self, output: list[bytes | bytearray]) -> None:
        most, batch, size = self.connection.peer.recv_size, list[bytes | bytearray](), 0
        for data in output:
            if size + len(data) > most and batch:
                self._transmit(b"".join(batch))
                batch, size = [], 0
            batch.append(data)
            size += len(data)
        self._transmit(b"".join(batch))

    def _send_pieces(self) -> None:
        connection = self.connection
        while self._pieces < PIECES and (piece := connection.next_piece()) is not None:
            transfer = self._transmit([*piece])
            if transfer is not None:
                self._pieces += 1
                transfer.notify = self._piece_sent
            connection.pieces_handed_over()

    def _piece_sent(self, transfer: Operation) -> None:
        self._pieces -= 1
        self.connection.sent += transfer.length
        self._sent(transfer)
        if self.connection.rotation and not self.ended:
            self._flush()

    def _frames_sent(self, transfer: Operation) -> None:
        if not self.ended:
            self.connection.has_left(transfer.length)
        self._sent(transfer)

    def _transmit(self, frames: Any) -> Any:
        """Hand one fabric message to the provider. Return its operation, or None if the message was injected."""
        handle = self._handle
        try:
            if not handle.thread_check.admits():
                raise handle.refuse("fi_send")
            route = handle.tx
            if type(frames) is list or not route.inject(frames):
                transfer = route.post(frames)
                if type(frames) is not list:  # at most two pieces are under way, and their message is counted
                    transfer.notify = self._frames_sent
                    self.connection.handed_over(transfer.length)
                return transfer
        except (OSError, ClosedResourceError, WrongLoopError) as error:
            self._end(error)
        return None

    def _sent(self, transfer: Operation) -> None:
        """The provider has sent a message, or has failed: then the peer lacks frames, and the connection ends."""
        if transfer.error is not None:
            self._end(transfer.error)

    # -- the preface

    def expect_preface(self, seconds: float) -> None:
        """End the connection unless the peer's preface comes in time."""
        if not self.ended and not self.connection.peer_known:
            error = TimeoutError(
                f"it has sent no RPC preface in {seconds:g} s: check that the peer runs aiofabric.rpc, too"
            )
            self._cancel_preface_timer = self.driver.call_later(seconds, partial(self._end, error))

    def preface_arrived(self) -> None:
        """The preface has come; or none is expected any more."""
        cancel, self._cancel_preface_timer = self._cancel_preface_timer, None
        if cancel is not None:
            cancel()

    # -- the end

    def _linger(self) -> None:
        if not self.ended and not self._lingers:
            self._lingers = True  # only one timer, even if the peer sends more frames
            self.driver.call_later(LINGER, self.abort)

    def _endpoint_ended(self, error: BaseException) -> None:
        self._end(error)

    def _end(self, error: BaseException) -> None:
        if self.ended:
            return
        self.ended = True
        self.preface_arrived()
        abort_when_drained(self.endpoint)
        self.connection.has_left(self.connection.unsent)
        self.connection.lost(f"The connection to the peer was lost: {error}")
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self, error)

    def abort(self) -> None:
        """Close now; every call ends with UNAVAILABLE."""
        self._end(ClosedResourceError("this side has closed the connection"))

    def loop_ended(self) -> None:
        """Close the endpoint of a loop that has ended; no callback is called."""
        self.ended = True
        self.endpoint.abort()
