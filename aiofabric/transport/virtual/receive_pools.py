"""The receives of a multiplexer: one pool per size, each for all connections that asked for that size."""

from __future__ import annotations

import logging
import mmap
from typing import TYPE_CHECKING, Any, Protocol

from ..._ffi import constants, ffi, lib
from ...errors import check
from .protocol import ID, MASK, NOBODY, POOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...cq.loops.drivers import Waiter
    from ...cq.queue import Entry, ErrorEntry
    from ...cq.source.source import Source
    from ..handle import EndpointHandle

__all__ = ["SharedBuffer", "ReceivePool"]

_log = logging.getLogger(__name__)

# 1.17's shm returns -FI_ENOMEM if its queue of receives is full.
_FULL = (-constants.FI_EAGAIN, -constants.FI_ENOMEM)
_AGAIN = 0.002  # seconds until receives that the provider had no room for are posted again
_COUNT_MOST = 512  # receives of one pool: above it, connections share them and waiting messages are copied out
_SPARE = 8  # receives of a pool in addition to the windows of its connections


class SharedBuffer:
    """One receive of a pool: posted, or filled and held by the connection that its message is for."""

    __slots__ = ("args", "data", "flags", "length", "memory", "pool", "posted", "slot", "source", "tag")

    def __init__(self, pool: ReceivePool, memory: memoryview, slot: Any, args: tuple[Any, ...]) -> None:
        self.pool = pool
        self.memory = memory
        self.slot = slot
        self.args = args
        self.posted = False
        self.length = self.flags = self.data = self.tag = 0
        self.source: int | None = None

    def complete(self, entry: Entry) -> None:
        self.flags = entry[1]
        self.length = entry[2]
        self.data = entry[4]
        self.tag = tag = entry[5]
        self.posted = False
        pool = self.pool
        pool.posted -= 1
        connection = pool.connections.get(tag & ID)
        if connection is None:
            if tag & ID == NOBODY:
                pool.multiplexer.notices.arrived(self.contents, tag)
            pool.recycle(self)  # the others are for a connection that has ended
        else:
            connection.arrived(self, tag)

    def fail(self, entry: ErrorEntry) -> None:
        """There is no message: it is longer than any connection's limit, its sender has died, or the receive was
        withdrawn, or flushed by the close.
        """
        pool = self.pool
        if self.posted:
            self.posted = False
            pool.posted -= 1
        if pool.multiplexer.closed:
            return
        source = pool.multiplexer.source
        self.slot = source.slots.replace(self, source.operations)
        self.args = (*self.args[:-1], self.slot.pointer)
        if pool.withdrawing is self:
            pool.withdrawn(self)
        else:
            pool.recycle(self)

    def consumed(self) -> None:
        """A peer's write used the receive up (FI_RX_CQ_DATA): it holds no message."""
        self.posted = False
        self.pool.posted -= 1
        self.pool.recycle(self)

    @property
    def view(self) -> memoryview:
        """The message, in the pool's memory."""
        return self.memory[: self.length]

    @property
    def contents(self) -> bytes:
        return bytes(self.view)


class Taker(Protocol):
    """The receiver of a pool's messages."""

    def arrived(self, buffer: SharedBuffer, tag: int, /) -> None: ...


class NoticeTaker(Protocol):
    """The receiver of messages that are for no connection."""

    def arrived(self, body: bytes, tag: int, /) -> None: ...


class PoolOwner(Protocol):
    """The parts of the multiplexer that a pool needs."""

    fid: Any
    receives: int
    source: Source
    strict: bool

    @property
    def closed(self) -> bool: ...
    @property
    def handle(self) -> EndpointHandle: ...
    @property
    def notices(self) -> NoticeTaker: ...
    def share_out(self, pool: ReceivePool, /) -> None: ...


