"""Shared contexts: one pool of receives, or one transmit queue, for many connections (man page: fi_endpoint)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ..._ffi import constants, ffi, lib
from ...address_vector import AddressVector
from ...cq.polling import Waiting
from ...cq.reactor import Reactor
from ...errors import check
from ...flags import Caps
from ...resource import Handle, Resource, check_resource
from ..exclusions import lacking, refusal
from ..handle import EndpointHandle
from ..messages.inbox import RECEIVE_AT_SHARED, Inbox
from ..messages.multi_pool import MultiPool
from ..messages.pool import Pool
from ..messages.receive import Receives
from ..opening.bindings import check_receives, without_unsafe_flags
from ..opening.shared_objects import acquire_queues

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...domain import Domain
    from ...flags import AvType
    from ..interfaces import PoolStatistics
    from ..opening.shared_objects import DomainQueues

__all__ = ["SharedInbox", "SharedReceive", "SharedTransmit"]


class SharedReceive(Receives):
    """Receives for thousands of connections: a message from any of them fills the next buffer of one pool.

    Pass it to `connect` and `listen` (``shared_receive=``). Their endpoints send as usual, and the messages of their
    peers are received here. libfabric does not report the connection of a message, so `Message.source` is None: name
    the sender in the messages or their ``remote_data``. Closing it closes the endpoints first.

    Args:
        domain: the domain of the context; the endpoints must be opened on the same one.
        recv_size: bytes of each receive, and so of the longest message.
        recv_count: how many receives are kept posted. When none is left, the peers wait.
        multi_recv: as for endpoints.
        waiting, busy_poll: as for endpoints; all of them use the same queue.

    Raises:
        NotSupportedError: the provider has no shared receive contexts.

    Man page: fi_endpoint (fi_srx_context).
    """

    __slots__ = ("domain",)
    _handle: SharedReceiveHandle

    def __init__(
        self,
        domain: Domain,
        *,
        recv_size: int = 65536,
        recv_count: int = 256,
        multi_recv: int | None = None,
        waiting: Waiting = Waiting.ADAPTIVE,
        busy_poll: float = 100.0,
    ) -> None:
        check_resource("domain", domain, "Domain")
        domain._handle.check_open()
        if recv_size < 1 or recv_count < 1:
            raise ValueError("recv_size (bytes) and recv_count must be at least 1")
        info = without_unsafe_flags(domain.info)
        if missing := lacking(info, Caps.MSG, Caps.RECV):
            raise refusal("fi_srx_context", missing)
        check_receives(info, multi=multi_recv is not None)
        attr = ffi.new("struct fi_rx_attr[2]")
        ffi.memmove(attr, info.native.rx_attr, ffi.sizeof("struct fi_rx_attr"))
        attr[0].size = max(attr[0].size, recv_count)
        # A queue for this context and its endpoints only: the completion must arrive at the source that has the
        # receive.
        queues, release = acquire_queues(Reactor.current(), info, domain, waiting, busy_poll, alone=True)
        out = ffi.new("struct fid_ep **")
        try:
            check(lib.fi_srx_context(domain._handle.fid, attr, out, ffi.NULL), "fi_srx_context")
        except BaseException:
            release()
            raise
        self.domain = domain
        handle = SharedReceiveHandle("SharedReceive", out[0], domain._handle, info, queues.source, cancel_grace=0.1)
        self._receive_by(handle)
        handle.queues = queues
        handle.on_release = release
        try:
            # Without a queue of its own, tcp reports cancelled receives through a null pointer (tcpx_shared_ctx.c).
            # sockets (FI_EINVAL) and verbs (FI_ENOSYS) accept no queue here, and report to the endpoints' queues.
            rc = lib.fi_ep_bind(out[0], queues.queue.native, constants.FI_RECV)
            if rc not in (-constants.FI_EINVAL, -constants.FI_ENOSYS):
                check(rc, "fi_ep_bind")
            if multi_recv is not None:
                MultiPool.prepare(handle, recv_size)
                handle.pool = MultiPool(handle, recv_size, recv_count, multi_recv)
            else:
                handle.pool = Pool(handle, recv_size, recv_count)
            handle.open_for_use()
        except BaseException:
            self.close()
            raise

    @property
    def queues(self) -> DomainQueues:
        """The queues of its endpoints."""
        self._handle.check_open()
        return self._handle.queues

    def statistics(self) -> PoolStatistics:
        """Where the buffers are, and the totals; see `PoolStatistics`."""
        assert self._handle.pool is not None
        return self._handle.pool.statistics()

    def __repr__(self) -> str:
        return f"<SharedReceive {len(self._handle.children)} endpoints{' closed' if self.closed else ''}>"


class SharedReceiveHandle(EndpointHandle):
    """Handle of the native context; its children are the endpoints that receive through it."""

    __slots__ = ("queues", "vector")
    serves_memory = False
    queues: DomainQueues

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.vector: AddressVector | None = None  # of its connectionless endpoints

    def vector_of(
        self, domain: Domain, wanted: AddressVector | None, av_type: AvType, rx_ctx_bits: int
    ) -> AddressVector:
        """The address vector of all connectionless endpoints: the first one's, or one that closes with this context.

        It gives the sources of the messages their numbers.

        Raises:
            ValueError: ``wanted`` is another one.
        """
        if self.vector is None or self.vector.closed:
            self.vector = wanted
            if wanted is None:
                self.vector = own = AddressVector(domain, type=av_type, rx_ctx_bits=rx_ctx_bits)
                release = self.on_release

                def released() -> None:
                    if release is not None:
                        release()
                    own.close()

                self.on_release = released
        if wanted not in (None, self.vector):
            raise ValueError(
                "all endpoints of a SharedReceive have one address vector: name that of the first one, "
                "endpoint.vector, or none"
            )
        assert self.vector is not None
        return self.vector


class SharedInbox(Inbox):
    """Replaces the pool of an endpoint whose messages arrive at a `SharedReceive`."""

    is_shared = True

    def __init__(self, handle: EndpointHandle, shared: SharedReceive) -> None:
        pool = shared._handle.pool
        assert pool is not None
        super().__init__(handle, pool.size, pool.count)
        self._shared = pool
        self.ended = lambda: TypeError(RECEIVE_AT_SHARED)

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(RECEIVE_AT_SHARED)

    take = next = recycle = set_sink = _refuse  # type: ignore[assignment]

    async def receiving(self, *_: Any) -> NoReturn:
        self._refuse()

    def discard(self, error: Callable[[], BaseException]) -> None:
        """Nothing to do: later messages arrive at the `SharedReceive`."""

    def statistics(self) -> PoolStatistics:
        return self._shared.statistics()


class SharedTransmit(Resource):
    """A transmit queue that several endpoints send through; pass it as ``shared_transmit=`` when they are opened.

    Closing it closes the endpoints first. Endpoints of the provider sockets are not bound to it and keep queues of
    their own, because the loss of a peer would crash the process.

    Raises:
        NotSupportedError: the provider has no shared transmit contexts.

    Man page: fi_endpoint (fi_stx_context).
    """

    __slots__ = ("domain",)

    def __init__(self, domain: Domain) -> None:
        check_resource("domain", domain, "Domain")
        domain._handle.check_open()
        out = ffi.new("struct fid_stx **")
        check(lib.fi_stx_context(domain._handle.fid, domain.info.native.tx_attr, out, ffi.NULL), "fi_stx_context")
        self.domain = domain
        self._handle = Handle("SharedTransmit", out[0], domain._handle)

    def __repr__(self) -> str:
        return f"<SharedTransmit {len(self._handle.children)} endpoints{' closed' if self.closed else ''}>"
