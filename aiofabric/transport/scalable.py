"""Scalable endpoints: one address, many transmit and receive contexts (man page: fi_endpoint, fi_scalable_ep).

The contexts of one endpoint share its queue and its address vector here, because they share its loop; what they do
not share is their order and their receives. A sender can name the receive context that its message is for.
"""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._ffi import constants, ffi, lib
from ..address_vector import AddressVector, Peer
from ..cm.door import guard
from ..cm.handshake import name_of
from ..cq.queue import CompletionQueue
from ..cq.reactor import Reactor
from ..errors import check
from ..flags import Caps, EndpointType
from ..info import Hints
from ..regions import MemoryHome
from ..resource import Resource
from .atomic import Atomic
from .discover import find
from .handle import EndpointHandle
from .options import EndpointOptions
from .rdm import ConnectionlessHandle
from .rma import Rma
from .shared import borrow_domain
from .tagged import TaggedReceives, TaggedSends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..address import Address
    from ..cq.source import Source
    from ..domain import Domain
    from ..info import Info

__all__ = ["ReceiveContext", "ScalableEndpoint", "TransmitContext", "open_scalable_endpoint"]


class _ScalableHandle(MemoryHome):
    """The endpoint; its children are the contexts."""

    serves_memory = True

    __slots__ = ("on_release", "source")

    def __init__(self, sep: Any, domain: Domain, source: Source) -> None:
        super().__init__("ScalableEndpoint", sep, domain._handle)
        self.regions = domain._handle.regions
        self.source = source
        self.on_release: Callable[[], None] | None = None

    def close(self) -> None:
        if not self.closed:
            self.source.close()
        super().close()

    def release(self) -> None:
        super().release()
        if self.on_release is not None:
            self.on_release()


class _ContextHandle(ConnectionlessHandle):
    """One context: it can be closed alone, its queue goes with the endpoint."""

    __slots__ = ()

    def release(self) -> None:
        EndpointHandle.release(self)


class TransmitContext(TaggedSends, Rma, Atomic):
    """A transmit queue of a `ScalableEndpoint`; ``to=peer.context(2)`` names a receive context of the peer."""

    __slots__ = ("domain", "info")
    domain: Domain


class ReceiveContext(TaggedReceives):
    """A receive queue of a `ScalableEndpoint`."""

    __slots__ = ("_vector", "domain", "info")
    _vector: AddressVector
    domain: Domain

    def _source_of(self, address: int | None) -> Peer | None:
        return self._vector.find(address)


