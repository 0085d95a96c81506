"""Scalable endpoints: one address, many transmit and receive contexts (man page: fi_endpoint, fi_scalable_ep).

The contexts of one endpoint share its address vector and its loop. They also share a completion queue, unless each is
to have its own. Each has its own order and its own receives. A sender can name the receive context that its message is
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..._ffi import constants, ffi, lib
from ...address_vector import AddressVector, Peer, context_bits
from ...arguments import check_type
from ...cm.handshake import name_of
from ...cm.workarounds.half_open_clients import defer_silent_clients
from ...cm.workarounds.provider_sockets import listening_sockets, open_descriptors
from ...cq.queue import CompletionQueue
from ...cq.reactor import Reactor
from ...errors import check
from ...flags import Caps, EndpointType
from ...info import Hints, Info
from ...info.place import place_in_hints
from ...regions import MemoryOwner
from ...resource import Resource
from ..exclusions import exclude
from ..handle import EndpointHandle
from ..opening.bindings import check_receives, check_selective, without_unsafe_flags
from ..opening.chosen import check_arguments
from ..opening.keywords import endpoint_options
from ..opening.options import EndpointOptions
from ..opening.selection import find
from ..opening.shared_objects import acquire_domain
from ..rma.atomic import Atomic
from ..rma.rma import Rma
from ..tagged.tagged import TaggedReceives, TaggedSends
from .alias import Aliases
from .handle import ConnectionlessHandle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import Unpack

    from ...address import Address
    from ...cq.source.source import Source
    from ...domain import Domain
    from ...info import RxAttr, TxAttr
    from ..opening.keywords import EndpointKeywords

__all__ = ["ReceiveContext", "ScalableEndpoint", "TransmitContext", "open_scalable_endpoint"]


_CONTEXTS_MOST = 1 << 16  # more than any provider has; a list of them is made


class _ScalableHandle(MemoryOwner):
    """Handle of the endpoint; its children are the contexts."""

    serves_memory = True

    __slots__ = ("on_release", "sources")

    def __init__(self, sep: Any, domain: Domain, sources: list[Source]) -> None:
        super().__init__("ScalableEndpoint", sep, domain._handle)
        self.regions = domain._handle.regions
        self.sources = sources
        self.on_release: Callable[[], None] | None = None

    def close(self) -> None:
        if not self.closed:
            for source in self.sources:
                source.close()
        super().close()

    def release(self) -> None:
        super().release()
        if self.on_release is not None:
            self.on_release()


class _ContextHandle(ConnectionlessHandle):
    """One context: it can be closed alone; its queue closes with the endpoint."""

    __slots__ = ()

    def release(self) -> None:
        EndpointHandle.release(self)


class TransmitContext(Aliases, TaggedSends, Rma, Atomic):
    """A transmit queue of a `ScalableEndpoint`; ``to=peer.context(2)`` names a receive context of the peer."""

    __slots__ = ("domain", "info")
    domain: Domain


class ReceiveContext(Aliases, TaggedReceives):
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
        local_address: the address of all contexts.
    """

    __slots__ = ("_opened", "domain", "info", "local_address", "receive", "transmit", "vector")
    _handle: _ScalableHandle

    def __init__(
        self,
        info: Info,
        domain: Domain | None,
        options: EndpointOptions,
        transmit: Sequence[TxAttr | Mapping[str, Any]],
        receive: Sequence[RxAttr | Mapping[str, Any]],
        own_queues: bool = False,
    ) -> None:
        check_type("info", info, Info)
        check_type("options", options, EndpointOptions)
        if options.remote_writes:
            raise TypeError("a peer's write names no context of a scalable endpoint: leave out remote_writes=")
        if options.selective:
            check_selective(info)
        if ignored := options.native - {"multi_recv"}:
            names = ", ".join(f"{name}=" for name in sorted(ignored))
            raise TypeError(f"the contexts of a scalable endpoint cannot be bound to anything: leave out {names}")
        check_receives(info, multi=options.multi_recv is not None)
        self.info = info = without_unsafe_flags(info)
        sends = [info.replace(tx_attr=attr) for attr in transmit]
        receives = [info.replace(rx_attr=attr) for attr in receive]
        self._opened: list[TransmitContext | ReceiveContext] = []
        reactor = Reactor.current()
        with ExitStack() as opened:
            self.domain, release = acquire_domain(reactor, info, domain)
            opened.callback(release)
            self.vector = opened.enter_context(AddressVector(self.domain, rx_ctx_bits=context_bits(info)))
            contexts = len(sends) + len(receives)
            queues: list[tuple[CompletionQueue, Source]] = []
            for _ in range(contexts if own_queues else 1):  # opened before the endpoint, so closed after it
                queue = opened.enter_context(CompletionQueue(self.domain, source=Caps.SOURCE in info.caps))
                source = reactor.attach(queue, waiting=options.waiting, busy_poll=options.busy_poll)
                opened.callback(source.close)
                queues.append((queue, source))
            before = open_descriptors()
            out = ffi.new("struct fid_ep **")
            check(lib.fi_scalable_ep(self.domain._handle.fid, info.native, out, ffi.NULL), "fi_scalable_ep")
            self._handle = handle = _ScalableHandle(out[0], self.domain, [source for _, source in queues])
            handle.on_release = opened.pop_all().close
        try:
            check(lib.fi_scalable_ep_bind(handle.fid, self.vector.native, 0), "fi_scalable_ep_bind")
            check(lib.fi_enable(handle.fid), "fi_enable")
            self.local_address = name_of(handle.fid, info, lib.fi_getname)
            defer_silent_clients(queues[0][1], listening_sockets(before, self.local_address))  # sockets of rxm and tcp
            each = iter(queues if own_queues else queues * contexts)
            self.transmit = tuple(self._open_transmit(*next(each), index, own) for index, own in enumerate(sends))
            self.receive = tuple(
                self._open_receive(*next(each), index, own, options) for index, own in enumerate(receives)
            )
        except BaseException:
            for context in self._opened:  # the program has none of them yet
                context.close()
            self.close()
            raise

    def _open_transmit(self, queue: CompletionQueue, source: Source, index: int, info: Info) -> TransmitContext:
        context = TransmitContext.__new__(TransmitContext)
        handle = self._open(context, source, info, "fi_tx_context", lib.fi_tx_context, index, info.native.tx_attr)
        check(lib.fi_ep_bind(handle.fid, queue.native, constants.FI_TRANSMIT), "fi_ep_bind")
        check(lib.fi_enable(handle.fid), "fi_enable")
        handle.open_for_use()
        exclude(context)
        return context

    def _open_receive(
        self, queue: CompletionQueue, source: Source, index: int, info: Info, options: EndpointOptions
    ) -> ReceiveContext:
        context = ReceiveContext.__new__(ReceiveContext)
        handle = self._open(context, source, info, "fi_rx_context", lib.fi_rx_context, index, info.native.rx_attr)
        context._receive_by(handle)
        context._vector = self.vector
        check(lib.fi_ep_bind(handle.fid, queue.native, constants.FI_RECV), "fi_ep_bind")
        options.prepare_inbox(handle)
        check(lib.fi_enable(handle.fid), "fi_enable")
        options.open_inbox(handle)
        handle.open_for_use()
        exclude(context)
        return context

    def _open(
        self,
        context: TransmitContext | ReceiveContext,
        source: Source,
        info: Info,
        call: str,
        function: Any,
        index: int,
        attr: Any,
    ) -> _ContextHandle:
        out = ffi.new("struct fid_ep **")
        check(function(self._handle.fid, index, attr, out, ffi.NULL), call)
        what = type(context).__name__
        handle = _ContextHandle(self.vector, what, out[0], self._handle, info, source, cancel_grace=0.1)
        context._handle, context.info, context.domain = handle, info, self.domain
        self._opened.append(context)
        return handle

    async def add_peer(self, address: Address | str | bytes) -> Peer:
        """Add an endpoint, scalable or not, as a peer, by its ``local_address``; see `RdmEndpoint.add_peer`."""
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
    transmit: int | Sequence[TxAttr | Mapping[str, Any]] = 1,
    receive: int | Sequence[RxAttr | Mapping[str, Any]] = 1,
    own_queues: bool = False,
    type: EndpointType = EndpointType.RDM,
    provider: str | None = None,
    domain: Domain | None = None,
    hints: Hints | None = None,
    info: Info | None = None,
    **options: Unpack[EndpointKeywords],
) -> AsyncIterator[ScalableEndpoint]:
    """Open an endpoint with several contexts: ``async with open_scalable_endpoint(receive=4) as endpoint``.

    Args:
        node, service: the local address, if it must be a specific one.
        transmit, receive: how many contexts of each kind; or a list with the attributes of each, as in `Info.replace`:
            ``receive=[{"size": 16}, {}]``.
        own_queues: each context has a completion queue of its own, instead of one for all.
        type: reliable messages or datagrams.
        provider, domain, hints, info: as for `open_endpoint`.
        options: of the receive contexts; see `EndpointOptions`.

    Leaving the block closes the contexts and the endpoint.

    Raises:
        NoProviderError: no provider here has that many contexts per endpoint.
        NotSupportedError: the provider has no scalable endpoints.

    Man page: fi_endpoint (fi_scalable_ep, fi_tx_context, fi_rx_context).
    """
    check_type("type", type, EndpointType)
    chosen = endpoint_options("open_scalable_endpoint", options)
    check_arguments(provider, domain, hints, info)
    node = place_in_hints(node, service, hints, "src_addr")
    sends, receives = _contexts("transmit", transmit), _contexts("receive", receive)
    hints = (Hints() if hints is None else hints).replace(
        ep_attr={"tx_ctx_cnt": len(sends), "rx_ctx_cnt": len(receives)}
    )
    info = await find(
        node,
        service,
        kind=type,
        caps=Caps.MSG | Caps.TAGGED | Caps.NAMED_RX_CTX | Caps.SOURCE,
        provider=provider,
        domain=domain,
        hints=hints,
        info=info,
        passive=node is not None or service is not None,
    )
    async with ScalableEndpoint(info, domain, chosen, sends, receives, own_queues) as endpoint:
        yield endpoint


def _contexts(name: str, wish: Any) -> Sequence[Any]:
    """The attributes of each context.

    Raises:
        TypeError, ValueError: neither a number of contexts nor a list.
    """
    if isinstance(wish, bool) or not isinstance(wish, int | Sequence) or isinstance(wish, str | bytes):
        raise TypeError(f"{name} must be a number of contexts, or a list with the attributes of each, not {wish!r}")
    if isinstance(wish, int) and wish > _CONTEXTS_MOST:
        raise ValueError(f"{name} must be at most {_CONTEXTS_MOST} contexts, not {wish}")
    contexts: Sequence[Any] = [{}] * wish if isinstance(wish, int) else wish
    if not contexts:
        raise ValueError(f"{name}={wish!r}: a scalable endpoint needs at least one context of each kind")
    return contexts
