"""RdmEndpoint and DatagramEndpoint: one endpoint, many peers (FI_EP_RDM, FI_EP_DGRAM; man page: fi_endpoint).

Each has its own completion queue: after fi_close of an rxm endpoint fi_trywait on its queue reads freed memory,
and its pending operations are dropped without a word. So the queue leaves the loop first, the endpoint closes,
what was flushed is read without fi_trywait, the rest is settled here, and the queue closes last.
"""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from ..._ffi import constants, lib
from ...address_vector import AddressVector, Peer, context_bits
from ...cm.handshake import name_of
from ...cm.queue import EventQueue
from ...cm.workarounds.half_open_clients import defer_silent_clients
from ...cm.workarounds.provider_sockets import listening_sockets, open_descriptors
from ...cq.queue import CompletionQueue
from ...cq.reactor import Reactor
from ...errors import NoProviderError, NotSupportedError, check
from ...features import Quirk, quirks, require
from ...flags import AvType, Caps, EndpointType
from ...info import Hints
from ..endpoint import Endpoint
from ..exclusions import exclude
from ..handle import EndpointHandle
from ..messages.overflow import spills
from ..messages.prefix import PrefixRoute, prefix_of
from ..messages.send import Messages
from ..messages.truncation import Whole
from ..opening.chosen import check_wishes
from ..opening.keywords import endpoint_options
from ..opening.selection import find, must_resolve
from ..opening.shared_objects import borrow_domain
from ..rma.atomic import Atomic
from ..rma.remote_writes import RemoteWrites
from ..rma.rma import Rma
from ..rma.triggered import Triggered
from ..route import Route
from ..tagged.peek import Peeks
from ..tagged.tagged import Tagged
from ..workarounds import shm_same_process as neighbours
from ..workarounds.shm_names import own_name, reserve_memory, sweep
from .collective import Collective
from .multicast import Multicast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from ...address import Address
    from ...domain import Domain
    from ...info import Info
    from ..opening.keywords import EndpointKeywords
    from ..opening.options import EndpointOptions

__all__ = ["DatagramEndpoint", "RdmEndpoint", "open_endpoint"]

_CAPS = {
    EndpointType.RDM: Caps.MSG | Caps.TAGGED | Caps.RMA | Caps.SOURCE | Caps.DIRECTED_RECV,
    EndpointType.DGRAM: Caps.MSG | Caps.SOURCE,
}


