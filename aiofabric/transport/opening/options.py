"""EndpointOptions: how an endpoint is opened, and the objects it is bound to before it is enabled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from types import NoneType
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from ..._ffi import constants, ffi, lib
from ...cm.workarounds.keepalive import LEAST, MOST
from ...cq.counter import Counter
from ...cq.polling import Waiting
from ...cq.submission import most_posted
from ...domain import receives_shared
from ...errors import NotSupportedError, check
from ...features import Quirk
from ...flags import OpFlags
from ...info import SHARED_CONTEXT, Hints
from ...settings import EndpointSettings
from ..exclusions import receives_messages
from ..messages.multi_pool import MultiPool
from ..messages.overflow import OverflowPool
from ..messages.pool import Pool
from ..messages.prefix import PrefixPool, prefix_of
from ..messages.truncation import TruncationPool
from ..opening.shared_contexts import SharedInbox, SharedReceive, SharedTransmit
from ..rma.remote_writes import RemoteWriteQueue
from .bindings import as_opened, check_bindings, check_provider, shares_transmit

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...domain import Domain
    from ...flags import Bind
    from ...info import Info
    from ..handle import EndpointHandle

__all__ = ["EndpointOptions"]

_NATIVE = ("multi_recv", "selective", "counters", "shared_receive", "shared_transmit", "open_flags", "prepare")

# The usual types come first: to ask for a protocol takes 10 us, and each connection asks for eight.
_COUNT = (int, SupportsIndex)
_TIME = (float, int, SupportsFloat)
_TYPES: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("recv_size", "a number of bytes, or None for direct receives", (NoneType, *_COUNT)),
    ("recv_count", "a number of receives", _COUNT),
    ("multi_recv", "a number of bytes, or None", (NoneType, *_COUNT)),
    ("remote_writes", "a number of writes", _COUNT),
    ("cancel_grace", "a number of seconds", _TIME),
    ("close_timeout", "a number of seconds", _TIME),
    ("busy_poll", "a number of microseconds", _TIME),
    ("heartbeat", "a number of seconds, or None", (NoneType, *_TIME)),
    ("waiting", f"one of {', '.join(map(str, Waiting))}", (Waiting,)),
    ("selective", "True or False", (bool,)),
    ("preface", "True or False", (bool,)),
    ("counters", "a mapping of counters to the operations that each counts", (Mapping,)),
    ("shared_receive", "a SharedReceive, or None", (NoneType, SharedReceive)),
    ("shared_transmit", "a SharedTransmit, or None", (NoneType, SharedTransmit)),
    ("open_flags", "an OpFlags", (int,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """How an endpoint receives, waits and cancels, and the objects it is bound to.

    Args:
        recv_size: bytes of each pooled receive; None for direct receives (the caller's memory is posted).
        recv_count: how many receives the pool keeps posted; up to 4 at first, doubled by bursts up to this number.
        multi_recv: bytes of each buffer, if one buffer is to take many messages (FI_MULTI_RECV). There are then
            ``recv_count`` such buffers, and ``recv_size`` is the longest message. Refused if the provider would write
            past a buffer (shm, sm2, rxd, and rxm of 2.x).
        cancel_grace: seconds that a cancelled direct receive waits for the provider's answer.
        waiting: how the reactor waits for the completion queue.
        busy_poll: the longest time, in microseconds, that adaptive waiting polls before it sleeps.
        close_timeout: seconds for which ``aclose()``, and leaving ``async with``, wait until the peer has received
            everything and has ended the connection, too; 0 does not wait. The call waits only for peers that use
            aiofabric and have pooled receives.
        heartbeat: period in seconds, at least 3. Both sides detect the failure of a host within 1.5 periods. One small
            packet is sent in each period of an idle connection. The end of a process is always noticed at once. Not
            over sockets.
        counters: counters of the same domain, each with the operations that it counts.
        selective: of a connected endpoint: the provider reports only sends that ask for it; for
            `MessageEndpoint.batch`. Refused without a connection, because operations then complete in any order.
        remote_writes: how many writes of a peer that carry ``remote_data`` may wait for `MessageEndpoint.remote_write`;
            0: they are not reported. With it a connection has a completion queue of its own.
        shared_receive: the context that receives the peer's messages; this endpoint itself then cannot receive.
        shared_transmit: the transmit queue to send through.
        open_flags: of fi_endpoint2, such as `OpFlags.PEER_TRANSFER`; only some providers have it.
        preface: whether to add `Preface` bytes to the private data of a connection. False for a peer that does not use
            aiofabric and checks the length of its private data.
        prepare: called with the endpoint's `EndpointSettings` before it is enabled, while every option can still be
            set.
    """

    recv_size: int | None = 65536
    recv_count: int = 64
    multi_recv: int | None = None
    cancel_grace: float = 0.1
    close_timeout: float = 10.0
    waiting: Waiting = Waiting.ADAPTIVE
    busy_poll: float = 200.0
    heartbeat: float | None = None
    selective: bool = False
    remote_writes: int = 0
    counters: Mapping[Counter, Bind] = field(default_factory=dict)
    shared_receive: SharedReceive | None = None
    shared_transmit: SharedTransmit | None = None
    open_flags: OpFlags = OpFlags(0)
    preface: bool = True
    prepare: Callable[[EndpointSettings], object] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if self.recv_size is not None and self.recv_size < 1:
            raise ValueError("recv_size must be at least 1 byte, or None for direct receives")
        if self.multi_recv is not None and self.recv_size is None:
            raise ValueError("multi_recv needs recv_size, the length of the longest message")
        if self.remote_writes < 0:
            raise ValueError("remote_writes must be 0 or more: the number of writes that may wait to be taken")
        if self.remote_writes and self.shared_receive is not None:
            raise ValueError(
                "remote_writes= and shared_receive= exclude each other: events of remote writes need a "
                "completion queue for this endpoint alone"
            )
        if self.recv_count < 1:
            raise ValueError("recv_count must be at least 1")
        for each in self.counters:
            if not isinstance(each, Counter):
                raise TypeError(f"the keys of counters must be Counter objects, not {each!r}")
        if self.heartbeat is not None and not LEAST <= self.heartbeat <= MOST:
            raise ValueError(f"heartbeat must be {LEAST:g} to {MOST:g} seconds, or None")
        if not (self.cancel_grace >= 0 and self.close_timeout >= 0 and self.busy_poll >= 0):
            raise ValueError("cancel_grace, close_timeout (seconds) and busy_poll (microseconds) must not be negative")

    def _check_types(self) -> None:
        """Raise TypeError for a field of a wrong type."""
        for name, what, kinds in _TYPES:
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise TypeError(f"{name} must be {what}, not {value!r}")
        if self.prepare is None:
            return
        if not callable(self.prepare):
            raise TypeError(f"prepare must be a function of the endpoint's settings, or None, not {self.prepare!r}")
        if iscoroutinefunction(self.prepare):
            raise TypeError(f"prepare must be a plain function; no task would await the coroutine of {self.prepare!r}")

    def complete(self, hints: Hints | None, info: Info | None) -> Hints | None:
        """The caller's hints, with the requirements of these options added, unless the caller has chosen an Info."""
        if info is not None or (self.shared_receive is None and self.shared_transmit is None):
            return hints
        hints = Hints() if hints is None else hints
        attr = replace(hints.ep_attr)
        if self.shared_receive is not None:
            attr.rx_ctx_cnt = SHARED_CONTEXT
        if self.shared_transmit is not None:
            attr.tx_ctx_cnt = SHARED_CONTEXT
        return replace(hints, ep_attr=attr)

    def domain_for(self, domain: Domain | None) -> Domain | None:
        """The domain of the shared contexts and counters, or the caller's.

        Raises:
            ValueError: they belong to different domains.
        """
        bound = self._bound()
        domain = bound[0].domain if domain is None and bound else domain
        self._check_domain(domain)
        return domain

    def _check_domain(self, domain: Domain | None) -> None:
        for each in self._bound():
            if each.domain is not domain:  # 1.17's tcp would crash
                raise ValueError(
                    f"{each!r} is of {each.domain!r}, the endpoint of {domain!r}: pass domain= with the one "
                    "on which counters and shared contexts were opened"
                )

    def _bound(self) -> list[SharedReceive | SharedTransmit | Counter]:
        """The objects that the endpoint is bound to; they must belong to one domain."""
        contexts = (self.shared_receive, self.shared_transmit)
        return [*(each for each in contexts if each is not None), *self.counters]

    @property
    def native(self) -> set[str]:
        """The names of the given options that need a native endpoint."""
        return {name for name in _NATIVE if getattr(self, name)}

    def check_virtual(self, provider: str) -> None:
        """Raise if these options need a native endpoint, which a virtual connection does not have."""
        if self.native:
            detail = f"The provider {provider} has no connected endpoints of its own, so these options cannot be used"
            raise NotSupportedError(constants.FI_ENOSYS, ", ".join(sorted(self.native)), detail=detail)

    def open_native(self, domain: Domain, info: Info, request: Any = None) -> Any:
        """The ``struct fid_ep *`` of a new endpoint (fi_endpoint, fi_endpoint2).

        Args:
            request: the ``struct fid *`` of a connection request that the endpoint is to accept.
        """
        self._check_domain(domain)
        check_provider(info)
        check_bindings(self, info)
        out, fid, opened = ffi.new("struct fid_ep **"), domain._handle.fid, as_opened(info, self)
        opened.native.handle = request or info.native_handle()
        try:
            with receives_shared(info):
                if self.open_flags:
                    check(lib.fi_endpoint2(fid, opened.native, out, self.open_flags, ffi.NULL), "fi_endpoint2")
                else:
                    check(lib.fi_endpoint(fid, opened.native, out, ffi.NULL), "fi_endpoint", local=info.src_addr)
        except NotSupportedError as error:
            if self.open_flags:
                error.detail = f"The provider {info.fabric_attr.prov_name} cannot open endpoints with {self.open_flags}"
            raise
        finally:
            opened.native.handle = ffi.NULL  # it may close before the info
        return out[0]

    def bind_queue(self, handle: EndpointHandle, queue: Any) -> None:
        """Bind the endpoint to ``queue`` (fi_ep_bind); with ``shared_receive``, its receives are bound to that
        queue."""
        receives = queue if self.shared_receive is None else self.shared_receive.queues.queue.native
        if receives == queue and not self.selective:
            check(lib.fi_ep_bind(handle.fid, queue, constants.FI_TRANSMIT | constants.FI_RECV), "fi_ep_bind")
            return
        selective = constants.FI_SELECTIVE_COMPLETION if self.selective else 0
        check(lib.fi_ep_bind(handle.fid, queue, constants.FI_TRANSMIT | selective), "fi_ep_bind")
        check(lib.fi_ep_bind(handle.fid, receives, constants.FI_RECV), "fi_ep_bind")

    def apply(self, handle: EndpointHandle) -> None:
        """Make the bindings and settings that must precede fi_enable."""
        for context in (self.shared_receive, self.shared_transmit):
            if context is None:
                continue
            handle.need(context._handle)
            if context is self.shared_receive or shares_transmit(handle.info):
                native = ffi.cast("struct fid *", context._handle.fid)
                check(lib.fi_ep_bind(handle.fid, native, 0), "fi_ep_bind")
        for counter, flags in self.counters.items():
            counter._bind(handle, handle.source, flags)
        self.prepare_inbox(handle)
        if self.prepare is not None:
            self.prepare(EndpointSettings(handle, handle.info, enabled=False))

    def prepare_inbox(self, handle: EndpointHandle) -> None:
        """Make the settings for receives that must precede fi_enable."""
        if self.multi_recv is not None and self.shared_receive is None and receives_messages(handle.info):
            MultiPool.prepare(handle, self._message_size(handle))

    def _message_size(self, handle: EndpointHandle) -> int:
        assert self.recv_size is not None
        return min(self.recv_size, handle.max_size)

    def report_writes(self, handle: EndpointHandle) -> None:
        """Report peers' writes with data, if the options ask for it; the endpoint then has its own queue."""
        if self.remote_writes:
            handle.remote_writes = RemoteWriteQueue(handle, self.remote_writes)

    def open_inbox(self, handle: EndpointHandle) -> None:
        """Post the first receives of an enabled endpoint, if its capabilities allow messages to arrive."""
        if not receives_messages(handle.info):
            return
        prefixed = prefix_of(handle.info)
        if prefixed and (self.recv_size is None or self.multi_recv is not None):
            detail = "The provider puts its own bytes before each message: receive with a plain pool (recv_size=)"
            raise NotSupportedError(constants.FI_ENOSYS, "fi_recv", detail=detail)
        if self.shared_receive is not None:
            handle.pool = SharedInbox(handle, self.shared_receive)
        elif self.recv_size is not None:
            most = most_posted(handle.info.rx_attr.size)
            if Quirk.RECEIVES_SHARE_ROOM in handle.known:
                most = max(1, most // 2)
            size, count = self._message_size(handle), min(self.recv_count, most)
            if prefixed:
                handle.pool = PrefixPool(handle, size, count)
            elif self.multi_recv is not None:
                handle.pool = MultiPool(handle, size, count, self.multi_recv)
            else:
                cut_off = Quirk.TRUNCATES_SILENTLY in handle.known
                kind = TruncationPool if cut_off else Pool if handle.overflow is None else OverflowPool
                handle.pool = kind(handle, size, count)
