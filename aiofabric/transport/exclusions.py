"""Exclusions: calls that an endpoint refuses, because it was opened without the capability (man page: fi_getinfo,
caps).

The decision is made once, when the endpoint opens. The class of the endpoint is replaced by a subclass. In it, each
call that the capabilities exclude raises an error that names the missing capability. So the other calls need no check,
and an endpoint with all capabilities keeps its class.
"""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .._ffi import constants
from ..errors import NotSupportedError
from ..flags import Caps
from .messages.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..info import Info

__all__ = ["exclude", "lacking", "receives_messages", "refusal"]


class _Calls(NamedTuple):
    kind: Caps
    direction: Caps
    names: tuple[str, ...]


_TABLE = (
    _Calls(Caps.MSG, Caps.SEND, ("send", "try_send", "send_nowait")),
    _Calls(Caps.MSG, Caps.RECV, ("recv", "recv_nowait", "recv_into", "recv_view", "set_sink")),
    _Calls(Caps.TAGGED, Caps.SEND, ("send_tagged",)),
    _Calls(
        Caps.TAGGED,
        Caps.RECV,
        ("recv_tagged", "recv_tagged_into", "peek_tagged", "claim_tagged", "discard_tagged"),
    ),
    _Calls(Caps.RMA, Caps.READ, ("read", "read_into", "read_into_when")),
    _Calls(Caps.RMA, Caps.WRITE, ("write", "write_when")),
    _Calls(Caps.RMA, Caps.REMOTE_WRITE, ("remote_write", "remote_writes")),
    _Calls(Caps.ATOMIC, Caps.WRITE, ("atomic", "try_atomic")),
    _Calls(Caps.ATOMIC, Caps.READ, ("fetch_atomic", "compare_atomic")),
)
_MEMORY = Caps.RMA | Caps.ATOMIC
_MEMORY_DIRECTIONS = Caps.READ | Caps.WRITE | Caps.REMOTE_READ | Caps.REMOTE_WRITE
_TRANSMIT = Caps.SEND | Caps.READ | Caps.WRITE
_RECEIVE = Caps.RECV | Caps.REMOTE_READ | Caps.REMOTE_WRITE


def lacking(info: Info, kind: Caps, direction: Caps) -> Caps:
    """Capabilities that an endpoint opened with ``info`` lacks for one kind of operation.

    The context that transmits or receives may have fewer than the endpoint. No direction in caps means all.
    """
    return _lacking_here(info.caps, info.tx_attr.caps, info.rx_attr.caps, kind, direction)


@lru_cache(4096)  # each connection asks a dozen times: 0.2 ms
def _lacking_here(whole: Caps, transmit: Caps, receive: Caps, kind: Caps, direction: Caps) -> Caps:
    missing = Caps(0)
    for side, part in ((_TRANSMIT, transmit), (_RECEIVE, receive)):
        if asked := direction & side:
            missing |= _lacking(whole, kind, asked) or (part and _lacking(part, kind, asked))
    return missing


def _lacking(caps: Caps, kind: Caps, direction: Caps) -> Caps:
    if kind not in caps:
        return kind | direction
    said = _MEMORY_DIRECTIONS if kind & _MEMORY else Caps.SEND | Caps.RECV
    return direction & ~caps if caps & said else Caps(0)


def receives_messages(info: Info) -> bool:
    """Whether plain messages may arrive, so that receives must be posted."""
    return not lacking(info, Caps.MSG, Caps.RECV)


def refusal(call: str, missing: Caps) -> NotSupportedError:
    """The error for a call that the endpoint's capabilities leave out."""
    wanted = " | ".join(f"Caps.{each.name}" for each in missing)
    detail = (
        f"The endpoint was opened without {missing}: add {wanted} to the capabilities it is opened with, or name none"
    )
    return NotSupportedError(constants.FI_EOPNOTSUPP, call, detail=detail)


def exclude(endpoint: Any, *, messages: Caps = Caps.MSG) -> None:
    """Make the endpoint refuse calls that its capabilities leave out; ``messages`` is the capability of plain
    messages."""
    info: Info = endpoint.info
    opened: Any = type(endpoint)
    missing: list[tuple[str, Caps]] = []
    for kind, direction, names in _TABLE:
        lacks = lacking(info, messages if kind == Caps.MSG else kind, direction)
        if lacks and (kind in info.caps or not kind & _MEMORY):  # memory operations themselves check for their kind
            missing += [(name, lacks) for name in names if hasattr(opened, name)]
    if missing:
        endpoint.__class__ = _without(opened, tuple(missing))


@cache
def _without(kind: Any, missing: tuple[tuple[str, Caps], ...]) -> type[Any]:
    """The subclass of ``kind`` in which these calls raise."""
    lacks = dict(missing)
    plain = lacks.get("send")
    tagged = lacks.get("send_tagged") if hasattr(kind, "send_tagged") else plain
    body: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__}
    body |= {name: _refusing(name, caps) for name, caps in missing}
    if plain or tagged:
        if hasattr(kind, "batch"):
            body["batch"] = _batching(kind.batch, plain, tagged)
        if hasattr(kind, "send_when"):
            body["send_when"] = _sending(kind.send_when, plain, tagged)
    return type(kind.__name__, (kind,), body)


def _refusing(name: str, missing: Caps) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise refusal(name, missing)

    return refuse


def _check(call: str, tag: int | None, plain: Caps | None, tagged: Caps | None) -> None:
    missing = plain if tag is None else tagged
    if missing:
        raise refusal(call, missing)


class _PartialBatch(Batch):
    """A batch of plain or of tagged messages only."""

    check: Callable[[int | None], None]

    async def send(self, data: Any, *, tag: int | None = None, remote_data: int | None = None) -> None:
        self.check(tag)
        await super().send(data, tag=tag, remote_data=remote_data)


def _batching(batch: Any, plain: Caps | None, tagged: Caps | None) -> Any:
    def restricted(self: Any, **to: Any) -> Batch:
        if plain and tagged:
            raise refusal("batch", plain)
        made: Batch = batch(self, **to)
        made.__class__ = _PartialBatch
        made.check = partial(_check, "batch", plain=plain, tagged=tagged)  # type: ignore[attr-defined]
        return made

    return restricted


def _sending(send_when: Any, plain: Caps | None, tagged: Caps | None) -> Any:
    async def restricted(self: Any, *args: Any, tag: int | None = None, **options: Any) -> None:
        _check("send_when", tag, plain, tagged)
        await send_when(self, *args, tag=tag, **options)

    return restricted
