"""Bindings: what an endpoint is to be bound to must fit it, or libfabric counts nothing, or crashes (fi_ep_bind)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..._ffi import constants
from ...errors import NotSupportedError
from ...features import Quirk, quirks
from ...flags import Bind, Caps, EndpointType, OpFlags
from ...info import SHARED_CONTEXT
from ..messages.multi_pool import check_multi_recv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...info import Info

__all__ = ["as_opened", "check_bindings", "check_receives", "check_selective", "without_unsafe_flags"]

_REMOTE = Bind.REMOTE_READ | Bind.REMOTE_WRITE
_PLACES = 256  # of a queue that was never seen to stop
_LEVELS: int = constants.FI_INJECT_COMPLETE | constants.FI_TRANSMIT_COMPLETE | constants.FI_DELIVERY_COMPLETE


class Bindings(Protocol):
    """What an endpoint is bound to; `EndpointOptions` have it."""

    @property
    def counters(self) -> Mapping[Any, Bind]: ...
    @property
    def multi_recv(self) -> int | None: ...
    @property
    def selective(self) -> bool: ...
    @property
    def shared_receive(self) -> object: ...
    @property
    def shared_transmit(self) -> object: ...


def check_bindings(options: Bindings, info: Info) -> None:
    """Refuse what cannot be bound to an endpoint that is opened with ``info``.

    Raises:
        ValueError: a counter would never count, or a context that the hints ask for is not given.
        NotSupportedError: the provider's multi-receive buffers are not safe, or it has none; or the endpoint's kind has
            no selective completion.
    """
    if options.selective:
        check_selective(info)
    check_receives(info, multi=options.multi_recv is not None and options.shared_receive is None)
    sides = (("receive", info.ep_attr.rx_ctx_cnt), ("transmit", info.ep_attr.tx_ctx_cnt))
    for side, count in sides:
        if getattr(options, f"shared_{side}") is None and count == SHARED_CONTEXT:
            raise ValueError(
                f"the hints ask for a shared {side} context (SHARED_CONTEXT), and none is given: pass "
                f"shared_{side}=Shared{side.capitalize()}(domain), or leave it out of the hints"
            )
    counted = Bind(0)
    for flags in options.counters.values():
        if twice := counted & flags:
            raise ValueError(
                f"two counters are to count {twice}: one of them would stay 0. Bind one, and read it twice"
            )
        counted |= flags
    if (remote := counted & _REMOTE) and Caps.RMA_EVENT not in info.caps:
        raise ValueError(
            f"a counter of {remote} stays 0 on an endpoint without FI_RMA_EVENT: ask for it, "
            "hints=Hints(caps=Caps.MSG | Caps.RMA | Caps.RMA_EVENT)"
        )


def check_selective(info: Info) -> None:
    """Refuse FI_SELECTIVE_COMPLETION where one completion does not answer for the operations before it.

    Raises:
        NotSupportedError: the endpoint has many peers, or contexts, and their operations complete in any order.
    """
    if info.ep_attr.type != EndpointType.MSG:
        detail = (
            "Without a connection, operations complete in any order, so that none can answer for those before it: "
            "leave selective= out; a batch there still wakes its task once"
        )
        error = NotSupportedError(constants.FI_EOPNOTSUPP, "selective", detail=detail)
        error.cure = ""  # no other hints would help
        raise error


def check_receives(info: Info, *, multi: bool) -> None:
    """Refuse multi-receive buffers of a provider that writes past them."""
    if multi:
        check_multi_recv(info)


def without_unsafe_flags(info: Info) -> Info:
    """Return ``info``, or a copy without the default flags that would lose messages; the caller's stays as it is.

    Without hints, providers list FI_MULTI_RECV among the default flags of receives, as something that they can do. An
    endpoint opened with it would put many messages into each buffer, where later messages overwrite earlier ones.
    FI_INJECT, listed beside all levels of completion, would limit every send to the size of an injected message.
    """
    receives, sends = info.native.rx_attr.op_flags, info.native.tx_attr.op_flags
    many = receives & constants.FI_MULTI_RECV
    injects = sends & constants.FI_INJECT and sends & _LEVELS == _LEVELS
    if not many and not injects:
        return info
    copy = info.duplicate()
    if many:
        copy.native.rx_attr.op_flags = receives & ~constants.FI_MULTI_RECV
    if injects:
        copy.native.tx_attr.op_flags = sends & ~constants.FI_INJECT
    return copy


def as_opened(info: Info) -> Info:
    """What the provider is given to open an endpoint that is as ``info`` says, where it strays."""
    known, sends = quirks(info), info.tx_attr
    more: dict[str, Any] = {}
    if Quirk.SHORT_QUEUES_HANG in known:  # our submission queues use as many places as were asked for
        more = {side: {"size": max(getattr(info, side).size, _PLACES)} for side in ("tx_attr", "rx_attr")}
    if Quirk.INJECT_NEVER_COMPLETES in known and OpFlags.INJECT in sends.op_flags:
        more.setdefault("tx_attr", {})["op_flags"] = (
            sends.op_flags & ~OpFlags.INJECT
        )  # its limit is the route's to keep
    return info.replace(**more) if more else info