class ReceivePool:
    """Receives of one size, shared by the connections that asked for it. Grows with their number."""

    def __init__(self, multiplexer: PoolOwner, number: int, size: int, connections: Mapping[int, Taker]) -> None:
        self.multiplexer = multiplexer
        self.number = number
        self.size = size
        self.connections = connections
        self.promised = 0  # messages that all connections together may hold
        self.count = 0
        self.posted = 0
        self._free: list[SharedBuffer] = []
        self._idle: list[SharedBuffer] = []  # withdrawn from the provider
        self._memory: list[mmap.mmap] = []  # memory that is not registered
        self.withdrawing: SharedBuffer | None = None
        self._waits = False  # a timer will post again
        self._waiters: list[Waiter] = []  # of new connections, while receives are refused
        self._buffers: list[SharedBuffer] = []
        self._most = min(_COUNT_MOST, multiplexer.receives)

    @property
    def scarce(self) -> bool:
        """Whether a message that no task waits for should be copied, to free its receive at once."""
        return self.count < self.promised and self.posted <= self.count // 4

    @property
    def wanted(self) -> int:
        """Receives that its connections may need at once, and some spare ones."""
        return self.promised + _SPARE

    def promise(self, credits: int) -> None:
        """Add the window of a new connection."""
        self.promised += credits
        if self.multiplexer.strict:
            self.multiplexer.share_out(self)
            return
        wanted = min(self.wanted, self._most)
        if wanted > self.count:
            self.grow(max(wanted - self.count, min(self.count, self._most - self.count)))

    def release_pages(self) -> None:
        """A connection has ended: after the last one, release the pages that messages were in."""
        if not self.promised and self.posted + len(self._free) + len(self._idle) == len(self._buffers):
            for memory in self._memory:
                memory.madvise(mmap.MADV_DONTNEED)

    def withdraw(self, most: int) -> int:
        """Cancel receives, because the provider has few for all pools; return by how many the count fell."""
        before = self.count
        for buffer in self._buffers:
            if before - self.count == most:
                break
            if buffer.posted:
                self.withdrawing = buffer
                try:
                    lib.fi_cancel(self.multiplexer.handle.native, buffer.slot.pointer)
                    self.multiplexer.source.drain()  # the cancel completes at once, unless a message has arrived
                finally:
                    self.withdrawing = None
        return before - self.count

    def withdrawn(self, buffer: SharedBuffer) -> None:
        self.count -= 1
        self._idle.append(buffer)

    def grow(self, count: int) -> None:
        """Add ``count`` receives."""
        self.count += count
        known = min(count, len(self._idle))
        self._free += [self._idle.pop() for _ in range(known)]
        if count > known:
            self._allocate(count - known)
        self.post()

    def _allocate(self, count: int) -> None:
        multiplexer = self.multiplexer
        memory = mmap.mmap(-1, self.size * count)
        view = memoryview(memory)
        pins = ffi.from_buffer("char[]", memory, require_writable=True)  # not from the view: see Pool
        descriptor = multiplexer.handle.register_own(pins)
        if descriptor == ffi.NULL:
            self._memory.append(memory)
        number = self.number << POOL
        for offset in range(0, self.size * count, self.size):
            slot = multiplexer.source.slots.acquire()
            where = (multiplexer.fid, pins + offset, self.size, descriptor, constants.FI_ADDR_UNSPEC)
            buffer = SharedBuffer(self, view[offset : offset + self.size], slot, (*where, number, MASK, slot.pointer))
            self._buffers.append(buffer)
            self._free.append(buffer)

    def post(self) -> None:
        """Post all free receives."""
        source = self.multiplexer.source
        free, receive = self._free, lib.fi_trecv
        while free:
            buffer = free.pop()
            source.operations[buffer.slot.address] = buffer
            buffer.posted = True  # before the call: after Ctrl-C in it, the provider has the receive
            self.posted += 1
            rc = receive(*buffer.args)
            if rc:
                buffer.posted = False
                self.posted -= 1
                del source.operations[buffer.slot.address]
                free.append(buffer)
                if rc not in _FULL:
                    check(rc, "fi_trecv")
                # a timer must post them later: without posted receives, no message arrives that would trigger the post
                elif not self._waits:
                    self._waits = True
                    source.driver.call_later(_AGAIN, self._post_again)
                break
        source.touch()

    def _post_again(self) -> None:
        self._waits = False
        try:
            if not self.multiplexer.closed:
                self.post()
        finally:
            if not self._waits:
                self._wake_waiters()

    def _wake_waiters(self) -> None:
        """No timer will post again: wake the connections that wait for it."""
        try:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
        except BaseException:  # Ctrl-C in the loop: nothing else would wake the others
            self.multiplexer.source.driver.call_later(_AGAIN, self._wake_waiters)
            raise
        self._waiters.clear()

    async def none_refused(self) -> None:
        """Wait until all receives of a new connection are posted, if the provider loses messages that come before."""
        if self._waits and self.multiplexer.strict:
            _log.info("a new connection waits: the provider has no room for its receives of %d bytes", self.size)
        while self._waits and self.multiplexer.strict:
            waiter = self.multiplexer.source.driver.create_waiter()
            self._waiters.append(waiter)
            await waiter

    def recycle(self, buffer: SharedBuffer) -> None:
        """The message was taken, or no connection takes it."""
        self._free.append(buffer)
        if (len(self._free) >= 8 or self.posted <= self.count // 2) and not self.multiplexer.closed:
            self.post()

    def end(self) -> None:
        """The endpoint is closed: posted receives do not complete any more."""
        source = self.multiplexer.source
        for buffer in self._buffers:
            source.operations.pop(buffer.slot.address)
            if buffer.posted:
                source.slots.quarantine(buffer.slot)
            else:
                source.slots.release(buffer.slot)
        self._buffers.clear()
        self._free.clear()
        self._idle.clear()
        self._memory.clear()
