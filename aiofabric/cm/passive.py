"""PassiveHandle: a passive endpoint that listens, with its own event queue (FI_EP_MSG; man page: fi_passive_ep)."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from .._ffi import constants, ffi, lib
from ..cq.reactor import Reactor
from ..errors import check, from_errno
from ..features import Quirk, quirks
from ..info import Info
from ..resource import Handle
from ..workarounds import is_on
from .events import CONNREQ, Event, EventError
from .handshake import DEVICE_REMOVED, data_limit, name_of
from .preface import Preface
from .requests import ConnectionRequest, RequestQueue
from .reservation import Reservation
from .workarounds.half_open_clients import GuardedQueue, HalfOpenClients, out_of_descriptors

if TYPE_CHECKING:
    from ..address import Address
    from ..errors import FabricError
    from ..fabric import Fabric

__all__ = ["PassiveHandle"]

_log = logging.getLogger(__name__)


class PassiveHandle(RequestQueue):
    """A passive endpoint (FI_EP_MSG) that listens, and its queue."""

    __slots__ = ("_warned", "events", "info")

    def __init__(self, info: Info, fabric: Fabric, backlog: int, reservation: Reservation | None = None) -> None:
        reservation = Reservation(info, fabric) if reservation is None else reservation
        self.info = info
        self._warned = False
        self.events = GuardedQueue(fabric)
        listening = reservation.sockets
        super().__init__(reservation.detach(), fabric._handle, Reactor.current().attach(None), backlog)
        try:
            check(lib.fi_pep_bind(self.fid, self.events.native, 0), "fi_pep_bind")
            if Quirk.BLOCKING_HANDSHAKE in quirks(info) and is_on("half_open_clients"):
                self.events.half_open = HalfOpenClients(self, listening)
            check(lib.fi_listen(self.fid), "fi_listen", local=info.src_addr)
            self.param_limit = data_limit(self.fid, info)
        except BaseException:
            self.close()
            raise
        self.events.handle_events_of(self.fid, self)
        self.source.attach_queue(self.events)
        self.source.delays.may_stay_readable = self._out_of_descriptors
        self.source.touch_events()

    def address(self) -> Address:
        return name_of(self.fid, self.info, lib.fi_getname)

    def refuse(self, request: ConnectionRequest, data: bytes) -> None:
        if not request._fid:  # the request ended with an endpoint (Quirk.CLOSE_ENDS_REQUEST)
            return
        if request.preface is not None:  # a preface shows that a listener answered
            data = Preface().follow(data, self.param_limit)
        buffer = ffi.from_buffer(data) if data else ffi.NULL
        check(lib.fi_reject(self.fid, request._fid, buffer, len(data)), "fi_reject")

    def event(self, event: Event) -> None:
        if event.kind != CONNREQ:
            return
        if not event.info.fabric_attr.prov_name:  # 1.17's sockets does not set the name; fi_freeinfo frees it
            event.info.fabric_attr.prov_name = lib.strdup(self.info.fabric_attr.prov_name.encode())
        fid, event.info.handle = event.info.handle, ffi.NULL
        info = Info.from_native(event.info)
        watch = self.events.half_open
        descriptor = None if watch is None else watch.became_request(info.dest_addr)
        self.arrived(ConnectionRequest(self, info, event.param, info.dest_addr, descriptor, fid))

    def event_error(self, error: EventError) -> None:
        """The listener goes on after a handshake that failed before it became a request, but not without a device."""
        if error.errno != constants.FI_ENODEV:
            return

        def lost() -> FabricError:
            failure = from_errno(constants.FI_ENODEV, "fi_listen", detail=DEVICE_REMOVED)
            failure.cure = "Close this listener, and listen again when the device is back"
            return failure

        self.lost = lost
        self.fail_waiters(lost())

    def wait_failed(self, error: FabricError) -> int:
        return self.fail_waiters(error)

    def _out_of_descriptors(self) -> bool:
        """Whether the process has no descriptor left to accept a connection; clients wait meanwhile."""
        out = out_of_descriptors()
        if out and not self._warned:
            self._warned = True
            _log.warning(
                "the listener opened at %s cannot accept connections: no file descriptor is left. Clients wait. "
                "Raise the limit on open files (ulimit -n), or close connections",
                self.opened_at,
            )
        return out

    def read_events(self) -> None:
        """Handle pending events outside a progress pass."""
        while not self.closed and self.events.drain():
            pass
        if not self.closed:
            self.source.touch_events()

    def release(self) -> None:
        self._gather()
        self.source.close()
        watch, self.events.half_open = self.events.half_open, None
        super().release()
        if watch is not None:
            watch.close()

    def _gather(self) -> None:
        """Read pending requests before the close: only a rejection ends them, a close of the endpoint does not."""
        waiters, self.waiters, self.screen = self.waiters, deque(), None
        while self.events.drain():
            pass
        self.waiters = waiters

    def release_native(self) -> None:
        # Close the queue right after its passive endpoint, without a read in between: a half-open client is freed with
        # the endpoint, but stays in the queue's epoll set (xnet_pep.c, tcpx_conn_mgr.c).
        Handle.release(self)
        self.events.close()
