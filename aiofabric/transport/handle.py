"""EndpointHandle: the internal object for an endpoint. The reactor and the parents refer to it, also after the program
has dropped its own object.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from anyio import ClosedResourceError

from .._core import FastPath, ThreadCheck
from .._ffi import address_of, constants, ffi, lib
from ..cq.loops.forgotten import close_soon
from ..cq.submission import SubmissionQueue, Transfer, most_posted
from ..errors import FabricError
from ..features import Quirk, quirks
from ..flags import Access, Caps, Mode, OpFlags
from ..observe import ended
from .buffers import acquire_region
from .failures import Failures, Refill
from .lingering.reads import after_reads, has_reads, linger
from .orderly_end import OrderlyEnd
from .peer_access import RegionMemory, poll_again
from .tags import TagFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..address_vector import Peer
    from ..cq.loops.drivers import Waiter
    from ..cq.source.source import Source
    from ..info import Info
    from ..regions import MemoryOwner, RegionHandle
    from .interfaces import InboxBase, RemoteWriteEvents
    from .route import Route

_log = logging.getLogger(__name__)

__all__ = ["EndpointHandle", "Refill"]


# Modes that `SubmissionCore.receive` does not support: bytes before the message, a second post, lists of pieces that
# stay.
_OF_EACH_RECEIVE = Mode.MSG_PREFIX | Mode.RX_CQ_DATA | Mode.ASYNC_IOV


# Completion levels that fi_inject does not give. TRANSMIT_COMPLETE counts only if the program asked for it: it is the
# default of the sockets provider.
_SINCE_DELIVERY = OpFlags.DELIVERY_COMPLETE | OpFlags.COMMIT_COMPLETE | OpFlags.MATCH_COMPLETE
_SINCE_TRANSMIT = OpFlags.TRANSMIT_COMPLETE | _SINCE_DELIVERY


class EndpointHandle(OrderlyEnd, Failures):
    """Submission queues, pool and end of one endpoint.

    ``thread_check`` admits the thread that may post now; while nothing may be posted, it admits none. ``tx`` is the
    route of a connected endpoint. If it is None, each send must name its peer.
    """

    __slots__ = (
        "checkpoint",
        "close_timeout",
        "closes_in_order",
        "cuts_off",
        "end_mark",
        "end_received",
        "ending",
        "exhausted",
        "fast_path",
        "gone",
        "gone_waiters",
        "kept",
        "lent_at",
        "loop_thread",
        "loss",
        "notes",
        "on_end",
        "on_release",
        "orphans",
        "overflow",
        "own",
        "pool",
        "private",
        "recalled",
        "receive_ranges",
        "remote_writes",
        "returned",
        "rx",
        "tag_bits",
        "tags",
        "tx",
    )  # fmt: skip

    serves_memory = True
    plain_receives: ClassVar[bool] = True
    """Whether the submission queue may post plain receives itself, instead of `Receives`."""

    def __init__(
        self,
        what: str,
        fid: Any,
        parent: MemoryOwner,
        info: Info,
        source: Source,
        *,
        cancel_grace: float,
    ) -> None:
        super().__init__(what, fid, parent)
        self.info = info
        self.known = quirks(info)
        self.regions = parent.regions
        self.source = source
        if Mode.RX_CQ_DATA in info.mode:
            source.unmatched.rx_cq_data = True
        self.thread_check = ThreadCheck()
        self.loop_thread = ThreadCheck()  # as long as its loop runs: also when the peer is gone
        self.loop_thread.thread = self.thread
        self.fast_path = FastPath(self.thread_check)
        self.inject_size = info.tx_attr.inject_size
        self.tx_flags = int(info.tx_attr.op_flags)  # of sends, reads and writes that name no flags themselves
        self.injects = self._may_inject(_SINCE_DELIVERY)  # whether small messages may be sent by fi_inject
        self.max_size = info.ep_attr.max_msg_size  # bytes that the provider transfers at once
        self.tags = TagFormat.of(info)
        self.tag_bits = self.tags.bits  # a copy for the code that checks every tag
        self.max_message = self.max_size  # bytes of a message; the peer's receives limit it, too
        self.tx: Route | None = None
        self.rx = SubmissionQueue(source, self, most_posted(info.rx_attr.size), receives=True, grace=cancel_grace)
        self.pool: InboxBase | None = None
        self.remote_writes: RemoteWriteEvents | None = None
        self.checkpoint = source.driver.checkpoint_if_cancelled  # None if an await needs no checkpoint (asyncio)
        # receives that aiofabric cancels itself, and the error that each ends with
        self.recalled: dict[Transfer, Callable[[], BaseException]] = {}
        self.notes: Callable[[], Iterable[str]] | None = None  # of the owner, for `debug`
        self.lent_at: dict[Any, str] = {}  # buffers lent to callers, and the line that got each
        # buffers that callers kept after the end of the `recv_view` block, and have now released
        self.returned: list[Any] = []
        self.exhausted = 0
        # Receives into memory that aiofabric allocated. A dictionary as a set: an empty one takes 150 bytes less.
        self.private: dict[Transfer, None] = {}
        # of closed aliases, while the provider holds operations for them, and of triggered operations
        self.orphans: list[SubmissionQueue] = []
        self.own: list[RegionHandle] = []  # registrations of receives that stay posted
        self.reaches_memory = Caps.RMA in info.caps  # sm2 would crash
        self.cuts_off = Quirk.TRUNCATES_SILENTLY in self.known
        self.overflow: tuple[Any, int] | None = None  # where the tail of a too long message is written: start, length
        self.gone: Callable[[], BaseException] | None = None  # the error of operations since the peer is gone
        self.loss = ""  # why the connection was lost, in words, if that is known
        self.on_release: Callable[[], None] | None = None
        # How a connection ends in order; see connected/closing.py.
        self.last_access: tuple[str, int] | None = None  # call and bytes of the last access to the peer's memory
        # memory that waiting pooled receives will fill: start, end
        self.receive_ranges: list[list[tuple[int, int]]] = []
        self.kept: list[RegionMemory] = []  # memory of closed regions that peers may still use; see peer_access.py
        self.closes_in_order = False  # the peer understands an end mark; close_timeout limits the wait for its end
        self.close_timeout = 0.0
        self.end_mark = 0  # the remote data that announces the end to the peer (cm/preface.py)
        self.ending = False  # the program closes the endpoint: no more posts and receives
        self.end_received = False  # the peer has ended the connection in order
        self.on_end: Callable[[], object] | None = None
        self.gone_waiters: tuple[Waiter, ...] = ()
        self.native_open = True  # false: the provider freed the endpoint, and no receive may be posted to it

    def on_loop_end(self, driver: object) -> None:
        if self.source.driver is driver:
            self.over = True
            self.thread_check.thread = self.loop_thread.thread = 0

    def on_fork(self) -> None:
        super().on_fork()
        self.thread_check.thread = self.loop_thread.thread = 0  # the child's main thread has the parent's thread id

    @property
    def owner(self) -> EndpointHandle:
        """The handle of the endpoint that the operations belong to; an alias has another one."""
        return self

    @property
    def submission_queues(self) -> tuple[SubmissionQueue, ...]:
        """All submission queues with operations of this handle."""
        return (*self.routes, self.rx, *self.orphans)

    @property
    def may_stay_readable(self) -> bool:
        """Whether a message may arrive while no receive is posted."""
        return self.thread_check.thread != 0 and not self.rx.posted and (self.pool is None or not self.pool.posted)

    @property
    def peer_name(self) -> object:
        """The peer of a connected endpoint, for error texts."""
        return None if self.tx is None else self.tx.name

    @property
    def routes(self) -> Iterable[Route]:
        """All routes of the endpoint."""
        return () if self.tx is None else (self.tx,)

    def route_to(self, peer: Peer | None) -> Route:
        """The route that a send names with ``to=``."""
        if peer is not None or self.tx is None:
            raise TypeError(f"a {self.what} sends only to its connected peer: omit to={peer!r}")
        return self.tx

    @property
    def any_message(self) -> tuple[int, ...]:
        """The arguments of a receive that takes the next message of any sender: a source, or a source and a tag."""
        return (constants.FI_ADDR_UNSPEC,)

    def receive_from(self, peer: Peer) -> int:
        """The fi_addr that a receive names with ``source=``."""
        raise TypeError(f"a {self.what} receives only from its connected peer: omit source={peer!r}")

    def open_for_use(self) -> None:
        """Allow posting. Operations posted before the connection exists crash the tcp provider."""
        self.thread_check.thread = self.thread
        if self.owner is self:
            self.source.wait_owners[self] = None
        is_shared = self.pool is not None and self.pool.is_shared
        any_tag = self.tag_bits == 64  # the submission queue checks no tags
        special = is_shared or self.cuts_off or self.info.mode & _OF_EACH_RECEIVE or not any_tag
        if self.plain_receives and not special:
            area, length = self.overflow or (ffi.NULL, 0)
            self.rx._receive_here(address_of(self.fid), self.thread_check, (address_of(area), length))
        if self.pool is not None and self.tx is not None:
            self.pool.peer = self.tx.name  # set once, not per message
        self.fast_path.open(
            self.tx if self.checkpoint is None else None,
            None if self.pool is None or self.pool.is_shared else self.pool,
        )

    def register_own(self, pins: Any) -> Any:
        """The descriptor of memory for receives that stay posted. It stays registered until the endpoint is closed."""
        descriptor, registrations = acquire_region(self, pins, Access.RECV)
        self.own += registrations
        return descriptor

    def refuse(self, call: str) -> BaseException:
        """The error if ``call`` may not be made now. The caller raises it: ``raise handle.refuse("fi_send")``."""
        self.check_open()
        if self.gone is not None:
            return self.gone()
        if self.ending:
            return ClosedResourceError(f"this {self.what} is being closed")
        return FabricError(constants.FI_EOPBADSTATE, call, detail="The endpoint is not connected yet")

    def check_usable(self, call: str) -> None:
        if not self.thread_check.admits():
            raise self.refuse(call)

    def cancel(self, context: Any) -> int:
        """fi_cancel: ask the provider to end the operation of this slot. Only -FI_ENOSYS means that it never will."""
        rc: int = lib.fi_cancel(self.native, context)
        return rc

    def lost_because(self, words: str) -> None:
        self.loss = self.loss or words

    def peer_gone(self) -> None:
        """The connection ended: deliver the messages that arrived, close the native endpoint, complete the rest with an
        error.

        The provider flushes most operations. Closing the native endpoint here ends the others, so no operation hangs.
        """
        if self._is_over():
            return
        self.source.drain()
        if self._is_over():  # the last message came, and called this
            return
        _log.debug("%s with %s: the peer is gone", self.what, self.peer_name)
        self.gone = self.lost_peer
        self.thread_check.thread = 0
        for alias in tuple(self.children):
            alias.close()
        after_reads(self, self._end_after_peer)

    def _is_over(self) -> bool:
        return self.gone is not None or self.closed

    def _end_after_peer(self) -> None:
        if not self.released:
            self._close_native()
            self._end(self.lost_peer)
            self.wake_gone_waiters()

    def _may_inject(self, refused: int) -> bool:
        return not self.tx_flags & refused and Quirk.INJECT_WAITS not in self.known

    def tx_flags_set(self, flags: int) -> None:
        """The program has chosen default flags for sends, reads and writes; fi_inject ignores them."""
        self.tx_flags = flags
        self.injects = self._may_inject(_SINCE_TRANSMIT)
        for route in self.routes:
            route.inject_size = self.inject_size if self.injects else -1
            route.max_size = self.longest

    def read_ended(self) -> BaseException | None:
        """A read has completed. Returns why its data must not be used, if the provider could not know it."""
        return None

    # -- peers that use memory of closed regions; see peer_access.py

    @property
    def messages_arrived(self) -> int:
        """Messages that have arrived, if this endpoint has receives of its own that count them; otherwise 0."""
        return 0 if self.pool is None or self.pool.is_shared else self.pool.messages

    @property
    def transmits_completed(self) -> int:
        """Operations of the connection that have completed: sends, reads and writes, without injected messages."""
        return 0 if self.tx is None else self.tx.completed

    @property
    def transmits_posted(self) -> int:
        """At most as many as were posted so far. If more than these have completed, one of them was posted later."""
        return 0 if self.tx is None else self.tx.completed + len(self.tx.posted)

    @property
    def socket(self) -> int:
        """The descriptor of the connection's own TCP socket; -1 if it is not known."""
        return -1 if self.tx is None else self.tx.socket

    def wait_until_quiet(self) -> None:
        """Release ``kept`` when no read and no write of a peer can use it any more."""
        poll_again(self)

    @property
    def longest(self) -> int:
        """Bytes of the longest message sent without flags of its own."""
        return min(self.max_message, self.inject_size) if self.tx_flags & constants.FI_INJECT else self.max_message

    def shut_down_native(self) -> None:
        after_reads(self, self._shut_down_now)

    def _shut_down_now(self) -> None:
        if self.native_open:
            lib.fi_shutdown(self.fid, 0)

    def limit_messages(self, size: int) -> None:
        """The peer takes messages of at most ``size`` bytes."""
        self.max_message = min(self.max_message, size)
        self.inject_size = min(self.inject_size, size)
        for route in self.routes:
            route.max_size = self.longest
            route.inject_size = min(route.inject_size, size)

    def end_came(self) -> None:
        """The peer has sent its end mark: it sends no more, and receives no more."""
        self.end_received = True
        # This runs during a read of the queue. A close here would leave the completions that the provider
        # flushes unread.
        self.source.driver.call_soon(self.peer_ended)

    def wake_gone_waiters(self) -> None:
        for waiter in self.gone_waiters:
            if not waiter.done() and not self.source.driver.closed():
                self.source.woke()
                waiter.set_result(None)
        self.gone_waiters = ()  # not before: Ctrl-C in the loop must leave the others for the next call

    def _leave(self) -> None:
        if not (self.released or self.lingers or self.children) and has_reads(self):
            linger(self)
        super()._leave()

    def close_now(self) -> None:
        """Close without waiting. The peer still gets the end mark, if possible."""
        if self.closes_in_order and self.live and self.thread_check.admits():
            self.end_at_once()
        self.close()

    def forgotten(self) -> None:
        """Close soon, from the loop: each endpoint has descriptors."""
        close_soon(self.source.driver, self._close_forgotten)

    def _close_forgotten(self) -> None:
        # The program may still use a child: an alias, a region, or an endpoint of a shared receive context. When the
        # last child has closed, this is called again.
        if not (self.closed or self.forked or self.over or self.children):
            self.close_now()

    def release(self) -> None:
        self.thread_check.thread = 0
        self._close_native()
        self._finish()
        self.wake_gone_waiters()

    def wait_failed(self, error: Callable[[], FabricError]) -> int:
        """The source cannot wait for its queue: raise the error in the tasks that wait for what peers send."""
        count = 0 if self.pool is None else self.pool.wait_failed(error)
        return count if self.remote_writes is None else count + self.remote_writes.wait_failed(error)

    def _finish(self) -> None:
        """Complete the remaining operations with an error, and release what was acquired."""
        self.source.wait_owners.pop(self, None)
        if self.pool is not None:
            ended.add(self.info.fabric_attr.prov_name, messages=self.pool.messages, bytes=self.pool.bytes)
        self._end(self.closed_error)
        self.fast_path.open(None, None)
        if self.pool is not None and not self.pool.is_shared:
            self.pool = self.pool.without_memory()
        if self.on_release is not None:
            release, self.on_release = self.on_release, None
            release()

    def _close_native(self) -> None:
        if not self.native_open:
            return
        self.native_open = False
        if self.tx is not None:
            self.tx.keep_socket(-1)
        super().release()
        self.kept.clear()
        for check in list(self.regions.waiting):
            check()
        if self.source.driver.closed():
            return  # no task can be woken
        # tcp flushes every operation with FI_ECANCELED. Slots read here are free again; the others are quarantined.
        while self._in_flight() and self.source.drain():
            pass
        self.source.touch()

    def _in_flight(self) -> bool:
        queues = (*self.routes, self.rx)
        return any(queue.posted for queue in queues) or (self.pool is not None and self.pool.posted > 0)

    def _end(self, error: Callable[[], BaseException]) -> None:
        for queue in self.submission_queues:
            queue.end(error)
        if self.pool is not None:
            self.pool.end(error)
        if self.remote_writes is not None:
            self.remote_writes.end(error)
        own, self.own = self.own, []
        for region in own:
            region.end_use()

    @property
    def native(self) -> Any:
        """The ``struct fid *``."""
        return ffi.cast("struct fid *", self.fid)
