"""EndpointOptions: how an endpoint is opened, and what it is bound to before it is enabled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .._ffi import constants, ffi, lib
from ..cq.waiting import Waiting
from ..errors import NotSupportedError, check
from ..features import Quirk
from ..flags import EndpointType, OpFlags
from ..info import SHARED_CONTEXT, Hints
from ..settings import EndpointSettings
from .multi_pool import MultiPool
from .pool import Pool
from .prefix import PrefixPool, prefix_of
from .remote_writes import RemoteWriteQueue
from .shared_contexts import Elsewhere
from .spill import SpillPool
from .whole import WholePool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..cq.counter import Counter
    from ..domain import Domain
    from ..flags import Bind
    from ..info import Info
    from .handle import EndpointHandle
    from .shared_contexts import SharedReceive, SharedTransmit

__all__ = ["EndpointOptions"]

_NATIVE = ("multi_recv", "selective", "counters", "shared_receive", "shared_transmit", "open_flags", "prepare")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """How an endpoint receives, waits and cancels, and what it is bound to.

    Args:
        recv_size: bytes of each pooled receive; None for direct receives (the caller's memory is posted).
        recv_count: how many receives the pool keeps posted; up to 8 at first, all of them once a burst needed them.
        multi_recv: bytes of each buffer, where one buffer is to take many messages (FI_MULTI_RECV); then there are
            ``recv_count`` such buffers, and ``recv_size`` is the longest message.
        cancel_grace: seconds that a cancelled direct receive waits for the provider's answer.
        waiting: how the completion queue is waited for.
        busy_poll: the longest time, in microseconds, that adaptive waiting looks before it sleeps.
        heartbeat: seconds, at least 3, in which to notice that the peer's host has fallen silent, on connections whose
            provider has none of its own (shm, rxm, EFA, Slingshot); a process that ends is noticed at once anyway.
        counters: counters of the same domain, each with the operations that it counts.
        selective: of a connected endpoint: have the provider report only what asks for it; for `MessageEndpoint.batch`.
        remote_writes: how many writes of a peer that carry ``remote_data`` may wait to be taken by
            `MessageEndpoint.remote_write`; 0: they are not heard of. With it a connection has a completion queue to
            itself.
        shared_receive: where messages of the peer's go; then this endpoint itself cannot receive.
        shared_transmit: the transmit queue to send through.
        open_flags: of fi_endpoint2, such as `OpFlags.PEER_TRANSFER`; only some providers have it.
        prepare: called with the endpoint's `EndpointSettings` before it is enabled, when every option can still be set.
    """

    recv_size: int | None = 65536
    recv_count: int = 64
    multi_recv: int | None = None
    cancel_grace: float = 0.1
    waiting: Waiting = Waiting.ADAPTIVE
    busy_poll: float = 200.0
    heartbeat: float | None = None
    selective: bool = False
    remote_writes: int = 0
    counters: Mapping[Counter, Bind] = field(default_factory=dict)
    shared_receive: SharedReceive | None = None
    shared_transmit: SharedTransmit | None = None
    open_flags: OpFlags = OpFlags(0)
    prepare: Callable[[EndpointSettings], object] | None = None

    def __post_init__(self) -> None:
        if self.recv_size is not None and self.recv_size < 1:
            raise ValueError("recv_size is at least 1 byte, or None for direct receives")
        if self.multi_recv is not None and self.recv_size is None:
            raise ValueError("multi_recv needs recv_size, the length of the longest message")
        if isinstance(self.remote_writes, bool) or self.remote_writes < 0:
            raise ValueError("remote_writes is how many may wait to be taken, and 0 for none")
        if self.remote_writes and self.shared_receive is not None:
            raise ValueError("remote_writes needs a queue of the endpoint's own; shared_receive has one for all")
        if self.recv_count < 1:
            raise ValueError("recv_count is at least 1")
        if not isinstance(self.waiting, Waiting):
            raise TypeError(f"waiting is one of {', '.join(map(str, Waiting))}, not {self.waiting!r}")
        if self.heartbeat is not None and self.heartbeat < 3:
            raise ValueError("heartbeat is at least 3 seconds, or None")
        if self.cancel_grace < 0 or self.busy_poll < 0:
            raise ValueError("cancel_grace (seconds) and busy_poll (microseconds) are not negative")

    def complete(self, hints: Hints | None) -> Hints | None:
        """The caller's hints with what these options need of the provider."""
        if self.shared_receive is None and self.shared_transmit is None:
            return hints
        hints = Hints() if hints is None else hints
        attr = replace(hints.ep_attr)
        if self.shared_receive is not None:
            attr.rx_ctx_cnt = SHARED_CONTEXT
        if self.shared_transmit is not None:
            attr.tx_ctx_cnt = SHARED_CONTEXT
        return replace(hints, ep_attr=attr)

    def home(self, domain: Domain | None) -> Domain | None:
        """The domain that the shared contexts are of, unless the caller named one."""
        for context in (self.shared_receive, self.shared_transmit):
            if context is not None and domain is None:
                return context.domain
        return domain

    def check_virtual(self, provider: str) -> None:
        """Raise unless a connection without a native endpoint of its own can have these options."""
        native = [name for name in _NATIVE if getattr(self, name)]
        if native:
            detail = f"The provider {provider} has no connected endpoints of its own to which that could be bound"
            raise NotSupportedError(constants.FI_ENOSYS, ", ".join(native), detail=detail)

    def open_native(self, domain: Domain, info: Info) -> Any:
        """The ``struct fid_ep *`` of a new endpoint (fi_endpoint, fi_endpoint2)."""
        out, fid = ffi.new("struct fid_ep **"), domain._handle.fid
        if not self.open_flags:
            check(lib.fi_endpoint(fid, info.native, out, ffi.NULL), "fi_endpoint")
            return out[0]
        try:
            check(lib.fi_endpoint2(fid, info.native, out, self.open_flags, ffi.NULL), "fi_endpoint2")
        except NotSupportedError as error:
            error.detail = f"The provider {info.fabric_attr.prov_name} opens no endpoints with {self.open_flags}"
            raise
        return out[0]

    def bind_queue(self, handle: EndpointHandle, queue: Any) -> None:
        """Have ``queue`` report what the endpoint does (fi_ep_bind)."""
        if handle.tx is None or not self.selective:
            check(lib.fi_ep_bind(handle.fid, queue, constants.FI_TRANSMIT | constants.FI_RECV), "fi_ep_bind")
            return
        flags = constants.FI_TRANSMIT | constants.FI_SELECTIVE_COMPLETION
        check(lib.fi_ep_bind(handle.fid, queue, flags), "fi_ep_bind")
        check(lib.fi_ep_bind(handle.fid, queue, constants.FI_RECV), "fi_ep_bind")

    def apply(self, handle: EndpointHandle) -> None:
        """Bind and set what must be bound and set before fi_enable."""
        if self.heartbeat is not None:
            detail = f"The provider {handle.info.fabric_attr.prov_name} itself finds out what becomes of its peers"
            raise NotSupportedError(constants.FI_ENOSYS, "heartbeat", detail=detail)
        for context in (self.shared_receive, self.shared_transmit):
            if context is not None:
                native = ffi.cast("struct fid *", context._handle.fid)
                handle.need(context._handle)
                check(lib.fi_ep_bind(handle.fid, native, 0), "fi_ep_bind")
        for counter, flags in self.counters.items():
            counter.bind(handle, handle.source, flags)
        if self.prepare is not None:
            self.prepare(EndpointSettings(handle, handle.info, enabled=False))

    def hear_of_writes(self, handle: EndpointHandle) -> None:
        """Have peers' writes with data reported, if that was asked for; the endpoint's queue is nobody else's then."""
        if self.remote_writes:
            handle.remote_writes = RemoteWriteQueue(handle, self.remote_writes)

    def open_inbox(self, handle: EndpointHandle) -> None:
        """Post the first receives of an enabled endpoint."""
        prefixed = prefix_of(handle.info)
        if prefixed and (self.recv_size is None or self.multi_recv is not None):
            detail = "The provider puts its own bytes before each message: leave the receiving to a plain pool"
            raise NotSupportedError(constants.FI_ENOSYS, "fi_recv", detail=detail)
        if self.shared_receive is not None:
            handle.pool = Elsewhere(handle, self.shared_receive)
        elif self.recv_size is not None:
            size, count = min(self.recv_size, handle.max_size), min(self.recv_count, handle.info.rx_attr.size)
            if prefixed:
                handle.pool = PrefixPool(handle, size, count)
            elif self.multi_recv is not None:
                handle.pool = MultiPool(handle, size, count, self.multi_recv)
            else:
                cut_off = Quirk.TRUNCATES_SILENTLY in handle.known and handle.info.ep_attr.type == EndpointType.RDM
                handle.pool = (WholePool if cut_off else SpillPool if handle.spills else Pool)(handle, size, count)