class ConnectionlessHandle(EndpointHandle):
    """An endpoint with its address vector, and a route for each peer that was sent to."""

    __slots__ = (
        "address", "by_peer", "carries_connections", "entered", "events", "groups", "leaving", "lingered", "met",
        "queue", "vector",
    )  # fmt: skip
    address: Address
    queue: CompletionQueue

    def __init__(self, vector: AddressVector, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.vector = vector
        vector.users.add(self)
        self.spills = spills(self)
        self.carries_connections = False  # each of which keeps memory for its own peer
        self.entered = False  # among the neighbours, and may be met
        self.lingered = False
        self.met: set[ConnectionlessHandle] = set()  # neighbours that have the address, or whose address is here
        self.by_peer: dict[Peer, Route] = {}
        self.events: EventQueue | None = None
        self.groups = 0  # joined so far
        self.leaving: list[Route] = []  # of forgotten peers, while the provider holds operations for them

    def wait_until_quiet(self) -> None:
        if self.carries_connections:
            self.kept.clear()

    @property
    def routes(self) -> Iterable[Route]:
        return self.by_peer.values()

    def route_to(self, peer: Peer | None) -> Route:
        route = self.by_peer.get(peer)  # type: ignore[arg-type]
        if route is None:
            if not isinstance(peer, Peer):
                raise TypeError(f"say which peer, to=peer, as add_peer() and Message.source give it, not {peer!r}")
            self.vector.check(peer)
            kind = PrefixRoute if prefix_of(self.info) else Route
            if neighbours.reads_ours(self, peer.address):
                kind = neighbours.NearRoute
            route = self.by_peer[peer] = kind(self, peer.native, peer.address)
            if Quirk.CLOSED_NEIGHBOUR_CRASHES in self.known and neighbours.is_closed(peer.address):
                route.close_off(partial(neighbours.closed, peer.address))
        return route

    def _disappear(self) -> None:
        """From now on nobody of this process may send here."""
        error = partial(neighbours.closed, self.address)
        for other in tuple(self.met):
            aliases = [each for each in other.children if isinstance(each, ConnectionlessHandle)]
            for peer, route in [pair for each in (other, *aliases) for pair in each.by_peer.items()]:
                if peer.address == self.address:
                    route.close_off(error)
                    if other.thread == self.thread and not other.source.driver.closed():  # others' loops come to it
                        route.turn_away(error)

    def _leave(self) -> None:
        if not self.entered:
            super()._leave()
            return
        self.gate.thread = 0
        self._disappear()
        self.lingered = neighbours.leave(self)
        if self.lingered:
            self.source.close()
            self._finish()
        super()._leave()
        neighbours.sweep()

    def forget(self, peer: Peer) -> None:
        """No more transfers with ``peer``; its number goes back to the provider after the last one."""
        self.vector.remove(peer)
        if Quirk.CLOSED_NEIGHBOUR_CRASHES in self.known:
            neighbours.sweep()

    def part(self, peer: Peer) -> None:
        route = self.by_peer.pop(peer, None)
        if route is not None:
            route.close_off(self.closed_error)  # who has it already, a batch, posts no more
            route.turn_away(self.closed_error)
            self.leaving.append(route)

    def numbers_in_use(self) -> set[int]:
        self.leaving = [lane for lane in self.leaving if lane.posted]
        return {lane.peer for lane in self.leaving}

    def receive_from(self, peer: Peer) -> int:
        require(Caps.DIRECTED_RECV, self.info)
        self.vector.check(peer)
        return peer.native

    def _end(self, error: Callable[[], BaseException]) -> None:
        super()._end(error)
        for lane in self.leaving:
            lane.end(error)

    def release(self) -> None:
        self.source.close()
        if self.lingered:
            self._close_native()
        else:
            super().release()


class ConnectionlessEndpoint(Endpoint, Whole, Messages, Multicast):
    """An endpoint that talks to many peers. Opened by `open_endpoint`; one loop, one thread."""

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
        self.info = info
        known = quirks(info)
        if vector is not None and Quirk.CLOSED_NEIGHBOUR_CRASHES in known:
            detail = f"Endpoints of {info.fabric_attr.prov_name} in one process need an address vector each"
            raise NotSupportedError(constants.FI_ENOSYS, "address_vector", detail=detail)
        cut_off = Quirk.TRUNCATES_SILENTLY in known and info.ep_attr.type == EndpointType.DGRAM and not prefix_of(info)
        if options.recv_size is not None and cut_off:
            options = replace(options, recv_size=max(options.recv_size, info.ep_attr.max_msg_size))
        shared = vector is not None
        reactor = Reactor.current()
        if Quirk.CLOSED_NEIGHBOUR_CRASHES in known:
            neighbours.check_room()
        with ExitStack() as opened:
            self.domain, give_back = borrow_domain(reactor, info, domain)
            opened.callback(give_back)
            if vector is None:
                vector = AddressVector(self.domain, type=av_type, rx_ctx_bits=context_bits(info))
                opened.callback(vector.close)
            self.vector = vector
            named = Caps.SOURCE in info.caps and Quirk.NAMES_NO_SOURCE not in known
            queue = opened.enter_context(CompletionQueue(self.domain, source=named))
            source = reactor.attach(queue, waiting=options.waiting, busy_poll=options.busy_poll)
            opened.callback(source.close)
            before = open_descriptors()
            ep = options.open_native(self.domain, info)
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
                source.introduce = self.vector.introduce
            if info.caps & (Caps.COLLECTIVE | Caps.MULTICAST):  # joining a group is told of by an event
                handle.events = opened.enter_context(EventQueue(self.domain.fabric, parent=self.domain._handle))
                source.accompany(handle.events)
            handle.on_release = opened.pop_all().close
        enabled = False
        try:
            if shared:
                handle.need(vector._handle)
            check(lib.fi_ep_bind(handle.fid, self.vector.native, 0), "fi_ep_bind")
            options.bind_queue(handle, queue.native)
            if handle.events is not None:
                check(lib.fi_ep_bind(handle.fid, handle.events.native, 0), "fi_ep_bind")
            self._take_name()
            options.apply(handle)
            check(lib.fi_enable(handle.fid), "fi_enable")
            enabled = True
            self.local_address = name_of(handle.fid, info, lib.fi_getname)
            reserve_memory(self.local_address)
            if Quirk.CLOSED_NEIGHBOUR_CRASHES in known:
                neighbours.enter(handle, self.local_address, queue)
            defer_silent_clients(handle.source, listening_sockets(before, self.local_address))  # of rxm and tcp
            options.hear_of_writes(handle)
            options.open_inbox(handle)
            exclude(self)
        except BaseException:
            if not enabled and Quirk.CLOSE_NEEDS_ENABLE in known:
                handle.native_open = not lib.fi_enable(handle.fid)  # one that cannot be enabled is not closed, but left
            self.close()
            raise
        handle.open_for_use()

    def _take_name(self) -> None:
        name = own_name(self.info)
        if name is not None:
            sweep()
            check(lib.fi_setname(self._handle.native, name.raw, len(name.raw)), "fi_setname")

    async def add_peer(self, address: Address | str | bytes, service: str | int | None = None) -> Peer:
        """Make an endpoint reachable; the peer that it already is, if it was added before.

        Nothing is sent: a connection, where the provider needs one, is made by the first transfer.

        Args:
            address: its ``local_address``, the raw bytes of that, an FI_ADDR_STR text, or with ``service`` a host.
            service: port number or service name of ``address``.

        Raises:
            ValueError: the address has another format or length than this domain's.
            FabricError, NoProviderError: the provider refused it.
            NameResolutionError: the name does not resolve.

        Man page: fi_av (fi_av_insert).
        """
        self._handle.check_open()
        if service is not None:
            if self.local_address.family:  # of shared memory a name may be known to the provider alone
                await must_resolve(str(address), service)
            info = await find(str(address), service, kind=self.info.ep_attr.type, domain=self.domain)
            if info.dest_addr is not None:
                address = info.dest_addr
        return self.vector.insert(address)

    def remove_peer(self, peer: Peer) -> None:
        """Forget a peer. What waits to be sent to it ends with ClosedResourceError.

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


class DatagramEndpoint(ConnectionlessEndpoint):
    """Unreliable, connectionless: datagrams of at most ``max_message_size`` bytes."""

    __slots__ = ()


@overload
def open_endpoint(
    type: Literal[EndpointType.RDM],
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AbstractAsyncContextManager[RdmEndpoint]: ...
@overload
def open_endpoint(
    type: Literal[EndpointType.DGRAM],
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AbstractAsyncContextManager[DatagramEndpoint]: ...
@overload
def open_endpoint(
    type: EndpointType,
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AbstractAsyncContextManager[Any]: ...
@asynccontextmanager
async def open_endpoint(
    type: EndpointType,
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    provider: str | None = None,
    domain: Domain | None = None,
    caps: Caps | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    av_type: AvType = AvType.UNSPEC,
    address_vector: AddressVector | None = None,
    **options: Unpack[EndpointKeywords],
) -> AsyncIterator[Any]:
    """Open a connectionless endpoint: ``async with open_endpoint(EndpointType.RDM) as ep``.

    Args:
        type: ``EndpointType.RDM`` gives an `RdmEndpoint`, ``EndpointType.DGRAM`` a `DatagramEndpoint`.
        node: the local address, where it has to be a certain one.
        service: the local port or service name.
        provider: by name; by default the first that has such endpoints.
        domain: open it on this domain instead of one that the loop's endpoints share.
        caps: what it must be capable of; by default what the domain was opened with, or all that aiofabric uses. Calls
            that they leave out raise `NotSupportedError`; ``Caps.SEND`` or ``Caps.RECV`` alone restrict messages.
        hints: further wishes (`Hints`).
        info: open it with this `Info` and no other; ``node`` and ``service`` change its local address.
        av_type: how the address vector numbers peers.
        address_vector: one of the domain that several endpoints share, instead of its own; not over shm and sm2.
        options: see `EndpointOptions`. ``recv_size`` is also the room of `RdmEndpoint.recv_tagged`.

    Leaving the block closes the endpoint; operations in flight end with ClosedResourceError.

    Raises:
        NoProviderError: no provider here has such endpoints, with these capabilities.
        NotSupportedError: they are of a kind that nobody has (FI_EP_SOCK_STREAM, FI_EP_SOCK_DGRAM).
        ValueError: provider, domain, hints, info and av_type contradict each other; the endpoint is to have
            capabilities that the domain was opened without.
        OSError: the local address is in use, or not this machine's.

    Man page: fi_endpoint.
    """
    if not isinstance(type, EndpointType):
        raise TypeError(f"open_endpoint() takes the type first, EndpointType.RDM or EndpointType.DGRAM, not {type!r}")
    try:
        kind = _KINDS[type]
    except KeyError:
        if type in (EndpointType.MSG, EndpointType.UNSPEC):
            raise ValueError(f"{type} endpoints have one peer: use connect() and listen()") from None
        await _refuse(type, provider, hints)
    chosen = endpoint_options("open_endpoint", options)
    check_wishes(provider, domain, hints, info)
    if address_vector is not None:
        domain = _home_of(address_vector, domain, av_type)
    domain = chosen.home(domain)
    if caps is not None:  # to be had, not only to be preferred
        hints = Hints() if hints is None else hints
        hints = replace(hints, caps=hints.caps | caps | (Caps.MULTI_RECV if chosen.multi_recv else Caps(0)))
    info = await find(
        node,
        service,
        kind=type,
        caps=_CAPS[type] | (Caps.MULTI_RECV if chosen.multi_recv else Caps(0)),
        provider=provider,
        domain=domain,
        hints=hints,
        info=info,
        passive=node is not None or service is not None,
    )
    async with kind(info, domain, chosen, av_type, address_vector) as endpoint:
        yield endpoint


def _home_of(vector: AddressVector, domain: Domain | None, av_type: AvType) -> Domain:
    """The domain of an address vector that endpoints share.

    Raises:
        TypeError: it is none.
        ValueError: the endpoint is to be opened on another domain, or with other numbers.
        ClosedResourceError: it is closed.
    """
    if not isinstance(vector, AddressVector):
        raise TypeError(f"address_vector is an AddressVector, or None, not {vector!r}")
    vector._handle.check_open()
    if domain is not None and domain is not vector.domain:
        raise ValueError(f"{vector!r} is not of the domain of the endpoint, {domain!r}")
    if av_type != AvType.UNSPEC:
        raise ValueError("av_type is the address vector's: leave it out beside address_vector")
    return vector.domain


async def _refuse(type: EndpointType, provider: str | None, hints: Hints | None) -> NoReturn:
    """Endpoints of another kind: the providers' own answer, which was no whenever it was heard."""
    try:
        info = await find(None, None, kind=type, caps=Caps.MSG, provider=provider, hints=hints)
        detail = f"The provider {info.fabric_attr.prov_name} offers {type}, which aiofabric has no use for"
    except NoProviderError as error:
        detail = error.detail
    raise NotSupportedError(constants.FI_ENODATA, "fi_getinfo", detail=detail)


_KINDS = {EndpointType.RDM: RdmEndpoint, EndpointType.DGRAM: DatagramEndpoint}
