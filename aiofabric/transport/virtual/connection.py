"""Link: one virtual connection on a trunk, its sending side, its receiving side and its end.

Messages are numbered, and delivered by number. Each carries how many the receiver of the other direction has taken
so far (modulo 256, so a lost or late one does no harm); whoever has a window of messages on the way waits for that
to grow. Only when nothing goes the other way is it told in a message of its own.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...cm.workarounds.keepalive import agree
from ...cq.operation import POSTED
from ...cq.submission import Lane
from ...errors import FabricError, check
from ..handle import EndpointHandle
from ..messages.inbox import Inbox
from ..route import Route
from ..workarounds.shm_same_process import INLINE, reads_ours
from .doorbell import Bell
from .protocol import CREDITS, DIRECT, KIND, KIND_CREDITS, POOL, SEQUENCE, FrameKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cq.operation import Operation
    from ...cq.queue import ErrorEntry
    from ...cq.submission import Transfer
    from ..opening.options import EndpointOptions
    from .multiplexer import Trunk
    from .oob_socket import Frame, Line
    from .protocol import Hello
    from .receive_pools import TrunkParcel

__all__ = ["LinkHandle"]

_EAGAIN = constants.FI_EAGAIN
_COUNT = struct.Struct("!Q")
_WINDOW_MOST = 127  # a count modulo 256 tells old from new within half of that
# How a receive ends on shm, which copies out of the sender's process, when that has ended.
_ENDED = frozenset((errno.EIO, errno.ESRCH))
# And a send whose peer cannot be reached any more.
_LOST = _ENDED | frozenset(
    (
        errno.ENOENT, errno.EPIPE, errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED,
        errno.ECONNREFUSED, errno.ESHUTDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN,
        errno.ENETRESET, errno.ETIMEDOUT, constants.FI_ECANCELED,
    )
)  # fmt: skip
_STRAGGLERS = 0.1  # seconds that messages may be behind the end of the line when nobody said how many there are
_ANNOUNCED = 1.0  # and when the peer did say


class LinkRoute(Route):
    """Where a link's messages go: the peer's fi_addr, and under which tags."""

    __slots__ = ("base", "link", "notices", "owes", "room", "sent", "taken", "window")
    direct = False

    def __init__(self, link: LinkHandle, peer: int, hello: Hello, name: object) -> None:
        super().__init__(link, peer, name)
        self.link = link
        self.base = hello.connection | (hello.pool << POOL if hello.room else DIRECT)
        self.notices = hello.connection | hello.pool << POOL
        self.room = hello.room
        self.window = min(hello.credits, _WINDOW_MOST)
        self.sent = 0
        self.taken = 0  # of those, by the peer's program
        self.owes = False
        if reads_ours(link.trunk.handle, link.peer.address):
            self.inject_size = min(self.inject_size, INLINE)
        if hello.room:
            self.inject_size = min(self.inject_size, hello.room)

    def _stamp(self) -> int:
        link = self.link
        if not self.room:
            return self.base
        link.announced = link.taken
        return self.base | (link.taken & 255) << CREDITS | (self.sent & 255) << SEQUENCE

    def _inject(self, data: bytes, tag: int | None) -> bool:
        if self.sent - self.taken >= self.window:
            return False
        rc = lib.fi_tinject(self.handle.fid, data, len(data), self.peer, self._stamp())
        if rc == 0:
            self.sent += 1
            if self.link.bell.peer_sleeps:
                self.link.bell.ring()
            return True
        if rc != -_EAGAIN:
            if self.link.unreachable(-rc):
                raise (self.link.gone or self.link.lost_peer)()
            check(rc, "fi_tinject", peer=self.name)
        return False

    def post(self, data: Any, tag: int | None = None, remote_data: int | None = None, flags: int = 0) -> Transfer:
        return super().post(data, 0, remote_data, flags)

    def _try(self, transfer: Transfer) -> bool:
        if not transfer.what.startswith("fi_tsend"):
            posted = super()._try(transfer)
            if self.link.bell.peer_sleeps:
                self.link.bell.ring()
            return posted
        if self.sent - self.taken >= self.window:
            return False
        assert transfer.post is not None
        function, args = transfer.post
        if transfer.what == "fi_tsendmsg":
            args[1].tag = args[1].tag & KIND | self._stamp()
        else:
            transfer.post = function, (*args[:-2], args[-2] & KIND | self._stamp(), args[-1])
        try:
            posted = super()._try(transfer)
        except FabricError as error:
            if self.link.unreachable(error.errno or 0):
                raise (self.link.gone or self.link.lost_peer)() from error
            raise
        self.sent += posted
        if self.link.bell.peer_sleeps:
            self.link.bell.ring()
        return posted

    def granted(self, count: int) -> None:
        """The peer has taken so many messages, modulo 256."""
        newly = (count - self.taken) & 255
        if 0 < newly <= min(_WINDOW_MOST, self.sent - self.taken):
            self.taken += newly
            if self.waiting:
                self.source.touch()

    def announce(self) -> None:
        """Tell the peer how many messages were taken, when no message is on its way that would."""
        link = self.link
        tag = self.notices | KIND_CREDITS | (link.taken & 255) << CREDITS
        rc = lib.fi_tinject(self.handle.fid, b"", 0, self.peer, tag)
        self.owes = rc == -_EAGAIN
        if rc == 0:
            link.announced = link.taken
        elif self.owes:
            self.refused = True
            self.source.park(self)
            self.source.touch()
        elif not link.unreachable(-rc):
            check(rc, "fi_tinject", peer=self.name)

    def post_notice(self, left: Callable[[Operation], None]) -> None:
        """Tell the peer how many messages were taken; ``left`` is called when that, and all before it, has left."""
        tag = self.notices | KIND_CREDITS | (self.link.taken & 255) << CREDITS
        args = (self.handle.fid, ffi.NULL, 0, ffi.NULL, self.peer, tag)
        self.submit("credits", lib.fi_tsend, args, None, 0).notify = left

    def retry(self) -> int:
        moved = super().retry()
        if self.owes and self.link.live:  # not if the connection has ended: nor may the trunk be there
            self.announce()
            moved += not self.owes
        return moved


class LinkReceives(Lane):
    """Receives into the caller's memory. Each takes one message, and gives the peer leave to send another."""

    __slots__ = ()
    owner: LinkHandle

    def home(self, transfer: Transfer) -> None:
        super().home(transfer)
        if transfer.flags:
            self.owner.took_directly()


