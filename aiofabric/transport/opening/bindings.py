"""Bindings: checks that an endpoint's bindings fit it; otherwise libfabric counts nothing, or crashes (fi_ep_bind)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..._ffi import constants
from ...arguments import check_type
from ...errors import NotSupportedError
from ...features import Quirk, quirks
from ...flags import Bind, Caps, EndpointType, OpFlags
from ...info import SHARED_CONTEXT, Info
from ..messages.multi_pool import check_multi_recv

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = [
    "as_opened",
    "check_bindings",
    "check_receives",
    "check_selective",
    "shares_transmit",
    "without_unsafe_flags",
]

_REMOTE = Bind.REMOTE_READ | Bind.REMOTE_WRITE
_PLACES = 256  # entries of a queue for which no hang was observed
_LEVELS: int = constants.FI_INJECT_COMPLETE | constants.FI_TRANSMIT_COMPLETE | constants.FI_DELIVERY_COMPLETE


class Bindings(Protocol):
    """The objects that an endpoint is bound to; `EndpointOptions` has them."""

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


def check_provider(info: Info) -> None:
    """Refuse a provider that cannot do what every endpoint does.

    Raises:
        NotSupportedError: the provider has no plain messages.
    """
    if Quirk.NO_PLAIN_MESSAGES in quirks(info):
        name = info.fabric_attr.prov_name
        detail = (
            f"The provider {name} carries tagged messages only, gives its addresses a wrong format, and lets no peer "
            "reach registered memory, so aiofabric does not use it"
        )
        error = NotSupportedError(constants.FI_EOPNOTSUPP, name, detail=detail)
        error.cure = "Name one of the providers that it links, such as shm or tcp"
        raise error


def check_bindings(options: Bindings, info: Info) -> None:
    """Refuse bindings that an endpoint opened with ``info`` cannot have.

    Raises:
        ValueError: a counter would never count, or a shared context that the hints ask for was not passed.
        NotSupportedError: the provider has no multi-receive buffers, or unsafe ones; or the endpoint's type has no
            selective completion.
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
    """Refuse FI_SELECTIVE_COMPLETION if one completion does not cover the operations before it.

    Raises:
        NotSupportedError: the endpoint has many peers or contexts, whose operations complete in any order.
    """
    if info.ep_attr.type != EndpointType.MSG:
        detail = (
            "Without a connection, operations complete in any order, so no completion covers those before it: "
            "leave selective= out; a batch on such an endpoint still wakes its task only once"
        )
        error = NotSupportedError(constants.FI_EOPNOTSUPP, "selective", detail=detail)
        error.cure = ""  # no other hints would help
        raise error


def check_receives(info: Info, *, multi: bool) -> None:
    """Refuse multi-receive buffers of a provider that writes past them."""
    if multi:
        check_multi_recv(info)


def shares_transmit(info: Info) -> bool:
    """Whether endpoints may be bound to a shared transmit context."""
    return Quirk.SHARED_TRANSMIT_CRASHES not in quirks(info)


def without_unsafe_flags(info: Info) -> Info:
    """Return ``info``, or a copy without default flags that would lose messages; the caller's Info is not changed.

    Without hints, providers list FI_MULTI_RECV among the default flags of receives, as a capability. An endpoint opened
    with it would put many messages into each buffer, and later messages would overwrite earlier ones. Providers also
    list FI_INJECT together with all completion levels. It would limit every send to the size of an injected message.
    """
    check_type("info", info, Info)
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


def as_opened(info: Info, bound: Bindings) -> Info:
    """The Info to open an endpoint with these bindings, so that it behaves as ``info`` says.

    It differs where the provider has a defect, and names the shared contexts: sockets leaves an endpoint that was
    opened without the name in the list of its shared context, also after fi_close (sock_ep.c), and reads freed memory.
    """
    known, sends = quirks(info), info.tx_attr
    more: dict[str, Any] = {}
    shared: dict[str, int] = {}
    if bound.shared_receive is not None:
        shared["rx_ctx_cnt"] = SHARED_CONTEXT
    if bound.shared_transmit is not None:
        shared["tx_ctx_cnt"] = SHARED_CONTEXT if shares_transmit(info) else 1
    if shared:
        more["ep_attr"] = shared
    if Quirk.SHORT_QUEUES_HANG in known:  # the submission queues still use only as many entries as were asked for
        more |= {side: {"size": max(getattr(info, side).size, _PLACES)} for side in ("tx_attr", "rx_attr")}
    if known & (Quirk.INJECT_NEVER_COMPLETES | Quirk.INJECT_WAITS) and OpFlags.INJECT in sends.op_flags:
        more.setdefault("tx_attr", {})["op_flags"] = (
            sends.op_flags & ~OpFlags.INJECT
        )  # the route checks the size limit instead
    return info.replace(**more) if more else info
