"""GroupHandle: a native group of collectives, from the join to the end of its last operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._ffi import ffi, lib
from ...cm.events import JOIN_COMPLETE, Event, EventError
from ...cq.submission import SubmissionQueue
from ...errors import FabricError, check, from_errno
from ...resource import Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...address_vector import Peer
    from ...cq.loops.drivers import Waiter
    from ...cq.submission import Transfer
    from .handle import ConnectionlessHandle

__all__ = ["GroupHandle"]

_MOST_AT_ONCE = 1  # otherwise, members could perform two operations in different orders


class _Submissions(SubmissionQueue):
    """The operations of one group."""

    __slots__ = ("group",)
    group: GroupHandle

    def retire(self, transfer: Transfer) -> None:
        super().retire(transfer)
        self.group.finished()


class GroupHandle(Handle):
    """Handle of a native group. It outlives its owner while an operation is in flight."""

    __slots__ = ("endpoint", "error", "events", "joining", "keys", "left", "numbers", "set", "submissions", "waiter")

    def __init__(self, endpoint: ConnectionlessHandle, members: Sequence[Peer]) -> None:
        assert endpoint.events is not None
        self.endpoint, self.events = endpoint, endpoint.events
        self.left = False  # closed by its owner while an operation was in flight
        self.joining = False
        self.error: FabricError | None = None
        self.waiter: Waiter | None = None
        self.keys: list[int] = []
        limit = _MOST_AT_ONCE
        self.submissions = _Submissions(endpoint.source, endpoint, limit, receives=False, grace=0.0, name="a group")
        self.submissions.group = self
        attr = ffi.new("struct fi_av_set_attr[2]")
        # An empty range: a set starts with the addresses that the vector held at its first set (ofi_av_set_create).
        attr[0].count, attr[0].start_addr, attr[0].end_addr, attr[0].stride = len(members), 1, 0, 1
        out = ffi.new("struct fid_av_set **")
        check(lib.fi_av_set(endpoint.vector._handle.fid, attr, out, ffi.NULL), "fi_av_set")
        self.set = out[0]
        # rxm crashes if an operation reaches a number that was removed (rxm_conn.c), so the vector keeps these.
        self.numbers = [member.native for member in members]
        endpoint.keep_numbers(*self.numbers)
        super().__init__("Group", ffi.NULL, endpoint.vector._handle)
        try:
            for number in self.numbers:
                check(lib.fi_av_set_insert(self.set, number), "fi_av_set_insert")
        except BaseException:
            self.close()
            raise

    def poll(self) -> int:
        """Return 0: nothing has changed. This object is only polled so that progress passes run; no descriptor signals
        the provider's work.
        """
        return 0

    async def join(self) -> None:
        """fi_join_collective, until FI_JOIN_COMPLETE."""
        endpoint, address, out = self.endpoint, ffi.new("fi_addr_t *"), ffi.new("struct fid_mc **")
        check(lib.fi_av_set_addr(self.set, address), "fi_av_set_addr")
        rc = lib.fi_join_collective(endpoint.fid, address[0], self.set, 0, out, ffi.NULL)
        check(rc, "fi_join_collective")
        self.fid, self.joining = out[0], True
        endpoint.source.polled[self] = None
        # By the manual, the event names the group; libfabric's own implementation names the set's address.
        for fid in (out[0], ffi.cast("void *", address[0])):
            self.keys.append(self.events.handle_events_of(fid, self))
        self.waiter = endpoint.source.driver.create_waiter()
        endpoint.source.touch_events()
        await self.waiter
        if self.error is not None:
            raise self.error

    def event(self, event: Event) -> None:
        if event.kind == JOIN_COMPLETE:
            self._joined()

    def event_error(self, error: EventError) -> None:
        self.error = from_errno(error.errno, "fi_join_collective", provider_text=error.text)
        self._joined()

    def wait_failed(self, error: FabricError) -> int:
        if self.waiter is None or self.waiter.done():
            return 0
        self.error = error  # the provider may still join
        self.waiter.set_result(None)
        return 1

    def _joined(self) -> None:
        self.joining = False
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        self.finished()

    @property
    def busy(self) -> bool:
        """Whether the provider still works for this group."""
        return self.joining or bool(self.submissions.posted or self.submissions.waiting)

    def finished(self) -> None:
        if not self.busy:
            self.endpoint.source.polled.pop(self, None)
            if self.left:
                self.close()

    def leave(self) -> None:
        """Close the group as soon as no operation is in flight."""
        self.left = True
        if not self.busy:
            self.close()

    def release(self) -> None:
        self.endpoint.source.polled.pop(self, None)
        self.submissions.end(self.endpoint.closed_error)  # the endpoint is closed, so no completion comes any more
        for key in self.keys:
            self.events.forget(key)
        if self.fid != ffi.NULL:
            super().release()
        check(lib.fi_close(ffi.cast("struct fid *", self.set)), "fi_close")
        self.endpoint.release_numbers(*self.numbers)