class CopiedParcel:
    """A message that waits in memory of its own, because the shared receives have run low."""

    __slots__ = ("contents", "data", "flags", "length", "source", "tag", "view")

    def __init__(self, parcel: TrunkParcel) -> None:
        self.contents = parcel.contents
        self.view = memoryview(self.contents)
        self.length, self.flags, self.data, self.tag = parcel.length, parcel.flags, parcel.data, parcel.tag
        self.source = parcel.source


class LinkInbox(Inbox):
    """Messages of one link, in the trunk's memory."""

    handle: LinkHandle

    def recycle(self, buffer: TrunkParcel | CopiedParcel) -> None:
        if not isinstance(buffer, CopiedParcel):
            buffer.pool.recycle(buffer)
        self.handle.took()

    def end(self, error: Callable[[], BaseException]) -> None:
        if self.handle.closed:  # what nobody took is the trunk's again
            for item in self.inbox:
                if not isinstance(item, CopiedParcel | BaseException):
                    item.pool.recycle(item)
        super().end(error)


class LinkHandle(EndpointHandle):
    """One virtual connection, as its trunk and its line hold it."""

    __slots__ = (
        "_cancel_wait", "_early", "_expected", "announced", "bell", "heartbeat", "id", "last", "line", "on_gone",
        "orderly", "peer", "pooled", "received", "taken", "trunk", "window",
    )  # fmt: skip

    plain_receives = False
    tx: LinkRoute | None
    trunk: Trunk

    def __init__(self, trunk: Trunk, options: EndpointOptions) -> None:
        pooled = trunk.pool(options.recv_size or 64)  # may refuse, so before the handle is the trunk's child
        super().__init__(
            "MessageEndpoint", trunk.fid, trunk.handle, trunk.info, trunk.source, cancel_grace=options.cancel_grace
        )
        self.trunk = trunk
        self.overflow = trunk.handle.overflow
        self.rx = LinkReceives(self.source, self, self.rx.limit, receives=True, grace=options.cancel_grace)
        self.line: Line | None = None
        self.bell = Bell(self)
        self.peer: Any = None
        self.window = trunk.window(min(options.recv_count, _WINDOW_MOST))
        self.heartbeat = options.heartbeat
        self.close_timeout = options.close_timeout
        self.orderly = False  # the peer is told that all messages were sent
        self.received = self.taken = self.announced = 0
        self.last: int | None = None  # messages that the peer sent in all
        self._expected = 0
        self._early: dict[int, TrunkParcel] = {}
        self._cancel_wait: Callable[[], None] | None = None
        self.on_gone: Callable[[], object] | None = None
        self.pooled = pooled
        if options.recv_size is not None:
            self.pool = LinkInbox(self, options.recv_size, self.window)
        self.id = trunk.enter(self)
        try:
            pooled.promise(self.window)
            options.hear_of_writes(self)
        except BaseException:
            self.close()
            raise

    # -- receiving

    @property
    def any_message(self) -> tuple[int, ...]:
        return constants.FI_ADDR_UNSPEC, self.id | DIRECT, 0

    def arrived(self, parcel: TrunkParcel, tag: int) -> None:
        """A message for this connection completed."""
        if self.tx is not None:
            self.tx.granted(tag >> CREDITS & 255)
        if tag & KIND == KIND_CREDITS:
            parcel.pool.recycle(parcel)
            return
        sequence = tag >> SEQUENCE & 255
        if sequence != self._expected:
            self._early[sequence] = parcel
            return
        self._deliver(parcel)
        while self._early and (following := self._early.pop(self._expected, None)) is not None:
            self._deliver(following)

    def _deliver(self, parcel: TrunkParcel) -> None:
        self._expected = (self._expected + 1) & 255
        self.received += 1
        inbox = self.pool
        if inbox is None or inbox.ended is not None:
            parcel.pool.recycle(parcel)
        else:
            parcel.tag = 0
            inbox.messages += 1
            inbox.bytes += parcel.length
            if inbox.sink is None and not inbox.waiting and parcel.pool.scarce:
                inbox.deliver(CopiedParcel(parcel))
                parcel.pool.recycle(parcel)
            else:
                inbox.deliver(parcel)
        self._is_this_the_end()

    def _is_this_the_end(self) -> None:
        if self.last is not None and self.received >= self.last:
            self.end_heard = True
            self.peer_gone()

    def took(self) -> None:
        """The program has one message more."""
        self.taken += 1
        if self.taken - self.announced > self.window // 2 and self.live and self.tx is not None:
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

    def cancel(self, context: Any) -> int:
        # Who is told that the peer is gone may close the last connection, and with it the trunk.
        return super().cancel(context) if self.trunk.handle.native_open else 0

    def unreachable(self, code: int) -> bool:
        """Whether an operation that failed so says that the peer is lost; if it does, the line has to be told."""
        lost = code in _LOST
        if lost and self.native_open:
            self._expect_stragglers(_STRAGGLERS)
        return lost

    # -- peers that read memory of closed regions

    def wait_until_quiet(self) -> None:
        if self.tx is None or not self.live:
            self.kept.clear()
        else:
            self.tx.post_notice(self._quiet_up_to(len(self.kept)))

    def _quiet_up_to(self, count: int) -> Callable[[Operation], None]:
        def left(_: Operation) -> None:
            del self.kept[:count]
            if self.kept:
                self.wait_until_quiet()

        return left

    # -- the line

    def hold(self, line: Line, theirs: float) -> None:
        """The handshake is done: from now on the line tells the end. ``theirs`` is the peer's heartbeat, or 0."""
        self.line = line
        if (heartbeat := agree((self.heartbeat, theirs))) is not None:
            line.keep_alive(heartbeat)
        line.on_frame = self._frame
        line.on_end = self._line_ended
        self.source.wake()  # the peer may have sent before it heard of us
        line.hand_out()
        if line.closed:
            self._line_ended()

    def _frame(self, frame: Frame) -> None:
        if frame.kind == FrameKind.END and len(frame.body) == _COUNT.size and self.last is None:
            self.last = _COUNT.unpack(frame.body)[0]
            self._is_this_the_end()
            if self.gone is None:
                self._expect_stragglers(_ANNOUNCED)
        elif frame.kind in (FrameKind.ASLEEP, FrameKind.RING):
            self.bell.heard(frame.kind, frame.body)

    @property
    def dormant(self) -> bool:
        """Whether nothing of this connection needs the queue to be looked at, but what the peer may send."""
        if self.remote_writes is not None:  # the peer's writes are not counted: one might come before it hears of it
            return False
        return self._cancel_wait is None and (self.tx is None or not (self.tx.waiting or self.tx.owes))

    def _line_ended(self) -> None:
        if self.ending:
            self.peer_gone()
        elif self.last is None:
            self._expect_stragglers(_STRAGGLERS)
            self.trunk.bereave()

    def _expect_stragglers(self, seconds: float) -> None:
        """The peer has left; what it sent before may still be on its way."""
        if self._cancel_wait is None and self.gone is None and not self.closed:
            self.source.interest += 1
            self._cancel_wait = self.source.driver.call_later(seconds, self._no_more_stragglers)
            self.source.touch()

    def _no_more_stragglers(self) -> None:
        if self.last is not None and self.pool is None and not self.rx.posted:
            # The messages wait with the provider for receives that the program has not posted yet.
            self._cancel_wait = self.source.driver.call_later(_ANNOUNCED, self._no_more_stragglers)
        else:
            self.peer_gone()

    def shutdown(self) -> None:
        self._send_end()
        self._send_no_more()

    async def tell_end(self) -> bool:
        assert self.tx is not None
        await self.tx.drained()
        self._send_end()
        return bool(self.tx.room)  # a program that posts each receive may never post the next one

    def _send_end(self) -> None:
        if self.line is not None and self.tx is not None:
            self.line.send(FrameKind.END, _COUNT.pack(self.tx.sent))

    def end_at_once(self) -> None:
        self.orderly = self.tx is not None and not self.tx.waiting

    def peer_gone(self) -> None:
        if self.gone is None and not self.closed and self.on_gone is not None:
            self.on_gone()
        super().peer_gone()

    # -- the end

    def _close_native(self) -> None:
        if not self.native_open:
            return
        self.native_open = False
        if self._cancel_wait is not None:
            self.source.interest -= 1
            if not self.source.driver.closed():
                self._cancel_wait()
        if self.line is not None:
            if self.orderly or self.end_heard:
                self._send_end()
            self.line.close()
        self.kept.clear()
        self.trunk.leave(self)

    def _end(self, error: Callable[[], BaseException]) -> None:
        if self.peer is not None:
            peer, self.peer = self.peer, None
            attic = self.trunk.handle.route_to(peer)
            for lane in (*self.routes, self.rx):
                lane.forsake(error, attic)
            self.trunk.part(peer)
        if self.pool is not None:
            self.pool.end(error)
        if self.remote_writes is not None:
            self.remote_writes.end(error)
        for parcel in self._early.values():
            parcel.pool.recycle(parcel)
        self._early.clear()
        self.pooled.relieve()
