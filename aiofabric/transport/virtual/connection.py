"""Connection: one virtual connection on a multiplexer, its sending side, its receiving side and its end.

Messages are numbered, and delivered by number. Each message carries the number of messages that its sender has taken in
the other direction (a total modulo 256, so a lost or delayed count is corrected by the next one). A sender with a full
window of messages in flight waits until the peer's count grows. If no message goes back, the count is sent in a message
of its own.
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..._ffi import constants
from ...cm.workarounds.keepalive import agree
from ...cq.operation import POSTED
from ...cq.submission import SubmissionQueue
from ...errors import FabricError
from ..messages.inbox import Inbox
from .doorbell import Doorbell
from .protocol import CREDITS, DIRECT, KIND, KIND_PING, KIND_PONG, SEQUENCE, FrameKind
from .route import WINDOW_MOST, ConnectionRoute, SendingHandle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._core import LoanCore
    from ...cq.queue import ErrorEntry
    from ...cq.submission import Transfer
    from ..opening.options import EndpointOptions
    from .multiplexer import Multiplexer
    from .oob_socket import Frame, OobSocket
    from .receive_pools import SharedBuffer

__all__ = ["ConnectionHandle"]

_COUNT = struct.Struct("!Q")
# Errors of receives on shm, which copies out of the sender's process, after that process has ended.
_ENDED = frozenset((errno.EIO, errno.ESRCH))
# Errors of sends to a peer that cannot be reached any more.
_LOST = _ENDED | frozenset(
    (
        errno.ENOENT, errno.EPIPE, errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED,
        errno.ECONNREFUSED, errno.ESHUTDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN,
        errno.ENETRESET, errno.ETIMEDOUT, constants.FI_ECANCELED,
    )
)  # fmt: skip
_LATE_MESSAGES = 0.1  # seconds to wait for messages after the end of the OOB socket, if their number is unknown
_ANNOUNCED = 1.0  # the same, if the peer has sent the number


class ConnectionReceives(SubmissionQueue):
    """Receives into the caller's memory. Each takes one message, and grants the peer one credit."""

    __slots__ = ()
    owner: ConnectionHandle

    def retire(self, transfer: Transfer) -> None:
        super().retire(transfer)
        if transfer.flags:
            self.owner.took_directly()


class CopiedBuffer:
    """A message copied into memory of its own, because the shared receives have run low."""

    __slots__ = ("contents", "data", "flags", "length", "source", "tag", "view")

    def __init__(self, buffer: SharedBuffer) -> None:
        self.contents = buffer.contents
        self.view = memoryview(self.contents)
        self.length, self.flags, self.data, self.tag = buffer.length, buffer.flags, buffer.data, buffer.tag
        self.source = buffer.source


class ConnectionInbox(Inbox):
    """Messages of one connection, in the multiplexer's memory."""

    handle: ConnectionHandle

    def loan(self, start: int) -> LoanCore | None:
        buffer: SharedBuffer | CopiedBuffer = self._fed
        return super().loan(start) if isinstance(buffer, CopiedBuffer) or not buffer.pool.scarce else None

    def was_lent(self) -> None:
        self.handle.announce_if_due()

    def recycle(self, buffer: SharedBuffer | CopiedBuffer) -> None:
        if not isinstance(buffer, CopiedBuffer):
            if not hasattr(buffer, "pool"):  # collected together with the pool
                return
            buffer.pool.recycle(buffer)
        self.handle.took()

    def end(self, error: Callable[[], BaseException]) -> None:
        if self.handle.closed:  # give untaken messages back to the multiplexer
            for item in self.inbox:
                if not isinstance(item, CopiedBuffer | BaseException):
                    item.pool.recycle(item)
        super().end(error)


