"""Receives: the next message, pooled or into the caller's memory (man page: fi_msg)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any, Self

from anyio import ClosedResourceError

from ..._core import Message, fast_recv
from ..._ffi import address_of, constants, ffi, lib
from ...cq.loops.coroutines import coroutine_function
from ...cq.operation import State
from ...errors import FabricConnectionEndedError
from ...flags import Access
from ...memory import pin
from ...resource import Resource
from ..buffers import Pieces, acquire_region, acquire_regions, contents, fill
from ..failures import Refill, removed
from .inbox import truncated
from .loans import Loan
from .overflow import BEFORE, overflowed, roomy
from .undelivered import UndeliveredMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from ...address_vector import Peer
    from ...bufferlike import Buffers
    from ...cq.operation import Operation
    from ...cq.submission import Transfer
    from ...regions import Registration
    from ..handle import EndpointHandle
    from ..interfaces import InboxBase, ReceivedBuffer

__all__ = ["Message", "Receives"]

_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA


class Receives(Resource):
    """Receive methods. Mixed into endpoints and shared receive contexts."""

    __slots__ = ("_stash",)
    _handle: EndpointHandle
    _stash: list[UndeliveredMessage]

    def _receive_by(self, handle: EndpointHandle) -> None:
        self._handle, self._stash = handle, []
        self._calls_go_by(handle.fast_path)

    @fast_recv
    @coroutine_function
    def recv(self, max_bytes: int | None = None) -> Coroutine[Any, Any, Message]:
        """Receive the next message.

        Pooled (the default): takes the next message out of the pool, with one copy. Cancelling is safe: no message is
        lost, the next call gets it. Direct (``recv_size=None``): posts a fresh buffer of ``max_bytes``. Cancelling then
        asks the provider to cancel, and waits at most ``cancel_grace`` seconds; a message that still arrives goes to
        the next receive.

        Args:
            max_bytes: bytes of the largest message to accept; only for direct endpoints, and required there.

        Raises:
            FabricConnectionEndedError: the peer closed in order, and all its messages were received; ``async for`` ends
                here.
            FabricConnectionResetError: the connection broke, and all messages that arrived before were received.
            TruncatedMessageError: the message was longer than the buffer.
            ClosedResourceError: the endpoint is closed.

        Man page: fi_msg (fi_recv).
        """
        handle = self._handle
        pool = handle.pool
        if pool is None or max_bytes is not None:
            return self._recv_direct(max_bytes)
        return pool.receiving(self, handle.thread_check)

    def recv_nowait(self) -> Message | None:
        """The next message if one has arrived; None otherwise. Pooled endpoints only."""
        self._check_receivable()
        pool = self._pool()
        if not pool.inbox:
            if pool.ended is not None:
                raise pool.ended()
            return None
        message: Message = pool.unpack(self, pool.first())
        return message

    async def recv_into(self, buffer: Buffers) -> int:
        """Receive the next message into ``buffer``, or into a list of buffers in turn; return its length in bytes.

        Direct endpoints post the caller's memory: no copy, and any number of receives may wait. Pooled endpoints copy
        once. The provider may write to the buffer until the call returns. After a cancel the buffer is free at once,
        unless the provider did not answer within ``cancel_grace`` seconds: then it stays pinned (`statistics`).

        Raises:
            BufferError: ``buffer`` is read-only or not contiguous.
            ValueError: more buffers than ``rx_attr.iov_limit``; or another receive that is waiting uses some of this
                memory.
            TruncatedMessageError: the message was longer than ``buffer``. A pooled message is kept and may be received
                again; the rest of a direct message is lost.
            FabricConnectionResetError: the peer is gone.

        Man page: fi_msg (fi_recv, fi_recvv).
        """
        handle = self._handle
        pool = handle.pool
        if pool is None:
            general_path = self._stash or handle.regions.busy or handle.receive_ranges
            posted = None if general_path else handle.rx.receive(buffer)
            if posted is not None:
                try:
                    if handle.rx.received(posted) or await handle.rx.arrives(posted, self._keeper(posted, buffer)):
                        return posted.length
                finally:
                    if handle.recalled:  # a kept message may have come too late for this receive
                        handle.recalled.pop(posted, None)
            return await self._recv_into_direct(self._room(buffer), posted)
        pins = self._room(buffer)
        self._check_receivable()
        item: ReceivedBuffer = pool.take(len(pins)) or await self._landing(pool, pins)
        fill(pins, item.view, item.length)
        pool.recycle(item)
        return item.length

    async def _landing(self, pool: InboxBase, pins: Any) -> Any:
        """Wait for the message that goes into ``pins``; no other waiting receive may use that memory."""
        ranges = self._kept_apart(pins)
        waiting = self._handle.receive_ranges
        waiting.append(ranges)
        try:
            return await pool.next(len(pins))
        finally:
            waiting.remove(ranges)

    def _kept_apart(self, pins: Any) -> list[tuple[int, int]]:
        """Start and end of each buffer of ``pins``; raises if another waiting receive may write there."""
        pieces = pins.pins if isinstance(pins, Pieces) else [pins]
        ranges = [(start := address_of(piece), start + len(piece)) for piece in pieces]
        others = product(chain.from_iterable(self._handle.receive_ranges), ranges)
        for one, other in chain(others, combinations(ranges, 2)):
            if one[0] < other[1] and other[0] < one[1]:
                raise ValueError("a receive into overlapping memory is under way: each message needs memory of its own")
        return ranges

    @asynccontextmanager
    async def recv_view(self) -> AsyncIterator[memoryview]:
        """Receive the next message without a copy: lends the pool's memory until the end of the block.

        The view is released at the end of the block. While the caller keeps a slice, its buffer does not return to the
        pool, and a ResourceWarning is emitted. Each lent buffer reduces the posted receives by one. If all buffers are
        lent, a receive that waits logs a warning.
        """
        self._check_receivable()
        pool = self._pool()
        loan = Loan(pool, pool.take() or await pool.next())
        try:
            yield loan.lent
        finally:
            loan.end_block()

    def set_sink(
        self,
        on_message: Callable[[memoryview], object] | None,
        on_end: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Pass each message to ``on_message`` from the reactor's progress pass, and the end to ``on_end``, once.

        For adapters that are built on callbacks. The view is valid during the call only. None removes the sink;
        messages then queue in the pool again.

        Raises:
            TypeError: ``on_message`` or ``on_end`` is no function; or it is async, and no task would await the
                coroutine it returns.
        """
        for name, each in (("on_message", on_message), ("on_end", on_end)):
            if each is not None and not callable(each):
                raise TypeError(f"{name} must be a function of one argument, or None, not {each!r}")
            if iscoroutinefunction(each):
                raise TypeError(f"set_sink() takes plain functions; no task would await the coroutine of {each!r}")
        self._handle.check_open()
        self._pool().set_sink(on_message, on_end)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv()
        except FabricConnectionEndedError:
            raise StopAsyncIteration from None
        except ClosedResourceError:
            if self._handle.closed or self._handle.ending:  # closed by the program itself
                raise StopAsyncIteration from None
            raise

    def _source_of(self, address: int | None) -> Any:
        route = self._handle.tx
        return None if route is None else route.name

    def _pool(self) -> Any:
        if self._handle.pool is None:
            raise TypeError("this endpoint was opened with recv_size=None and has no pool; use recv_into(buffer)")
        return self._handle.pool

    def _check_receivable(self) -> None:
        handle = self._handle
        if not handle.thread_check.admits():
            handle.check_open()
            if handle.gone is None:
                raise handle.refuse("fi_recv")

    # -- direct receives

    async def _recv_direct(self, max_bytes: int | None) -> Message:
        if self._handle.pool is not None:
            raise TypeError("max_bytes is for endpoints opened with recv_size=None; this one has a pool")
        if max_bytes is None:
            raise TypeError(
                "this endpoint has no pool (recv_size=None): pass the size of the largest message, recv(max_bytes)"
            )
        room = pin(bytearray(max_bytes), writable=True)
        message: Message = await self._receive(room, self._handle.any_message, private=True)
        return message

    async def _recv_into_direct(self, pins: Any, posted: Transfer | None) -> int:
        receive_ranges = self._handle.receive_ranges
        ranges: list[tuple[int, int]] = []
        try:
            if isinstance(pins, Pieces):  # the submission queue posts receives of one piece only
                apart = self._kept_apart(pins)
                for start, end in apart:
                    self._handle.rx.keep_apart(start, end - start)
                receive_ranges.append(apart)
                ranges = apart
            got = await self._receive(pins, self._handle.any_message, posted=posted)
        except BaseException:
            del pins  # as in `_receive`
            raise
        finally:
            if ranges:
                receive_ranges.remove(ranges)
        if isinstance(got, Message):
            fill(pins, got, len(got))
            return len(got)
        length: int = got.length
        return length

    async def _receive(
        self,
        pins: Any,
        where: tuple[int, ...],
        *,
        source: Peer | None = None,
        private: bool = False,
        posted: Transfer | None = None,
    ) -> Any:
        """Receive into ``pins``: the completed transfer, or a message that an earlier, cancelled receive got.

        ``where`` is the number of ``source``, and for tagged messages also the tag and the bits of it to ignore. The
        peer may be removed before the receive is posted, or posted again. ``private``: the
        caller of the endpoint does not see ``pins``, so a receive may be left posted there, and the result is always
        the message. ``posted`` is the receive, if it was already posted.
        """
        handle = self._handle
        if handle.checkpoint is not None:
            try:
                await handle.checkpoint()
            except BaseException:
                del pins  # for the same reason as below
                raise
        while True:
            has_polled = posted is not None
            if posted is not None:
                transfer, posted = posted, None
            else:
                self._check_receivable()
                if self._stash and (kept := self._undelivered_for(pins, where)) is not None:
                    return kept
                if handle.gone is not None:
                    raise handle.gone()
                if source is not None and source.vector is None:
                    raise removed(source)
                transfer = self._post_receive(handle, pins, where)
            transfer.orphaned = partial(self._keep, pins, len(where) > 1)
            if private:
                handle.private[transfer] = None
            try:
                try:
                    if has_polled or handle.rx.finished(transfer) is None:
                        await handle.rx.outcome(transfer)
                finally:
                    if private:
                        handle.private.pop(transfer, None)
                    if handle.recalled:
                        handle.recalled.pop(transfer, None)
            except Refill:
                if transfer.state is State.ABANDONED:
                    pins = pin(bytearray(len(pins)), writable=True)
                continue
            except BaseException:
                # The loop may keep the exception, and with it this frame, until the task's next step. Without the del,
                # the caller's buffer would stay exported until then.
                del pins, transfer
                raise
            if transfer.length > len(pins):
                raise overflowed(transfer.what, transfer.length, len(pins), self._source_of(transfer.source))
            # 1.17's shm matches a message that came before its receive by the mask of an earlier receive
            # (smr_match_tagged).
            if len(where) == 1 or not (transfer.tag ^ where[1]) & ~where[2]:
                return self._annotated(contents(pins, transfer.length), transfer) if private else transfer
            self._keep(pins, True, transfer)

    def _undelivered_for(self, pins: Any, where: tuple[int, ...]) -> Message | None:
        """A message that a cancelled receive got, if this receive asks for it."""
        for undelivered in self._stash:
            if undelivered.fits(where):
                if len(undelivered.message) > len(pins):
                    raise truncated(len(undelivered.message), len(pins))
                self._stash.remove(undelivered)
                return undelivered.message
        return None

    def _post_receive(self, handle: EndpointHandle, pins: Any, where: tuple[int, ...]) -> Transfer:
        if isinstance(pins, Pieces):  # `_recv_into_direct` has checked them for overlap
            return self._post_receive_into(handle, pins, where)
        [(start, _)] = self._kept_apart(pins)
        handle.rx.keep_apart(start, len(pins))
        transfer = self._post_receive_into(handle, pins, where)
        transfer.memory, transfer.room = start, len(pins)
        return transfer

    def _post_receive_into(self, handle: EndpointHandle, pins: Any, where: tuple[int, ...]) -> Transfer:
        what = "fi_recv" if len(where) == 1 else "fi_trecv"
        registrations: Sequence[Registration]
        pinned = pins
        if handle.overflow is not None:
            what += "v"
            iov, descriptors, count, registrations = roomy(handle, pins)
            pinned = pins, iov
            args = (handle.fid, iov, descriptors, count, *where)
        elif isinstance(pins, Pieces):
            what += "v"
            descriptors, registrations = acquire_regions(handle, pins.pins, Access.RECV)
            args = (handle.fid, pins.iov, descriptors, len(pins.pins), *where)
        else:
            descriptor, registrations = (
                acquire_region(handle, pins, Access.RECV) if handle.regions.busy else (ffi.NULL, ())
            )
            args = (handle.fid, pins, len(pins), descriptor, *where)
        return handle.rx.submit(what, getattr(lib, what), args, pinned, len(pins), registrations)

    def _room(self, buffer: Any) -> Any:
        """The pinned buffers that a message is received into."""
        if type(buffer) is list or type(buffer) is tuple:
            most = self._handle.info.rx_attr.iov_limit
            return Pieces.room(buffer, min(most, BEFORE) if self._handle.overflow is not None else most)
        return pin(buffer, writable=True)

    def _keeper(self, posted: Transfer, buffer: Any) -> Callable[[Operation], object]:
        """A function that keeps the message of a receive posted in C, if its caller is cancelled."""
        return partial(self._keep_view, buffer if posted.pins is None else posted.pins, posted.tagged)

    def _keep_view(self, view: Any, tagged: bool, transfer: Operation) -> None:
        self._keep(pin(view), tagged, transfer)

    def _keep(self, pins: Any, tagged: bool, transfer: Operation) -> None:
        """A cancelled receive still got a message: keep a copy for the next receive, unless it was truncated."""
        if transfer.length > len(pins):
            return
        message = self._annotated(contents(pins, transfer.length), transfer)
        undelivered = UndeliveredMessage(message, transfer.source, transfer.tag if tagged else None)
        self._stash.append(undelivered)
        self._handle.refill(undelivered)

    def _annotated(self, data: Any, transfer: Operation) -> Message:
        remote_data = transfer.data if transfer.flags & _REMOTE_CQ_DATA else None
        return Message(data, self._source_of(transfer.source), transfer.tag, remote_data)
