"""Receives: the next message, in every form, pooled or into the caller's memory (man page: fi_msg)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any, Self

from anyio import ClosedResourceError

from ..._core import Message, fast_recv
from ..._ffi import address_of, constants, ffi, lib
from ...cq.coroutines import coroutine_function
from ...cq.operation import State
from ...errors import FabricConnectionEndedError
from ...flags import Access
from ...memory import pin
from ...resource import Resource
from ..buffers import Pieces, contents, fill, lend, lend_all
from ..handle import Refill
from .inbox import truncated
from .loans import Loan
from .overflow import BEFORE, overflowed, roomy
from .undelivered import UndeliveredMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from ...bufferlike import Buffers
    from ...cq.operation import Operation
    from ...cq.submission import Transfer
    from ...regions import Held
    from ..handle import EndpointHandle
    from ..interfaces import InboxBase, ReceivedBuffer

__all__ = ["Message", "Receives"]

_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA


class Receives(Resource):
    """Receive. Mixed into whatever messages arrive at."""

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

        Pooled (the default): takes the next message out of the pool, one copy. Cancelling is safe: nothing is
        lost, the next call gets the message. Direct (``recv_size=None``): posts a fresh buffer of ``max_bytes``;
        cancelling asks the provider and waits at most ``cancel_grace``; a message that arrives all the same goes
        to the next receive.

        Args:
            max_bytes: room for the message; only for direct endpoints, and required there.

        Raises:
            FabricConnectionEndedError: the peer closed in order, and all its messages were handed out; ``async for``
                ends here.
            FabricConnectionResetError: the connection broke, and everything that arrived before was handed out.
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
        """The next message if one is there; None otherwise. Pooled endpoints only."""
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

        Direct endpoints post the caller's memory (no copy; any number outstanding); pooled ones copy once. The
        buffer is the provider's from the call until it returns; after a cancel it is the caller's again at once,
        unless the provider did not answer within ``cancel_grace``: then it stays pinned (`statistics`).

        Raises:
            BufferError: ``buffer`` is read-only or not contiguous.
            ValueError: more buffers than ``rx_attr.iov_limit``; or another receive that is under way has some of this
                memory.
            TruncatedMessageError: the message was longer than ``buffer``. A pooled message is kept and may be
                received again; of a direct one the rest is lost.
            FabricConnectionResetError: the peer is gone.

        Man page: fi_msg (fi_recv, fi_recvv).
        """
        handle = self._handle
        pool = handle.pool
        if pool is None:
            long_way = self._stash or handle.regions.busy or handle.landing
            posted = None if long_way else handle.rx.receive(buffer)
            if posted is not None:
                try:
                    if handle.rx.received(posted) or await handle.rx.arrives(posted, self._keeper(posted, buffer)):
                        return posted.length
                finally:
                    if handle.refills:  # a message that was left behind came too late for it
                        handle.refills.pop(posted, None)
            return await self._recv_into_direct(self._room(buffer), posted)
        pins = self._room(buffer)
        self._check_receivable()
        item: ReceivedBuffer = pool.take(len(pins)) or await self._landing(pool, pins)
        fill(pins, item.view, item.length)
        pool.recycle(item)
        return item.length

    async def _landing(self, pool: InboxBase, pins: Any) -> Any:
        """Wait for the message that goes into ``pins``, which no other waiting receive may have."""
        ranges = self._kept_apart(pins)
        waiting = self._handle.landing
        waiting.append(ranges)
        try:
            return await pool.next(len(pins))
        finally:
            waiting.remove(ranges)

    def _kept_apart(self, pins: Any) -> list[tuple[int, int]]:
        """Where ``pins`` begin and end, unless another receive that waits may write there as well."""
        pieces = pins.pins if isinstance(pins, Pieces) else [pins]
        ranges = [(start := address_of(piece), start + len(piece)) for piece in pieces]
        others = product(chain.from_iterable(self._handle.landing), ranges)
        for one, other in chain(others, combinations(ranges, 2)):
            if one[0] < other[1] and other[0] < one[1]:
                raise ValueError("a receive into overlapping memory is under way: each message needs memory of its own")
        return ranges

    @asynccontextmanager
    async def recv_view(self) -> AsyncIterator[memoryview]:
        """Receive the next message without a copy: lends the pool's memory until the block is left.

        The view is released at the end of the block. A slice that is kept keeps its buffer out of the pool, with a
        ResourceWarning. One lent buffer is one receive less for the provider; where all are lent, a receive warns.
        """
        self._check_receivable()
        pool = self._pool()
        loan = Loan(pool, pool.take() or await pool.next())
        try:
            yield loan.view
        finally:
            loan.end()

    def set_sink(
        self,
        on_message: Callable[[memoryview], object] | None,
        on_end: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Have each message handed to ``on_message`` from the reactor's turn, and the end to ``on_end``, once.

        For adapters that are built on callbacks. The view is valid during the call only. None takes the sink away;
        messages then queue in the pool again.

        Raises:
            TypeError: ``on_message`` or ``on_end`` is async: nobody would await what it returns.
        """
        for each in (on_message, on_end):
            if iscoroutinefunction(each):
                raise TypeError(f"set_sink() takes plain functions; nobody would await what {each!r} returns")
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
            if self._handle.closed or self._handle.ending:  # by the program itself, which knows
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
            raise TypeError("this endpoint has no pool (recv_size=None): say how many bytes, recv(max_bytes)")
        room = pin(bytearray(max_bytes), writable=True)
        message: Message = await self._receive(room, self._handle.any_message, private=True)
        return message

    async def _recv_into_direct(self, pins: Any, posted: Transfer | None) -> int:
        landing = self._handle.landing
        ranges: list[tuple[int, int]] = []
        try:
            if isinstance(pins, Pieces):  # the submission queue knows receives of one piece only
                apart = self._kept_apart(pins)
                for start, end in apart:
                    self._handle.rx.keep_apart(start, end - start)
                landing.append(apart)
                ranges = apart
            got = await self._receive(pins, self._handle.any_message, posted=posted)
        except BaseException:
            del pins  # as in `_receive`
            raise
        finally:
            if ranges:
                landing.remove(ranges)
        if isinstance(got, Message):
            fill(pins, got, len(got))
            return len(got)
        length: int = got.length
        return length

    async def _receive(
        self, pins: Any, where: tuple[int, ...], *, private: bool = False, posted: Transfer | None = None
    ) -> Any:
        """Receive into ``pins``: the settled transfer, or a message that an earlier, cancelled receive got.

        ``where`` is the source, and for tagged messages the tag and what of it to ignore. With ``private`` nobody
        else looks at ``pins``: a receive may be left behind there, and the answer is always the message. ``posted``
        is the receive, if there is one already.
        """
        handle = self._handle
        if handle.checkpoint is not None:
            try:
                await handle.checkpoint()
            except BaseException:
                del pins  # as below
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
                    if handle.refills:
                        handle.refills.pop(transfer, None)
            except Refill:
                if transfer.state is State.ABANDONED:
                    pins = pin(bytearray(len(pins)), writable=True)
                continue
            except BaseException:
                # The loop may keep the exception, and with it this frame, until the task's next step. The caller's
                # buffer shall not stay exported for as long.
                del pins, transfer
                raise
            if transfer.length > len(pins):
                raise overflowed(transfer.what, transfer.length, len(pins), self._source_of(transfer.source))
            # 1.17's shm matches what came before its receive by the mask of some earlier one (smr_match_tagged).
            if len(where) == 1 or not (transfer.tag ^ where[1]) & ~where[2]:
                return self._annotated(contents(pins, transfer.length), transfer) if private else transfer
            self._keep(pins, True, transfer)

    def _undelivered_for(self, pins: Any, where: tuple[int, ...]) -> Message | None:
        """What a cancelled receive got, if this one asks for it."""
        for undelivered in self._stash:
            if undelivered.fits(where):
                if len(undelivered.message) > len(pins):
                    raise truncated(len(undelivered.message), len(pins))
                self._stash.remove(undelivered)
                return undelivered.message
        return None

    def _post_receive(self, handle: EndpointHandle, pins: Any, where: tuple[int, ...]) -> Transfer:
        if isinstance(pins, Pieces):  # `_recv_into_direct` keeps them apart
            return self._post_receive_into(handle, pins, where)
        [(start, _)] = self._kept_apart(pins)
        handle.rx.keep_apart(start, len(pins))
        transfer = self._post_receive_into(handle, pins, where)
        transfer.memory, transfer.room = start, len(pins)
        return transfer

    def _post_receive_into(self, handle: EndpointHandle, pins: Any, where: tuple[int, ...]) -> Transfer:
        what = "fi_recv" if len(where) == 1 else "fi_trecv"
        held: Sequence[Held]
        pinned = pins
        if handle.overflow is not None:
            what += "v"
            iov, descriptors, count, held = roomy(handle, pins)
            pinned = pins, iov
            args = (handle.fid, iov, descriptors, count, *where)
        elif isinstance(pins, Pieces):
            what += "v"
            descriptors, held = lend_all(handle, pins.pins, Access.RECV)
            args = (handle.fid, pins.iov, descriptors, len(pins.pins), *where)
        else:
            descriptor, held = lend(handle, pins, Access.RECV) if handle.regions.busy else (ffi.NULL, ())
            args = (handle.fid, pins, len(pins), descriptor, *where)
        return handle.rx.submit(what, getattr(lib, what), args, pinned, len(pins), held)

    def _room(self, buffer: Any) -> Any:
        """Where a message is to go, pinned."""
        if type(buffer) is list or type(buffer) is tuple:
            most = self._handle.info.rx_attr.iov_limit
            return Pieces.room(buffer, min(most, BEFORE) if self._handle.overflow is not None else most)
        return pin(buffer, writable=True)

    def _keeper(self, posted: Transfer, buffer: Any) -> Callable[[Operation], object]:
        """What keeps the message of a receive that was posted in C, if its caller is cancelled."""
        return partial(self._keep_view, buffer if posted.pins is None else posted.pins, posted.tagged)

    def _keep_view(self, view: Any, tagged: bool, transfer: Operation) -> None:
        self._keep(pin(view), tagged, transfer)

    def _keep(self, pins: Any, tagged: bool, transfer: Operation) -> None:
        """A cancelled receive got a message all the same: keep a copy for the next one, unless it was cut off."""
        if transfer.length > len(pins):
            return
        message = self._annotated(contents(pins, transfer.length), transfer)
        undelivered = UndeliveredMessage(message, transfer.source, transfer.tag if tagged else None)
        self._stash.append(undelivered)
        self._handle.refill(undelivered)

    def _annotated(self, data: Any, transfer: Operation) -> Message:
        remote_data = transfer.data if transfer.flags & _REMOTE_CQ_DATA else None
        return Message(data, self._source_of(transfer.source), transfer.tag, remote_data)