class ConnectionHandle(SendingHandle):
    """One virtual connection, as its multiplexer and its OOB socket hold it."""

    __slots__ = (
        "_cancel_wait", "_early", "_expected", "asked", "heartbeat", "id", "multiplexer",
        "on_gone", "oob_socket", "orderly", "pooled", "window",
    )  # fmt: skip

    plain_receives = False
    serves_memory = False  # the multiplexer's endpoint does
    tx: ConnectionRoute | None
    multiplexer: Multiplexer

    def __init__(self, multiplexer: Multiplexer, options: EndpointOptions) -> None:
        pooled = multiplexer.pool(options.recv_size or 64)  # may raise, so before the handle becomes a child
        super().__init__(
            "MessageEndpoint",
            multiplexer.fid,
            multiplexer.handle,
            multiplexer.info,
            multiplexer.source,
            cancel_grace=options.cancel_grace,
        )
        self.multiplexer = multiplexer
        self.overflow = multiplexer.handle.overflow
        self.rx = ConnectionReceives(self.source, self, self.rx.limit, receives=True, grace=options.cancel_grace)
        self.oob_socket: OobSocket | None = None
        self.doorbell = Doorbell(self)
        self.peer: Any = None
        self.window = multiplexer.window(min(options.recv_count, WINDOW_MOST))
        self.heartbeat = options.heartbeat
        self.close_timeout = options.close_timeout
        self.orderly = False  # the end frame tells the peer that all messages were sent
        self.received = self.taken = self.announced = 0
        self.last = None  # total number of messages that the peer sent, once it is known
        self._expected = 0
        self._early: dict[int, SharedBuffer] = {}
        self._cancel_wait: Callable[[], None] | None = None
        self.on_gone: Callable[[], object] | None = None
        self.pong = None  # of the client, which waits for the first message over the fabric
        self.asked: Callable[[bool], None] | None = None  # is told that the peer has answered a later ping
        self.pooled = pooled
        if options.recv_size is not None:
            self.pool = ConnectionInbox(self, options.recv_size, self.window)
        self.id = multiplexer.enter(self)
        try:
            pooled.promise(self.window)
            options.report_writes(self)
        except BaseException:
            self.close()
            raise

    # -- receiving

    @property
    def any_message(self) -> tuple[int, ...]:
        return constants.FI_ADDR_UNSPEC, self.id | DIRECT, 0

    def arrived(self, buffer: SharedBuffer, tag: int) -> None:
        """A message for this connection completed."""
        if self.tx is not None:
            self.tx.granted(tag >> CREDITS & 255)
        if kind := tag & KIND:
            buffer.pool.recycle(buffer)
            if kind == KIND_PING and self.tx is not None and self.live:
                self.tx.tell(KIND_PONG)
            elif kind == KIND_PONG and self.pong is not None and not self.pong.done():
                self._path_known(0)
            elif kind == KIND_PONG:
                self._answer(True)
            return
        sequence = tag >> SEQUENCE & 255
        if sequence != self._expected:
            self._early[sequence] = buffer
            return
        self._deliver(buffer)
        while self._early and (following := self._early.pop(self._expected, None)) is not None:
            self._deliver(following)

    def _deliver(self, buffer: SharedBuffer) -> None:
        self._expected = (self._expected + 1) & 255
        self.received += 1
        inbox = self.pool
        if inbox is None or inbox.ended is not None:
            buffer.pool.recycle(buffer)
        else:
            buffer.tag = 0
            inbox.messages += 1
            inbox.bytes += buffer.length
            if inbox.sink is None and not inbox.waiting and buffer.pool.scarce:
                inbox.deliver(CopiedBuffer(buffer))
                buffer.pool.recycle(buffer)
            else:
                inbox.deliver(buffer)
        self._is_this_the_end()

    def _is_this_the_end(self) -> None:
        if self.last is not None and self.received >= self.last:
            self.end_received = True
            self.peer_gone()

    def took(self) -> None:
        """The program has taken one more message."""
        self.taken += 1
        self.announce_if_due()

    def announce_if_due(self) -> None:
        """Tell the peer how many messages were taken, when it may have used half of what is not lent."""
        lent = 0 if self.pool is None else self.pool._lent
        if self.taken - self.announced > (self.window - lent) // 2 and self.live and self.tx is not None:
            self.tx.announce()

    def took_directly(self) -> None:
        """A message has arrived in the caller's memory."""
        self.received += 1
        self.took()
        self._is_this_the_end()

    def explain(self, transfer: Transfer, entry: ErrorEntry) -> BaseException:
        if entry.errno == constants.FI_ETRUNC and transfer.owner is self.rx:
            self.took_directly()
        elif transfer.what.startswith("fi_t") and transfer.state is POSTED:
            received = transfer.owner is self.rx
            if (not received or entry.errno in _ENDED) and self.unreachable(entry.errno):
                return (self.gone or self.lost_peer)()
        return super().explain(transfer, entry)

    def read_ended(self) -> BaseException | None:
        # shm reads the memory of a peer that has closed its regions, or has freed it, and reports no error. A peer
        # ends the OOB socket first.
        if self.multiplexer.host and not (self.oob_socket is not None and self.oob_socket.peer_is_there):
            return (self.gone or self.lost_peer)()
        return None

    def cancel(self, context: Any) -> int:
        # A callback that is told the end of the peer may close the last connection, and so the multiplexer.
        return super().cancel(context) if self.multiplexer.handle.native_open else 0

    def unreachable(self, code: int) -> bool:
        """Whether this error means that the peer is lost; if so, the end of the connection is expected."""
        lost = code in _LOST
        if lost and self.native_open:
            self._path_known(code)
            self._expect_late_messages(_LATE_MESSAGES)
        return lost

    def ask(self, answered: Callable[[bool], None]) -> None:
        """Send a ping. Call ``answered`` at the pong, or with False when the connection ends before. One at a time."""
        self.asked = answered
        if self.live and self.tx is not None:
            with suppress(FabricError):  # the connection then ends
                self.tx.tell(KIND_PING)

    def _answer(self, yes: bool) -> None:
        if self.asked is not None:
            answered, self.asked = self.asked, None
            answered(yes)

    def _path_known(self, code: int) -> None:
        """The peer has answered over the fabric (0), or the provider cannot reach it."""
        if self.pong is not None and not self.pong.done():
            self.source.woke()
            self.pong.set_result(code)

    # -- the OOB socket

    def hold(self, oob_socket: OobSocket, theirs: float) -> None:
        """The handshake is done: the OOB socket now reports the end. ``theirs`` is the peer's heartbeat, or 0."""
        self.oob_socket = oob_socket
        if (heartbeat := agree((self.heartbeat, theirs))) is not None:
            oob_socket.keep_alive(heartbeat)
        oob_socket.on_frame = self._frame
        oob_socket.on_end = self._oob_socket_ended
        self.source.wake()  # the peer may have sent before it received the handshake
        oob_socket.hand_out()
        if oob_socket.closed:
            self._oob_socket_ended()

    def _frame(self, frame: Frame) -> None:
        if frame.kind == FrameKind.END and len(frame.body) == _COUNT.size and self.last is None:
            self.last = _COUNT.unpack(frame.body)[0]
            self._is_this_the_end()
            if self.gone is None:
                self._expect_late_messages(_ANNOUNCED)
        elif frame.kind in (FrameKind.ASLEEP, FrameKind.WILL_RING, FrameKind.RING):
            self.doorbell.frame_received(frame.kind, frame.body)

    @property
    def dormant(self) -> bool:
        """Whether this connection needs no polling, except for messages that the peer may send."""
        if self.remote_writes is not None:  # writes of the peer are not counted, so the doorbell could miss one
            return False
        return self._cancel_wait is None and (self.tx is None or not (self.tx.waiting or self.tx.owes))

    def _oob_socket_ended(self) -> None:
        if self.ending:
            self.peer_gone()
        elif self.last is None:
            self._expect_late_messages(_LATE_MESSAGES)
            self.multiplexer.peer_lost()

    def _expect_late_messages(self, seconds: float) -> None:
        """The peer has left; messages that it sent before may still arrive."""
        if self._cancel_wait is None and self.gone is None and not self.closed:
            self.source.interest += 1
            self._cancel_wait = self.source.driver.call_later(seconds, self._no_more_late_messages)
            self.source.touch()

    def _no_more_late_messages(self) -> None:
        if self.last is not None and self.pool is None and not self.rx.posted:
            # The messages wait with the provider for receives that the program has not posted yet.
            self._cancel_wait = self.source.driver.call_later(_ANNOUNCED, self._no_more_late_messages)
        else:
            self.peer_gone()

    def shutdown(self) -> None:
        self._send_end()
        self.send_no_more(self._shut_down)

    async def send_end(self) -> bool:
        assert self.tx is not None
        await self.tx.drained()
        self._send_end()
        return bool(self.tx.room)  # 0: a program that posts each receive may never post the next one

    def _send_end(self) -> None:
        assert self.oob_socket is not None
        assert self.tx is not None
        self.oob_socket.send(FrameKind.END, _COUNT.pack(self.tx.sent))

    def end_at_once(self) -> None:
        self.orderly = self.tx is not None and not self.tx.waiting

    def peer_gone(self) -> None:
        if self.gone is None and not self.closed and self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()
        super().peer_gone()

    # -- the end

    def _close_native(self) -> None:
        if not self.native_open:
            return
        self.native_open = False
        if self._cancel_wait is not None:
            self.source.interest -= 1
            self._cancel_wait()
        if self.oob_socket is not None:
            if self.orderly or self.end_received:
                self._send_end()
            self.oob_socket.close()
        self.multiplexer.leave(self)

    def _end(self, error: Callable[[], BaseException]) -> None:
        if self.peer is not None:
            peer, self.peer = self.peer, None
            successor = self.multiplexer.handle.route_to(peer)
            for queue in (*self.routes, self.rx):
                queue.hand_over(error, successor)
            self.multiplexer.release_peer(peer)
            self._answer(False)
        if self.pool is not None:
            self.pool.end(error)
        if self.remote_writes is not None:
            self.remote_writes.end(error)
        for buffer in self._early.values():
            buffer.pool.recycle(buffer)
        self._early.clear()
        self.pooled.release_pages()
