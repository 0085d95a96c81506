"""RdmEndpoint and DatagramEndpoint: one endpoint, many peers (FI_EP_RDM, FI_EP_DGRAM; man page: fi_endpoint).

Each endpoint has its own completion queue. After fi_close of an rxm endpoint, fi_trywait on its queue reads freed
memory, and its pending operations are dropped without a completion. So the queue leaves the loop first, and the
endpoint closes. Then flushed completions are read without fi_trywait, and the other operations end with an error here.
The queue closes last.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..._ffi import constants, lib
from ...address_vector import AddressVector, Peer, context_bits
from ...cm.handshake import name_of
from ...cm.queue import EventQueue
from ...cm.workarounds.half_open_clients import defer_silent_clients
from ...cm.workarounds.provider_sockets import listening_sockets, open_descriptors
from ...cq.queue import CompletionQueue
from ...cq.reactor import Reactor
from ...errors import NotSupportedError, check, from_errno
from ...features import Quirk, quirks
from ...flags import AvType, Caps, EndpointType
from ..exclusions import exclude
from ..messages.prefix import prefix_of
from ..messages.send import Messages
from ..messages.truncation import DetectsTruncation
from ..opening.bindings import without_unsafe_flags
from ..opening.resolution import must_resolve
from ..opening.selection import find
from ..opening.shared_objects import acquire_domain, entries_of
from ..rma.atomic import Atomic
from ..rma.remote_writes import RemoteWrites
from ..rma.rma import Rma
from ..rma.triggered import Triggered
from ..tagged.peek import Peeks
from ..tagged.tagged import Tagged
from ..workarounds.rxm_segments import send_in_one_piece
from ..workarounds.shm_names import name_for, reserve_memory, sweep, take_over
from ..workarounds.shm_signals import handlers_stay
from . import shm_same_process
from .alias import Aliases
from .collective import Collective
from .handle import ConnectionlessHandle
from .local_port import open_at_new_port
from .multicast import Multicast

if TYPE_CHECKING:
    from ...address import Address
    from ...domain import Domain
    from ...info import Info
    from ..opening.options import EndpointOptions

__all__ = ["ConnectionlessEndpoint", "DatagramEndpoint", "RdmEndpoint"]


_CURES = {
    constants.FI_EINVAL: "rxm opens one queue with room for FI_UNIVERSE_SIZE peers (1,024 by default). If that is more "
    "than the device's max_cqe (ibv_devinfo -v), set FI_UNIVERSE_SIZE=64 in the environment",
    constants.FI_ENOMEM: "The shared receives of this endpoint lock 64 MiB: raise the limit (ulimit -l). Or set "
    "FI_OFI_RXM_USE_SRX=0 in the environment, and close no endpoint to which peers still send",
}
"""Cures for a refusal to enable rxm over verbs, by the code of the refusal."""


def _check_enabled(rc: int, info: Info) -> None:
    """Raise if fi_enable failed."""
    if -rc in _CURES and info.fabric_attr.prov_name == "verbs;ofi_rxm":
        error = from_errno(-rc, "fi_enable")
        error.cure = _CURES[-rc]
        raise error
    check(rc, "fi_enable")


class ConnectionlessEndpoint(Aliases, DetectsTruncation, Messages, Multicast):
    """An endpoint that exchanges messages with many peers. Opened by `open_endpoint`; one loop, one thread."""

    __slots__ = ("domain", "info", "local_address", "vector")
    _handle: ConnectionlessHandle

    def __init__(
        self,
        info: Info,
        domain: Domain | None,
        options: EndpointOptions,
        av_type: AvType = AvType.UNSPEC,
        vector: AddressVector | None = None,
    ) -> None:
        self.info = info = without_unsafe_flags(info)
        known = quirks(info)
        if vector is not None and Quirk.CLOSED_LOCAL_PEER_CRASHES in known:
            detail = f"Endpoints of {info.fabric_attr.prov_name} in one process need an address vector each"
            raise NotSupportedError(constants.FI_ENOSYS, "address_vector", detail=detail)
        cut_off = Quirk.TRUNCATES_SILENTLY in known and info.ep_attr.type == EndpointType.DGRAM and not prefix_of(info)
        if options.recv_size is not None and cut_off:
            options = replace(options, recv_size=max(options.recv_size, info.ep_attr.max_msg_size))
        shared = vector is not None
        reactor = Reactor.current()
        if Quirk.CLOSED_LOCAL_PEER_CRASHES in known:
            shm_same_process.check_room()
        with ExitStack() as opened:
            self.domain, release = acquire_domain(reactor, info, domain)
            opened.callback(release)
            if options.shared_receive is not None:
                vector = options.shared_receive._handle.vector_of(self.domain, vector, av_type, context_bits(info))
                shared = True
            if vector is None:
                vector = AddressVector(self.domain, type=av_type, rx_ctx_bits=context_bits(info))
                opened.callback(vector.close)
            self.vector = vector
            named = Caps.SOURCE in info.caps and Quirk.NAMES_NO_SOURCE not in known
            queue = opened.enter_context(CompletionQueue(self.domain, size=entries_of(info), source=named))
            source = reactor.attach(queue, waiting=options.waiting, busy_poll=options.busy_poll)
            opened.callback(source.close)
            before = open_descriptors()
            send_in_one_piece(info)
            with handlers_stay(info):
                open_native = partial(options.open_native, self.domain)
                needs_port = Quirk.NEW_OWNERS_ARE_IGNORED in known
                ep = open_at_new_port(open_native, info) if needs_port else open_native(info)
            handle = ConnectionlessHandle(
                self.vector,
                type(self).__name__,
                ep,
                self.domain._handle,
                info,
                source,
                cancel_grace=options.cancel_grace,
            )
            self._receive_by(handle)
            if Caps.SOURCE_ERR in info.caps:
                source.unmatched.introduce = self.vector.introduce
            if info.caps & (Caps.COLLECTIVE | Caps.MULTICAST):  # an event reports that a group was joined
                handle.events = opened.enter_context(EventQueue(self.domain.fabric, parent=self.domain._handle))
                source.attach_queue(handle.events)
            handle.on_release = opened.pop_all().close
        enabled = False
        try:
            if shared:
                handle.need(vector._handle)
            check(lib.fi_ep_bind(handle.fid, self.vector.native, 0), "fi_ep_bind")
            options.bind_queue(handle, queue.native)
            if handle.events is not None:
                check(lib.fi_ep_bind(handle.fid, handle.events.native, 0), "fi_ep_bind")
            name = self._take_name()
            options.apply(handle)
            _check_enabled(lib.fi_enable(handle.fid), info)
            enabled = True
            self.local_address = name or name_of(handle.fid, info, lib.fi_getname)
            reserve_memory(self.local_address)
            if Quirk.CLOSED_LOCAL_PEER_CRASHES in known:
                shm_same_process.enter(handle, self.local_address, queue)
            defer_silent_clients(handle.source, listening_sockets(before, self.local_address))  # sockets of rxm and tcp
            options.report_writes(handle)
            options.open_inbox(handle)
            exclude(self)
        except BaseException:
            if not enabled and Quirk.CLOSE_NEEDS_ENABLE in known:
                handle.native_open = not lib.fi_enable(handle.fid)  # one that cannot be enabled is leaked, not closed
            self.close()
            raise
        handle.open_for_use()

    def _take_name(self) -> Address | None:
        """Give the endpoint its name, before it is enabled; return it, or None where the provider alone makes names."""
        name = name_for(self.info)
        if name is not None:
            sweep()
            form = take_over(name).raw
            check(lib.fi_setname(self._handle.native, form, len(form)), "fi_setname")
        return name

    async def add_peer(self, address: Address | str | bytes, service: str | int | None = None) -> Peer:
        """Add an endpoint as a peer; return the existing peer if it was added before.

        Nothing is sent: if the provider needs a connection, the first transfer makes it.

        Args:
            address: its ``local_address``, the raw bytes of that, an FI_ADDR_STR text, or with ``service`` a host.
            service: port number or service name of ``address``.

        Raises:
            ValueError: the address has another format or length than the addresses of this domain.
            FabricError, NoProviderError: the provider refused it.
            NameResolutionError: the name does not resolve.

        Man page: fi_av (fi_av_insert).
        """
        self._handle.check_open()
        if service is not None:
            if self.local_address.family:  # names of shared memory endpoints may be known to the provider alone
                await must_resolve(str(address), service)
            info = await find(str(address), service, kind=self.info.ep_attr.type, domain=self.domain)
            if info.dest_addr is not None:
                address = info.dest_addr
        return self.vector.insert(address)

    def remove_peer(self, peer: Peer) -> None:
        """Remove a peer. Sends to it that still wait, and receives from it alone, end with ClosedResourceError.

        Man page: fi_av (fi_av_remove).
        """
        self._handle.check_open()
        self._handle.forget(peer)

    def _source_of(self, address: int | None) -> Peer | None:
        return self.vector.find(address)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state} at {self.local_address}>"


class RdmEndpoint(ConnectionlessEndpoint, Tagged, Peeks, RemoteWrites, Rma, Atomic, Collective, Triggered):
    """Reliable, connectionless: messages, tagged messages and RMA with any number of peers."""

    __slots__ = ()
    _handle: ConnectionlessHandle

    def _keep_number(self, number: int) -> None:
        self._handle.keep_numbers(number)

    def _release_number(self, number: int) -> None:
        self._handle.release_numbers(number)


class DatagramEndpoint(ConnectionlessEndpoint):
    """Unreliable, connectionless: datagrams of at most ``max_message_size`` bytes."""

    __slots__ = ()