class ScalableEndpoint(Resource):
    """One address with several transmit and receive contexts; opened by `open_scalable_endpoint`.

    Attributes:
        transmit: the `TransmitContext` objects, by number.
        receive: the `ReceiveContext` objects, by number; senders name them with ``peer.context(number)``.
        local_address: where peers find all of them.
    """

    __slots__ = ("domain", "info", "local_address", "receive", "transmit", "vector")
    _handle: _ScalableHandle

    def __init__(
        self, info: Info, domain: Domain | None, options: EndpointOptions, transmit: int, receive: int
    ) -> None:
        if options.remote_writes:
            raise TypeError("the contexts of a scalable endpoint share a queue, so there is no remote_writes=")
        self.info = info
        reactor = Reactor.current()
        with ExitStack() as opened:
            self.domain, give_back = borrow_domain(reactor, info, domain)
            opened.callback(give_back)
            bits = max(0, receive - 1).bit_length()
            self.vector = opened.enter_context(AddressVector(self.domain, rx_ctx_bits=bits))
            queue = opened.enter_context(CompletionQueue(self.domain, source=Caps.SOURCE in info.caps))
            source = reactor.attach(queue, waiting=options.waiting, busy_poll=options.busy_poll)
            opened.callback(source.close)
            out = ffi.new("struct fid_ep **")
            check(lib.fi_scalable_ep(self.domain._handle.fid, info.native, out, ffi.NULL), "fi_scalable_ep")
            self._handle = handle = _ScalableHandle(out[0], self.domain, source)
            handle.on_release = opened.pop_all().close
        try:
            check(lib.fi_scalable_ep_bind(handle.fid, self.vector.native, 0), "fi_scalable_ep_bind")
            check(lib.fi_enable(handle.fid), "fi_enable")
            self.local_address = name_of(handle.fid, info, lib.fi_getname)
            guard(handle.source, self.local_address)  # rxm and tcp accept connections below
            self.transmit = tuple(self._open_transmit(queue, index) for index in range(transmit))
            self.receive = tuple(self._open_receive(queue, index, options) for index in range(receive))
        except BaseException:
            self.close()
            raise

    def _open_transmit(self, queue: CompletionQueue, index: int) -> TransmitContext:
        context = TransmitContext.__new__(TransmitContext)
        handle = self._open(context, "fi_tx_context", lib.fi_tx_context, index, self.info.native.tx_attr)
        check(lib.fi_ep_bind(handle.fid, queue.native, constants.FI_TRANSMIT), "fi_ep_bind")
        check(lib.fi_enable(handle.fid), "fi_enable")
        handle.open_for_use()
        return context

    def _open_receive(self, queue: CompletionQueue, index: int, options: EndpointOptions) -> ReceiveContext:
        context = ReceiveContext.__new__(ReceiveContext)
        handle = self._open(context, "fi_rx_context", lib.fi_rx_context, index, self.info.native.rx_attr)
        context._receive_by(handle)
        context._vector = self.vector
        check(lib.fi_ep_bind(handle.fid, queue.native, constants.FI_RECV), "fi_ep_bind")
        check(lib.fi_enable(handle.fid), "fi_enable")
        options.open_inbox(handle)
        handle.open_for_use()
        return context

    def _open(
        self, context: TransmitContext | ReceiveContext, call: str, function: Any, index: int, attr: Any
    ) -> _ContextHandle:
        out = ffi.new("struct fid_ep **")
        check(function(self._handle.fid, index, attr, out, ffi.NULL), call)
        what = type(context).__name__
        handle = _ContextHandle(
            self.vector, what, out[0], self._handle, self.info, self._handle.source, cancel_grace=0.1
        )
        context._handle, context.info, context.domain = handle, self.info, self.domain
        return handle

    async def add_peer(self, address: Address | str | bytes) -> Peer:
        """Make an endpoint reachable, scalable or not, by its ``local_address``; see `RdmEndpoint.add_peer`."""
        self._handle.check_open()
        return self.vector.insert(address)

    def close(self) -> None:
        """Close the contexts, then the endpoint."""
        super().close()
        for context in (*getattr(self, "transmit", ()), *getattr(self, "receive", ())):
            context.close()

    def __repr__(self) -> str:
        contexts = f"{len(self.transmit)} transmit and {len(self.receive)} receive contexts"
        return f"<ScalableEndpoint {'closed' if self.closed else 'open'} at {self.local_address}, {contexts}>"


@asynccontextmanager
async def open_scalable_endpoint(
    node: str | Address | None = None,
    service: str | int | None = None,
    *,
    transmit: int = 1,
    receive: int = 1,
    type: EndpointType = EndpointType.RDM,
    provider: str | None = None,
    domain: Domain | None = None,
    hints: Hints | None = None,
    **options: Any,
) -> AsyncIterator[ScalableEndpoint]:
    """Open an endpoint with several contexts: ``async with open_scalable_endpoint(receive=4) as endpoint``.

    Args:
        node, service: the local address, where it has to be a certain one.
        transmit, receive: how many contexts of each kind.
        type: reliable or plain datagrams.
        provider, domain, hints: as for `open_endpoint`.
        options: of the receive contexts; see `EndpointOptions`.

    Leaving the block closes the contexts and the endpoint.

    Raises:
        NoProviderError: no provider here has that many contexts to an endpoint.
        NotSupportedError: the provider has no scalable endpoints.

    Man page: fi_endpoint (fi_scalable_ep, fi_tx_context, fi_rx_context).
    """
    chosen = EndpointOptions(**options)
    hints = Hints() if hints is None else hints
    attr = replace(hints.ep_attr, tx_ctx_cnt=transmit, rx_ctx_cnt=receive)
    info = await find(
        node,
        service,
        kind=type,
        caps=Caps.MSG | Caps.TAGGED | Caps.NAMED_RX_CTX | Caps.SOURCE,
        provider=provider,
        domain=domain,
        hints=replace(hints, ep_attr=attr),
        passive=node is not None or service is not None,
    )
    async with ScalableEndpoint(info, domain, chosen, transmit, receive) as endpoint:
        yield endpoint
