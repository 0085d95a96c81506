"""Listener: a passive endpoint with its own event queue, and the requests that arrive there (fi_cm)."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Self

from anyio import ClosedResourceError

from .._ffi import ffi, lib
from ..cq.reactor import Reactor
from ..errors import check
from ..features import Quirk, quirks
from ..info import Info
from ..resource import Handle, Resource
from ..settings import EndpointSettings
from ..workarounds import is_on
from .events import CONNREQ, Event, EventError
from .handshake import name_of
from .preface import Preface
from .requests import ConnectionRequest, ListenerStatistics, RequestQueue
from .reservation import Reservation
from .workarounds.half_open_clients import GuardedQueue, HalfOpenClients, out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..address import Address
    from ..fabric import Fabric
    from ..transport.connected.endpoint import MessageEndpoint
    from ..transport.opening.keywords import EndpointKeywords

__all__ = ["Listener", "PassiveHandle"]

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
        super().__init__(reservation.surrender(), fabric._handle, Reactor.current().attach(None), backlog)
        try:
            check(lib.fi_pep_bind(self.fid, self.events.native, 0), "fi_pep_bind")
            if Quirk.BLOCKING_HANDSHAKE in quirks(info) and is_on("half_open_clients"):
                self.events.half_open = HalfOpenClients(self, listening)
            check(lib.fi_listen(self.fid), "fi_listen", local=info.src_addr)
        except BaseException:
            self.close()
            raise
        self.events.handle_events_of(self.fid, self)
        self.source.accompany(self.events)
        self.source.starved = self._out_of_descriptors
        self.source.touch_events()

    def address(self) -> Address:
        return name_of(self.fid, self.info, lib.fi_getname)

    def refuse(self, request: ConnectionRequest, data: bytes) -> None:
        if not request.info.native.handle:  # it went with an endpoint (Quirk.CLOSE_ENDS_REQUEST)
            return
        if request.preface is not None:  # its sender tells by ours that somebody is here, also without data
            data = Preface().follow(data)
        buffer = ffi.from_buffer(data) if data else ffi.NULL
        check(lib.fi_reject(self.fid, request.info.native.handle, buffer, len(data)), "fi_reject")

    def event(self, event: Event) -> None:
        if event.kind != CONNREQ:
            return
        if not event.info.fabric_attr.prov_name:  # 1.17's sockets leaves out what fi_getinfo adds; fi_freeinfo frees it
            event.info.fabric_attr.prov_name = lib.strdup(self.info.fabric_attr.prov_name.encode())
        info = Info.from_native(event.info)
        watch = self.events.half_open
        descriptor = None if watch is None else watch.became_request(info.dest_addr)
        self.arrived(ConnectionRequest(self, info, event.param, info.dest_addr, descriptor))

    def event_error(self, error: EventError) -> None:
        pass  # a handshake that failed before it became a request; the listener goes on

    def _out_of_descriptors(self) -> bool:
        """Whether no connection can be accepted because the process has no descriptor left; clients wait meanwhile."""
        out = out_of_descriptors()
        if out and not self._warned:
            self._warned = True
            _log.warning(
                "the listener opened at %s accepts nobody, and clients wait: no file descriptor is left. Raise the "
                "limit on open files (ulimit -n), or close connections",
                self.opened_at,
            )
        return out

    def settle(self) -> None:
        """Take in what has happened, outside a turn."""
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
        """Take in the requests that have come and were not read: only a rejection ends them, a close forgets them."""
        waiters, self.waiters, self.screen = self.waiters, deque(), None
        while self.events.drain():
            pass
        self.waiters = waiters

    def release_native(self) -> None:
        # The queue right after its passive endpoint, and no read in between: a half-open client is freed with the
        # endpoint but stays in the queue's epoll set (xnet_pep.c, tcpx_conn_mgr.c).
        Handle.release(self)
        self.events.close()


class Listener(Resource):
    """Accepts connections; an async iterator of `ConnectionRequest`. Entered from `aiofabric.listen`.

    Closing it leaves the accepted endpoints alive.
    """

    __slots__ = ("_accept", "info")
    _handle: RequestQueue

    def __init__(
        self,
        handle: RequestQueue,
        info: Info,
        accept: Callable[[ConnectionRequest, bytes, EndpointKeywords], Awaitable[MessageEndpoint]],
    ) -> None:
        self.info = info
        self._accept = accept
        self._handle = handle

    @property
    def address(self) -> Address:
        """Where it listens; with port 0 asked for, ``address.port`` is the one that was chosen (fi_getname)."""
        self._handle.check_open()
        return self._handle.address()

    @property
    def fabric_address(self) -> Address:
        """The raw address of the endpoint that listens, in the provider's own format, for ``connect(..., raw=True)``.

        Where the provider has connections of its own it is ``address``. Elsewhere `address` is a port of the kernel's
        TCP, and this the address of a connectionless endpoint, which answers from the first time that it is asked for
        here; a provider that wakes nobody (shm) is then looked at all the time, some 200 times a second.

        Raises:
            FabricError: (FI_EADDRINUSE) another listener of this loop is found there: they share the endpoint. One with
                a ``domain=`` of its own has an address of its own.
            ClosedResourceError: the listener is closed.
        """
        self._handle.check_open()
        return self._handle.fabric_address()

    @property
    def settings(self) -> EndpointSettings:
        """Options of the passive endpoint, and the provider's own backlog (fi_getopt, fi_control)."""
        return EndpointSettings(self._handle, self.info)

    async def accept_request(self) -> ConnectionRequest:
        """The next connection request. Cancelling loses none.

        Raises:
            ClosedResourceError: the listener is closed.
        """
        handle = self._handle
        handle.check_open()
        driver = handle.source.driver
        if driver.checkpoint_if_cancelled is not None:
            await driver.checkpoint_if_cancelled()
        if handle.pending:
            await handle.source.breathe()
            handle.check_open()
        request = handle.pending.popleft() if handle.pending else await self._next()
        request._accept = self._accept
        return request

    async def _next(self) -> ConnectionRequest:
        handle = self._handle
        waiter = handle.source.driver.create_waiter()
        handle.waiters.append(waiter)
        try:
            request = await waiter
        except BaseException:
            if waiter.done():
                if waiter.result() is not None:
                    handle.put_back(waiter.result())
            elif waiter in handle.waiters:
                handle.waiters.remove(waiter)
            raise
        if request is None:
            raise ClosedResourceError("this listener was closed")
        result: ConnectionRequest = request
        return result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConnectionRequest:
        try:
            return await self.accept_request()
        except ClosedResourceError:
            raise StopAsyncIteration from None

    def statistics(self) -> ListenerStatistics:
        """Counters; see `ListenerStatistics`."""
        return ListenerStatistics(pending=len(self._handle.pending), **self._handle.counts)

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"at {self.address}"
        return f"<Listener {where}>"
