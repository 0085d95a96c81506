"""Keywords: the typed options of connect, listen, accept and open_endpoint; errors name the called function.

`EndpointKeywords` repeats the fields of `EndpointOptions`, because neither can be made of the other. Type checkers and
editors take keywords from a TypedDict only (PEP 692), which must be written out: they evaluate no expression that lists
its fields. A dataclass whose fields are made of a TypedDict has attributes without types. A test compares the two.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .options import EndpointOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...cq.counter import Counter
    from ...cq.polling import Waiting
    from ...flags import Bind, OpFlags
    from ...settings import EndpointSettings
    from ..opening.shared_contexts import SharedReceive, SharedTransmit

__all__ = ["EndpointKeywords", "ServerKeywords", "StreamKeywords", "endpoint_options", "stream_options"]

_NAMES = tuple(each.name for each in fields(EndpointOptions))


class StreamKeywords(TypedDict, total=False):
    """Options of the endpoints of streams and transports, which choose their receives themselves."""

    cancel_grace: float
    close_timeout: float
    waiting: Waiting
    busy_poll: float
    heartbeat: float | None
    prepare: Callable[[EndpointSettings], object] | None


class ServerKeywords(StreamKeywords, total=False):
    """Options of the endpoints of an RPC server, which chooses the size of its receives itself."""

    multi_recv: int | None
    selective: bool
    remote_writes: int
    counters: Mapping[Counter, Bind]
    shared_receive: SharedReceive | None
    shared_transmit: SharedTransmit | None
    open_flags: OpFlags
    preface: bool


class EndpointKeywords(ServerKeywords, total=False):
    """The fields of `EndpointOptions` as keywords: ``**options: Unpack[EndpointKeywords]``."""

    recv_size: int | None
    recv_count: int


def endpoint_options(function: str, options: Mapping[str, Any]) -> EndpointOptions:
    """The options of a call of ``function``.

    Raises:
        TypeError, ValueError: an unknown option, or a wrong value; the text names ``function``.
    """
    unknown = next((name for name in options if name not in _NAMES), None)
    if unknown is not None:
        from difflib import get_close_matches

        near = get_close_matches(unknown, _NAMES, 1)
        if unknown == "timeout":
            meant = "Set time limits with asyncio.timeout() or anyio.fail_after()"
        elif near:
            meant = f"Did you mean {near[0]}?"
        else:
            meant = f"Its options are {', '.join(_NAMES)}"
        raise TypeError(f"{function}() got an unexpected option {unknown!r}. {meant}")
    try:
        return EndpointOptions(**options)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{function}(): {error}") from None


def stream_options(function: str, options: Mapping[str, Any]) -> StreamKeywords:
    """The options of a call of ``function`` that opens a stream or a transport.

    Raises:
        TypeError, ValueError: an option that streams do not have, or a wrong value; the text names ``function``.
    """
    names = StreamKeywords.__annotations__
    if left := [name for name in options if name in _NAMES and name not in names]:
        raise TypeError(f"{function}() chooses {left[0]} itself; its options are {', '.join(names)}")
    endpoint_options(function, options)
    return cast("StreamKeywords", options)
