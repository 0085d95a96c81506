"""MultiPool: a few large buffers, each of which takes many messages (FI_MULTI_RECV; man page: fi_msg).

The provider fills a buffer from the start. It gives the buffer back when the free room is smaller than the longest
message. One post serves hundreds of small messages, which lie side by side. A buffer is posted again when the provider
has given it back and every message in it was taken. One message that stays lent keeps its whole buffer.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...errors import NotSupportedError, check
from ...features import Quirk, quirks, require
from ...flags import Caps, EndpointType
from ...settings import EndpointSettings
from ..buffers import descriptors
from .inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cq.queue import Entry, ErrorEntry
    from ...cq.slots import Slot
    from ...info import Info
    from ..handle import EndpointHandle

__all__ = ["MultiPool", "check_multi_recv"]

_EAGAIN = constants.FI_EAGAIN
_AGAIN = 0.001  # seconds
_UNTOLD = 16384  # bytes; 2.x's tcp uses this for shared contexts (xnet.h), and neither reports nor changes it
_RECV = constants.FI_RECV
_MULTI_RECV = constants.FI_MULTI_RECV
_REMOTE_CQ_DATA = constants.FI_REMOTE_CQ_DATA


class _Slice:
    """One message at its place in a buffer."""

    __slots__ = ("data", "flags", "length", "slab", "source", "start", "tag")

    def __init__(self, slab: _Slab, entry: Entry) -> None:
        self.slab = slab
        _, self.flags, self.length, address, self.data, self.tag = entry[:6]
        self.source = entry[6] if len(entry) > 6 else None
        self.start = address - slab.pool.address

    @property
    def view(self) -> memoryview:
        return self.slab.pool.view[self.start : self.start + self.length]

    @property
    def contents(self) -> bytes:
        return bytes(self.view)


class _Slab:
    """One buffer with its slot; its slot stays registered with the source as long as the pool lives."""

    __slots__ = ("keep", "message", "pool", "posted", "slot", "taken")

    def __init__(self, pool: MultiPool, pins: Any, length: int, slot: Slot, descriptor: Any) -> None:
        self.pool = pool
        self.slot = slot
        self.posted = False
        self.taken = 0  # messages in it that were not recycled yet
        iov = ffi.new("struct iovec *", (pins, length))
        self.message = ffi.new("struct fi_msg *")
        found = descriptors([descriptor])
        self.message.msg_iov, self.message.desc, self.message.iov_count = iov, found, 1
        self.message.addr, self.message.context = constants.FI_ADDR_UNSPEC, slot.pointer
        self.keep = iov, found

    def complete(self, entry: Entry) -> None:
        pool = self.pool
        if entry[1] & _RECV:
            if pool.end_mark and not entry[2] and entry[1] & _REMOTE_CQ_DATA and entry[4] == pool.end_mark:
                pool.end_came()
            else:
                self.taken += 1
                pool.arrived(_Slice(self, entry))
        if entry[1] & _MULTI_RECV:
            self.given_back()

    def fail(self, entry: ErrorEntry) -> None:
        pool = self.pool
        if not (pool.handle.flushed(entry.errno) or pool.handle.closed):
            pool.hand_out(pool.handle.failure("fi_recvmsg", entry, pool.size, pool.handle.peer_name))
        if entry.flags & _MULTI_RECV or (entry.errno == constants.FI_ECANCELED and pool.connected):
            self.given_back_after_failure()

    def consumed(self) -> None:
        """A peer's write used some room; the provider reports separately when the buffer is full."""

    def given_back_after_failure(self) -> None:
        """The provider reports it a second time soon (rxm), when the buffer must not be posted again."""
        if self.posted:
            self.posted = False
            self.pool.posted -= 1
            self.pool.handle.source.driver.call_later(_AGAIN, partial(self.pool.renew, self))

    def given_back(self) -> None:
        if self.posted:
            self.posted = False
            self.pool.posted -= 1
        self.pool.renew(self)


