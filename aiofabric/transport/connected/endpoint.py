"""MessageEndpoint: a connected endpoint (FI_EP_MSG; man pages: fi_endpoint, fi_cm)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..._core import fast_send
from ..._ffi import constants, lib
from ...cm.handshake import Handshake, Stage, check_param, data_limit, name_of
from ...cm.preface import Preface, new_end_mark
from ...cm.workarounds.keepalive import agree, notice_silence, unwatched
from ...cm.workarounds.pacing import never_paced
from ...cm.workarounds.provider_sockets import connected_socket, descriptor_of, next_descriptor
from ...cm.workarounds.traffic_class import mark
from ...cq.reactor import Reactor
from ...errors import FabricConnectionError, check
from ...features import Quirk
from ...flags import Caps, Mode
from ...workarounds import is_on
from ..connectionless.alias import Aliases
from ..exclusions import exclude, lacking
from ..handle import EndpointHandle
from ..messages.batch import SelectiveRoute
from ..messages.send import Messages
from ..opening.bindings import without_unsafe_flags
from ..opening.shared_objects import acquire_queues
from ..rma.atomic import Atomic
from ..rma.remote_writes import RemoteWrites
from ..rma.rma import Rma
from ..rma.triggered import Triggered
from ..route import Route
from .closing import close_in_order
from .heartbeat import Heartbeat

if TYPE_CHECKING:
    from ...address import Address
    from ...cm.workarounds.borrowed_socket import BorrowedSocket
    from ...domain import Domain
    from ...info import Info
    from ..opening.options import EndpointOptions

_log = logging.getLogger(__name__)

__all__ = ["MessageEndpoint"]

# Seconds. The kernel sends a request over a device 16 times, with 4 seconds in between, and then reports a failure. A
# Soft RoCE device that had to send while its link was down answers no more, and reports nothing.
_ANSWER = 150.0


class Request(Protocol):
    """The part of a connection request that an endpoint takes over."""

    _fid: Any


class MessageEndpoint(Aliases, Messages, RemoteWrites, Rma, Atomic, Triggered):
    """A connected endpoint: reliable, ordered messages and RMA. Made by `connect` and by accepting a request.

    One loop, one thread. Use it as ``async with``; closing ends all operations in flight.
    """

    _stage: Stage
    __slots__ = (
        "_descriptor",
        "_handshake",
        "_heartbeat",
        "_heartbeats",
        "_preface",
        "_stage",
        "domain",
        "info",
        "local_address",
        "param",
        "peer_address",
    )

    def __init__(
        self,
        info: Info,
        domain: Domain | None,
        options: EndpointOptions,
        peer: Address | None,
        descriptor: int | None = None,
        request: Request | None = None,
    ) -> None:
        info = without_unsafe_flags(info)
        reactor = Reactor.current()
        if options.shared_receive is not None:
            queues, release = options.shared_receive.queues, _keep
        else:
            queues, release = acquire_queues(
                reactor, info, domain, options.waiting, options.busy_poll, alone=bool(options.remote_writes)
            )
        try:
            if descriptor is None:  # otherwise it belongs to a request or a reservation
                descriptor = next_descriptor()
            ep = options.open_native(queues.domain, info, None if request is None else request._fid)
        except BaseException:
            release()
            raise
        self._descriptor = descriptor  # under which the connection's TCP socket may be found
        self.info = info
        self.domain: Domain = queues.domain
        handle = EndpointHandle(
            "MessageEndpoint",
            ep,
            queues.domain._handle,
            info,
            queues.source,
            cancel_grace=options.cancel_grace,
        )
        self._receive_by(handle)
        handle.close_timeout = options.close_timeout
        self._heartbeat = options.heartbeat
        handle.tx = (SelectiveRoute if options.selective else Route)(handle, constants.FI_ADDR_UNSPEC, peer)
        self._stage = self._handshake = handshake = Handshake(queues.source, queues.events, ep, peer)

        self._heartbeats = heartbeats = list[Heartbeat]()  # one at most, where no socket has keepalive

        def released() -> None:  # without a reference to this endpoint, which its program may forget
            for each in heartbeats:
                each.end()
            handshake.end()
            release()

        handshake.gone = handle.peer_gone
        if Quirk.DEVICE_ANSWERS in handle.known:

            def gone() -> None:
                handle.lost_because(handshake.loss)
                handle.peer_gone()

            handshake.gone, handshake.limit = gone, _ANSWER
        handle.on_end = self._handshake.peer_ended
        handle.on_release = released
        try:
            options.bind_queue(handle, queues.queue.native)
            check(lib.fi_ep_bind(ep, queues.events.native, 0), "fi_ep_bind")
            options.apply(handle)
            check(lib.fi_enable(ep), "fi_enable")
            options.report_writes(handle)
            options.open_inbox(handle)  # before the connection exists: every message finds a posted receive
            self._preface = self._introduce(options)
            exclude(self)
        except BaseException:
            self.close()
            if request is not None and Quirk.CLOSE_ENDS_REQUEST in handle.known:
                request._fid = None
            raise

    send = fast_send(Messages.send)  # a connected endpoint needs no to=, so most calls take the fast path

    def _introduce(self, options: EndpointOptions) -> Preface | None:
        """The preface that tells the peer about this side."""
        if not options.preface:
            return None
        pool, heartbeat = self._handle.pool, round(1000 * (options.heartbeat or 0))
        if pool is None:  # the program posts each receive
            return Preface(heartbeat)
        if pool.is_shared or Mode.MSG_PREFIX in self.info.mode:
            return Preface(heartbeat, pool.size)
        pool.end_mark = new_end_mark(self.info.domain_attr.cq_data_size)
        return Preface(heartbeat, pool.size, pool.end_mark)

    def _apply_preface(self, theirs: Preface | None) -> None:
        """Apply the peer's preface; None: it does not use aiofabric."""
        handle = self._handle
        handle.closes_in_order = True
        if theirs is None:
            return
        if not lacking(self.info, Caps.MSG, Caps.SEND):
            handle.end_mark = theirs.end_mark
        self._heartbeat = agree((self._heartbeat, theirs.heartbeat / 1000))
        if theirs.max_message:
            handle.limit_messages(theirs.max_message)

    async def _connect(self, param: bytes) -> None:
        try:
            limit = data_limit(self._handle.fid, self.info)
            data = check_param(param, limit)
            data = data if self._preface is None else self._preface.follow(data, limit)
            await self._handshake.connect(self.info.native.dest_addr, data)
            self.param, theirs = Preface.split(self._handshake.param)
            self._apply_preface(theirs)
            self._established()
        except BaseException:
            self.close()
            raise

    async def _accept(self, param: bytes, theirs: Preface | None) -> None:
        try:
            self.param = b""
            self._apply_preface(theirs)
            if theirs is not None and self._preface is not None:  # other peers get only the program's data
                param = self._preface.follow(param, data_limit(self._handle.fid, self.info))
            await self._handshake.accept(param)
            inbox = self._handle.pool
            arrived = self._handle.end_received or (
                inbox and inbox.messages
            )  # a message or an orderly end already came
            if self._handle.gone is not None and not arrived:
                raise self._handshake.aborted("fi_accept")
            self._established()
        except BaseException:
            self.close()
            raise

    def _established(self) -> None:
        handle = self._handle
        self.local_address, self.peer_address = self.info.src_addr, self._handshake.peer
        if handle.gone is None:
            self.local_address = name_of(handle.fid, self.info, lib.fi_getname)
            with suppress(FabricConnectionError):  # the peer may leave between any two calls
                self.peer_address = name_of(handle.fid, self.info, lib.fi_getpeer)
            assert handle.tx is not None
            handle.tx.name = self._handshake.peer = self.peer_address
            handle.open_for_use()
            if handle.end_received:  # the end mark came before FI_CONNECTED: 2.x's tcp may report messages first
                handle.end_came()
            if self.info.fabric_attr.prov_name == "tcp" and (said := descriptor_of(handle.native)) is not None:
                self._descriptor = said
            sock = connected_socket(self._descriptor, self.local_address, self.peer_address)
            wish = self._heartbeat if self._preface is None else self._preface.heartbeat
            if Quirk.DEVICE_ANSWERS in handle.known and handle.reaches_memory:
                if self._heartbeat is not None:
                    self._heartbeats.append(Heartbeat(handle, self._heartbeat, self._handshake.peer_ended))
            elif wish and (sock is None or not is_on("keepalive")):
                raise unwatched(self.info.fabric_attr.prov_name, self.peer_address)
            if sock is not None:
                self._adjust(sock, handle.tx)
        _log.debug("MessageEndpoint with %s: %s", self.peer_address, self.state)
        self.info.trim()  # saves memory: each of thousands of connections has its own info

    def _adjust(self, sock: BorrowedSocket, route: Route) -> None:
        """Set options of the connection's TCP socket; see the workarounds."""
        if is_on("pacing"):
            never_paced(sock)
        if self._heartbeat is not None and is_on("keepalive"):
            notice_silence(sock, self._heartbeat)
        if (dscp := self.info.tx_attr.tclass.dscp) is not None and is_on("traffic_class"):
            mark(sock, dscp)
        if is_on("coalescing"):
            route.keep_socket(sock.fileno())

    @property
    def state(self) -> str:
        """``open``, ``connecting``, ``connected``, ``peer gone`` or ``closed``."""
        return self._stage.state.value

    async def shutdown(self) -> None:
        """End the connection in order: wait until the provider has taken everything posted, then tell the peer.

        Operations that are pending afterwards, on both sides, end with FabricConnectionResetError. The endpoint still
        has to be closed; `aclose` includes this call.

        Man page: fi_cm (fi_shutdown).
        """
        handle = self._handle
        handle.check_usable("fi_shutdown")
        await handle.route_to(None).drained()
        handle.check_open()  # closed by another task meanwhile
        if handle.gone is None and not handle.ending:
            handle.shutdown()
            handle.source.touch_events()

    async def aclose(self) -> None:
        """Close in order: everything that was sent reaches the peer, and the peer's ``async for`` ends normally.

        Sends and receives are refused from now on, and pending receives end with ClosedResourceError. Messages that the
        peer still sends are dropped. The call returns when the peer has received everything and has ended too, or after
        ``close_timeout`` seconds (`EndpointOptions`). Cancelling closes at once.

        The call cannot wait for a peer that does not use aiofabric: it returns when the provider has taken the
        messages. They are lost if messages of that peer are still unread on this side.
        """
        handle = self._handle
        if handle.closes_in_order and handle.live and (handle.thread_check.admits() or handle.ending):
            try:
                await close_in_order(handle)
            finally:
                super().close()
        else:
            super().close()

    def close(self) -> None:
        """Close now, without waiting: messages that were sent may be lost. The peer still gets the end mark, if
        possible.

        Prefer `aclose`, or leaving ``async with``.
        """
        self._handle.close_now()

    def abort(self) -> None:
        """Close at once; the peer sees a broken connection (FabricConnectionResetError)."""
        super().close()

    def __repr__(self) -> str:
        return f"<MessageEndpoint {self.state} with {self._handle.peer_name}>"


def _keep() -> None:
    """Release nothing: the queues close with their shared receive context."""
