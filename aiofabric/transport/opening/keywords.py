"""Keywords: the typed options of connect, listen, accept and open_endpoint; errors name the called function.

`EndpointKeywords` repeats the fields of `EndpointOptions`, because neither can be made of the other. Type checkers and
editors take keywords from a TypedDict only (PEP 692), which must be written out: they evaluate no expression that lists
its fields. A dataclass whose fields are made of a TypedDict has attributes without types. A test compares the two.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .options import EndpointOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ...cq.counter import Counter
    from ...cq.polling import Waiting
    from ...flags import Bind, OpFlags
    from ...settings import EndpointSettings
    from ..opening.shared_contexts import SharedReceive, SharedTransmit

__all__ = ["EndpointKeywords", "ServerKeywords", "StreamKeywords", "endpoint_options", "stream_options"]

_NAMES = tuple(each.name for each in fields(EndpointOptions))
_PUBLIC = ("aiofabric", "aiofabric.streams", "aiofabric.aio", "aiofabric.pipeline", "aiofabric.integrations.arrow")


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


_CHOSEN_BY_STREAMS = frozenset(_NAMES) - StreamKeywords.__annotations__.keys()


def endpoint_options(
    function: str, options: Mapping[str, Any], *, chosen: Collection[str] = (), own: Sequence[str] | None = None
) -> EndpointOptions:
    """The options of a call of ``function``. ``chosen``: those that it does not take, because it chooses them itself.

    Errors list all options of the call. ``own``: its other keywords; by default those of the public function or class
    of this name.

    Raises:
        TypeError, ValueError: an unknown option, or a wrong value; the text names ``function``.
    """
    taken = [name for name in _NAMES if name not in chosen]
    wrong = next((name for name in options if name not in taken), None)
    if wrong is not None:
        names = [*taken, *(_keywords_of(function) if own is None else own)]
        raise TypeError(_refusal(function, wrong, names, chosen))
    try:
        return EndpointOptions(**options)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{function}(): {error}") from None


def stream_options(function: str, options: Mapping[str, Any], *, own: Sequence[str] | None = None) -> StreamKeywords:
    """The options of a call of ``function`` that opens a stream or a transport.

    Raises:
        TypeError, ValueError: an option that streams do not have, or a wrong value; the text names ``function``.
    """
    endpoint_options(function, options, chosen=_CHOSEN_BY_STREAMS, own=own)
    return cast("StreamKeywords", options)


def _refusal(function: str, wrong: str, names: list[str], chosen: Collection[str]) -> str:
    listed = ", ".join(names)
    if wrong in chosen:
        return f"{function}() chooses {wrong} itself; its options are {listed}"
    from difflib import get_close_matches

    near = get_close_matches(wrong, names, 1)
    if wrong == "timeout":
        meant = "Set time limits with asyncio.timeout() or anyio.fail_after()"
    elif near:
        meant = f"Did you mean {near[0]}?"
    else:
        meant = f"Its options are {listed}"
    return f"{function}() got an unexpected option {wrong!r}. {meant}"


def _keywords_of(function: str) -> list[str]:
    """The keywords that the public function or class of this name lists itself; none of a class of the program."""
    from inspect import Parameter, signature

    for module in _PUBLIC:
        found = getattr(sys.modules.get(module), function, None)
        if found is not None:
            return [each.name for each in signature(found).parameters.values() if each.kind == Parameter.KEYWORD_ONLY]
    return []
