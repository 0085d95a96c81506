"""Triggered operations: posted now, started when a counter reaches a threshold (man page: fi_trigger)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..._ffi import constants, ffi
from ...arguments import check_type
from ...errors import NotSupportedError
from ...features import describe, require
from ...flags import Access, Caps, Datatype, HmemIface
from ...resource import Resource
from ..route import Route
from .rma import room_for, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...address_vector import Peer
    from ...cq.counter import Counter
    from ...cq.submission import Transfer
    from ...info import Info
    from ...remote_region import RemoteRegion
    from ..handle import EndpointHandle

__all__ = ["Trigger", "Triggered", "XpuTrigger"]

_TRIGGER = constants.FI_TRIGGER


class Condition(Protocol):
    """The start condition of an operation."""

    def check(self, info: Info, /) -> None:
        """Raise NotSupportedError if the provider does not support such conditions."""

    def fill(self, context: Any, endpoint: EndpointHandle, /) -> None:
        """Write the condition into an operation's ``struct fi_triggered_context``."""

    def drop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Trigger:
    """Start when ``counter`` has reached ``threshold``; the counter belongs to the endpoint's domain.

    Closing an endpoint while an operation waits also closes the counter: otherwise the provider would start the
    operation later, and crash (sock_cntr.c).
    """

    counter: Counter
    threshold: int

    def check(self, info: Info) -> None:
        require(Caps.TRIGGER, info)

    def drop(self) -> None:
        """The endpoint closes while the operation waits: close the counter, which would still start it."""
        self.counter.close()

    def fill(self, context: Any, endpoint: EndpointHandle) -> None:
        handle, owner = self.counter._handle, endpoint.owner
        if handle not in owner.needed:
            # the provider keeps pointers from the operation to its counter, and from the counter to the operation
            owner.need(handle)
        native = ffi.cast("struct fi_triggered_context *", context)
        native.event_type = constants.FI_TRIGGER_THRESHOLD
        native.trigger.threshold.cntr, native.trigger.threshold.threshold = handle.fid, self.threshold


@dataclass(frozen=True, slots=True)
class XpuTrigger:
    """Start when a device has written given values: for each variable its type, address and value.

    `EndpointSettings.xpu_trigger` says which variables the provider wants. Needs an endpoint opened with `Caps.XPU`.
    """

    iface: HmemIface
    device: int
    variables: Sequence[tuple[Datatype, int, int]]
    _keep: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def check(self, info: Info) -> None:
        device = Caps.__members__.get("XPU")
        if device is None:
            detail = f"{describe()}, which have no FI_XPU"
            raise NotSupportedError(constants.FI_ENOSYS, "fi_trigger", detail=detail)
        require(Caps.TRIGGER | device, info)

    def drop(self) -> None:
        """Nothing to do: closing the endpoint also removes the operation that the device would start."""

    def fill(self, context: Any, endpoint: EndpointHandle) -> None:
        variables = ffi.new("struct fi_trigger_var[]", len(self.variables))
        for native, (datatype, address, value) in zip(variables, self.variables, strict=True):
            native.datatype, native.count = datatype, 1
            native.addr, native.value.val64 = ffi.cast("void *", address), value
        self._keep.append(variables)
        native = ffi.cast("struct fi_triggered_context *", context)
        native.event_type = constants.FI_TRIGGER_XPU
        xpu = native.trigger.xpu
        xpu.count, xpu.iface, xpu.device.cuda, xpu.var = len(variables), self.iface, self.device, variables


class _TriggeredRoute(Route):
    """The submission queue of one triggered operation."""

    __slots__ = ("condition",)
    handle: EndpointHandle
    flags = Route.flags | _TRIGGER

    def __init__(self, handle: EndpointHandle, route: Route, condition: Condition) -> None:
        super().__init__(handle, route.peer, route.name)
        self.condition = condition
        handle.owner.orphans.append(self)  # ended with the endpoint

    def _try(self, transfer: Transfer) -> bool:
        self.condition.fill(transfer.slot.pointer, self.handle)
        return super()._try(transfer)

    def end(self, error: Callable[[], BaseException]) -> None:
        if self.posted:
            self.condition.drop()
        super().end(error)

    def retire(self, transfer: Transfer) -> None:
        super().retire(transfer)
        orphans = self.handle.owner.orphans
        if self in orphans:
            orphans.remove(self)


class Triggered(Resource):
    """Operations that wait for a `Trigger`. Mixed into endpoints; opened with `Caps.TRIGGER`.

    The call returns when the operation has completed, so start it as a task. An operation cancelled before its start
    still starts when the condition comes true, unless the endpoint is closed; its buffers stay pinned until then.
    """

    __slots__ = ()
    _handle: EndpointHandle
    info: Info

    async def send_when(
        self,
        condition: Trigger | XpuTrigger,
        data: Any,
        *,
        to: Peer | None = None,
        tag: int | None = None,
        remote_data: int | None = None,
    ) -> None:
        """Send a message, plain or with a tag, when the condition is true.

        Raises:
            NotSupportedError: the endpoint was opened without `Caps.TRIGGER`, or the provider does not support it.

        Man page: fi_trigger, fi_msg (fi_sendmsg), fi_tagged (fi_tsendmsg).
        """
        if tag is not None:
            self._handle.tags.check(tag)
        route = await self._route_when(condition, to)
        flags = route.own_flags(None) | _TRIGGER | constants.FI_COMPLETION
        await route.outcome(route.post(data, tag, remote_data, flags))

    async def write_when(
        self, condition: Trigger | XpuTrigger, local: Any, remote: RemoteRegion, *, to: Peer | None = None
    ) -> int:
        """Write to a peer's memory when the condition is true; otherwise like `write`."""
        return await self._rma_when(condition, "fi_write", source_of(self._handle, local), remote, to)

    async def read_into_when(
        self, condition: Trigger | XpuTrigger, local: Any, remote: RemoteRegion, *, to: Peer | None = None
    ) -> int:
        """Read a peer's memory when the condition is true; otherwise like `read_into`."""
        return await self._rma_when(condition, "fi_read", room_for(self._handle, local), remote, to)

    async def _rma_when(
        self, condition: Trigger | XpuTrigger, what: str, pins: Any, remote: RemoteRegion, to: Peer | None
    ) -> int:
        route = await self._route_when(condition, to)
        size = len(pins)
        remote._check(what, size, Access.REMOTE_READ if what == "fi_read" else Access.REMOTE_WRITE, route.name)
        route.check_size(size, what)
        flags = route.own_flags(None) | _TRIGGER | constants.FI_COMPLETION
        await route.outcome(route.post_rma(what, pins, remote, None, flags))
        return size

    async def _route_when(self, condition: Condition, to: Peer | None) -> Route:
        handle = self._handle
        handle.check_usable("fi_trigger")
        check_type("condition", condition, Trigger, XpuTrigger)
        condition.check(self.info)
        route = handle.route_to(to)
        if handle.checkpoint is not None:
            await handle.checkpoint()
            handle.check_usable("fi_trigger")
        return _TriggeredRoute(handle, route, condition)
