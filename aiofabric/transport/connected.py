"""MessageEndpoint: a connected endpoint (FI_EP_MSG; man pages: fi_endpoint, fi_cm)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from .._ffi import constants, lib
from .._hot import quick_send
from ..cm.handshake import Handshake, Stage, name_of
from ..cm.pacing import never_paced
from ..cm.sockets import connected_socket, next_descriptor
from ..cq.reactor import Reactor
from ..errors import FabricConnectionError, check
from .atomic import Atomic
from .batch import SelectiveRoute
from .endpoint import Endpoint
from .handle import EndpointHandle
from .messages import Messages
from .remote_writes import RemoteWrites
from .rma import Rma
from .route import Route
from .shared import borrow_queues
from .triggered import Triggered

if TYPE_CHECKING:
    from ..address import Address
    from ..domain import Domain
    from ..info import Info
    from .options import EndpointOptions

_log = logging.getLogger(__name__)

__all__ = ["MessageEndpoint"]


class MessageEndpoint(Endpoint, Messages, RemoteWrites, Rma, Atomic, Triggered):
    """A connected endpoint: reliable, ordered messages and RMA. Made by `connect` and by accepting a request.

    One loop, one thread. Use it as ``async with``; closing settles everything that is in flight.
    """

    _stage: Stage
    __slots__ = ("_descriptor", "_handshake", "_stage", "domain", "info", "local_address", "param", "peer_address")

    def __init__(
        self,
        info: Info,
        domain: Domain | None,
        options: EndpointOptions,
        peer: Address | None,
        descriptor: int | None = None,
    ) -> None:
        reactor = Reactor.current()
        if options.shared_receive is not None:
            queues, give_back = options.shared_receive.queues, _keep
        else:
            queues, give_back = borrow_queues(
                reactor, info, domain, options.waiting, options.busy_poll, alone=bool(options.remote_writes)
            )
        try:
            if descriptor is None:  # or it belongs to a request, or to a reservation
                descriptor = next_descriptor()
            ep = options.open_native(queues.domain, info)
        except BaseException:
            give_back()
            raise
        self._descriptor = descriptor  # under which the kernel's socket beneath may be found
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
        handle.tx = (SelectiveRoute if options.selective else Route)(handle, constants.FI_ADDR_UNSPEC, peer)
        self._stage = self._handshake = Handshake(queues.source, queues.events, ep, peer)

        def released() -> None:
            handshake.end()
            give_back()

        handshake = self._handshake
        handshake.gone = handle.peer_gone
        handle.on_release = released
        try:
            options.bind_queue(handle, queues.queue.native)
            check(lib.fi_ep_bind(ep, queues.events.native, 0), "fi_ep_bind")
            options.apply(handle)
            check(lib.fi_enable(ep), "fi_enable")
            options.hear_of_writes(handle)
            options.open_inbox(handle)  # before the connection exists: no message can come before its receive
        except BaseException:
            self.close()
            raise

    send = quick_send(Messages.send)  # there is nobody else to name: mostly a message is all that it takes

    async def _connect(self, param: bytes) -> None:
        try:
            await self._handshake.connect(self.info.native.dest_addr, param)
            self._established()
        except BaseException:
            self.close()
            raise

    async def _accept(self, param: bytes) -> None:
        try:
            await self._handshake.accept(param)
            inbox = self._handle.pool
            if self._handle.gone is not None and not (inbox and inbox.messages):  # who came to say a word is heard
                raise self._handshake.aborted("fi_accept")
            self._established()
        except BaseException:
            self.close()
            raise

    def _established(self) -> None:
        handle = self._handle
        self.param = self._handshake.param
        self.local_address, self.peer_address = self.info.src_addr, self._handshake.peer
        if handle.gone is None:
            self.local_address = name_of(handle.fid, self.info, lib.fi_getname)
            with suppress(FabricConnectionError):  # the peer may leave between any two calls
                self.peer_address = name_of(handle.fid, self.info, lib.fi_getpeer)
            assert handle.tx is not None
            handle.tx.name = self._handshake.peer = self.peer_address
            handle.open_for_use()
            with connected_socket(self._descriptor, self.local_address, self.peer_address) as sock:
                if sock is not None:
                    never_paced(sock)
                    handle.tx.keep_socket(sock.fileno())
        _log.debug("MessageEndpoint with %s: %s", self.peer_address, self.state)
        self.info.trim()  # thousands of connections, each with an info of its own

    @property
    def state(self) -> str:
        """``open``, ``connecting``, ``connected``, ``peer gone`` or ``closed``."""
        return self._stage.state.value

    async def shutdown(self) -> None:
        """End the connection in order: wait until everything posted is with the provider, then tell the peer.

        What is pending afterwards, on both sides, ends with FabricConnectionResetError. Close it all the same.

        Man page: fi_cm (fi_shutdown).
        """
        handle = self._handle
        handle.check_usable("fi_shutdown")
        await handle.route_to(None).drained()
        handle.check_open()  # closed by another task meanwhile
        if handle.gone is None:
            handle.shutdown()
            handle.source.touch_events()

    def abort(self) -> None:
        """Close at once, without waiting for anything; as `close`."""
        self.close()

    def __repr__(self) -> str:
        return f"<MessageEndpoint {self.state} with {self._handle.peer_name}>"


def _keep() -> None:
    """A shared receive context's queues are closed with it."""