class MultiPool(Inbox):
    """``count`` buffers of ``room`` bytes each, for messages of up to ``size`` bytes."""

    end_mark = 0  # as `PoolCore.end_mark`
    one_message_each = False

    def __init__(self, handle: EndpointHandle, size: int, count: int, room: int) -> None:
        super().__init__(handle, size, count)
        if room < 2 * size:
            raise ValueError(f"a multi-receive buffer of {room} bytes is too small for messages of {size} bytes")
        least = self._least_room(handle)
        if least < size:
            detail = (
                f"The provider {handle.info.fabric_attr.prov_name} gives a buffer back when it has less than {least} "
                f"bytes left, so messages of {size} bytes may not fit: recv_size is at most {least} here"
            )
            raise _unsupported(detail)
        self.connected = handle.info.ep_attr.type == EndpointType.MSG
        memory = mmap.mmap(-1, room * count)
        self.view = memoryview(memory)
        self._pins = ffi.from_buffer("char[]", memory, require_writable=True)
        self.address = int(ffi.cast("uintptr_t", self._pins))
        descriptor = handle.register_own(self._pins)
        slots = handle.source.slots
        self._slabs = [_Slab(self, self._pins + at * room, room, slots.acquire(), descriptor) for at in range(count)]
        try:
            for slab in self._slabs:
                self.renew(slab)
        except BaseException:
            handle.pool = self  # as in `Pool`
            raise

    @staticmethod
    def prepare(handle: EndpointHandle, size: int) -> None:
        """Before fi_enable: tell the provider to return a buffer when it has less than ``size`` bytes left."""
        with suppress(NotSupportedError):
            EndpointSettings(handle, handle.info, enabled=False).min_multi_recv = size

    @staticmethod
    def _least_room(handle: EndpointHandle) -> int:
        """Bytes of free room below which the provider gives a buffer back."""
        try:
            return EndpointSettings(handle, handle.info).min_multi_recv
        except NotSupportedError:
            return _UNTOLD

    def renew(self, slab: _Slab) -> None:
        """Post a buffer that the provider has given back and whose messages were all taken."""
        handle = self.handle
        # A completion that the provider flushed may be read after fi_close: then no endpoint is left to post to.
        if slab.posted or slab.taken or self.ended is not None or not handle.native_open:
            return
        operations = handle.source.operations
        operations[slab.slot.address] = slab
        rc = lib.fi_recvmsg(handle.fid, slab.message, _MULTI_RECV)
        if rc:
            del operations[slab.slot.address]
            if rc != -_EAGAIN:
                check(rc, "fi_recvmsg", peer=handle.peer_name)
            handle.source.driver.call_later(_AGAIN, partial(self.renew, slab))
            return
        slab.posted = True
        self.posted += 1
        handle.source.touch()

    def arrived(self, item: _Slice) -> None:
        self.messages += 1
        self.bytes += item.length
        self.deliver(item)

    def recycle(self, buffer: _Slice) -> None:
        """The message was taken."""
        slab = buffer.slab
        slab.taken -= 1
        self.renew(slab)

    def end(self, error: Callable[[], BaseException]) -> None:
        """Like `Inbox.end`; the native endpoint is already closed."""
        source = self.handle.source
        slabs, self._slabs = self._slabs, []
        for slab in slabs:
            source.operations.pop(slab.slot.address)
            if slab.posted:
                source.slots.quarantine(slab.slot)
            else:
                source.slots.release(slab.slot)
            slab.posted = False
        self.posted = 0
        super().end(error)


def check_multi_recv(info: Info) -> None:
    """Raise NotSupportedError if the provider has no multi-receive buffers, or no safe ones."""
    require(Caps.MULTI_RECV, info)
    if Quirk.MULTI_RECV_OVERRUNS in quirks(info):
        detail = (
            f"The provider {info.fabric_attr.prov_name} would write past a buffer when a message is longer "
            "than what is left of it: leave multi_recv= out, then each message has a buffer of its own"
        )
        raise _unsupported(detail)


def _unsupported(detail: str) -> NotSupportedError:
    error = NotSupportedError(constants.FI_EOPNOTSUPP, "multi_recv", detail=detail)
    error.cure = ""  # other hints would not help
    return error
