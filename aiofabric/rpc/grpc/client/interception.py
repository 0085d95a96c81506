"""The chain of client interceptors. It uses only one part of the client: a function that creates a call object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..grpcio import aio
from .answers import AnsweredCall, AnsweredStreamStreamCall, AnsweredUnaryStreamCall

__all__ = ["KINDS", "Begin", "Chain", "Kind", "sorted_by_kind"]

Begin = Callable[[Any, Any], Any]
"""Takes the details of a call, and its request or the iterator of its requests, and returns a call object."""


class Kind(NamedTuple):
    """One of the four kinds of calls, as interceptors see it."""

    name: str
    interceptor: type
    method: str
    call: type
    streams: bool
    answered: Callable[[Any, Any], Any]
    """Makes a call object of the last call of the chain, and what the interceptor returned instead of a call."""


def _answered_once(_call: Any, response: Any) -> Any:
    return AnsweredCall(response)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "unary_unary",
            aio.UnaryUnaryClientInterceptor,
            "intercept_unary_unary",
            aio.UnaryUnaryCall,
            False,
            _answered_once,
        ),
        Kind(
            "unary_stream",
            aio.UnaryStreamClientInterceptor,
            "intercept_unary_stream",
            aio.UnaryStreamCall,
            True,
            AnsweredUnaryStreamCall,
        ),
        Kind(
            "stream_unary",
            aio.StreamUnaryClientInterceptor,
            "intercept_stream_unary",
            aio.StreamUnaryCall,
            False,
            _answered_once,
        ),
        Kind(
            "stream_stream",
            aio.StreamStreamClientInterceptor,
            "intercept_stream_stream",
            aio.StreamStreamCall,
            True,
            AnsweredStreamStreamCall,
        ),
    )
}


def sorted_by_kind(interceptors: Iterable[Any] | None) -> dict[str, tuple[Any, ...]]:
    """The interceptors of each kind of calls, in their order; ValueError for an object that is none."""
    found: dict[str, list[Any]] = {name: [] for name in KINDS}
    for interceptor in interceptors or ():
        for kind in KINDS.values():
            if isinstance(interceptor, kind.interceptor):
                found[kind.name].append(interceptor)
                break
        else:
            names = ", ".join(kind.interceptor.__name__ for kind in KINDS.values())
            raise ValueError(f"An interceptor must be an instance of one of {names}; this is none: {interceptor!r}")
    return {name: tuple(each) for name, each in found.items()}


class Chain:
    """The interceptors of one kind around ``begin``: the first one of the list is the outermost."""

    __slots__ = ("_begin", "_interceptors", "_kind")

    def __init__(self, kind: Kind, interceptors: Iterable[Any], begin: Begin) -> None:
        self._kind = kind
        self._interceptors = [getattr(interceptor, kind.method) for interceptor in interceptors]
        self._begin = begin

    async def run(self, details: Any, request: Any, place: int = 0) -> Any:
        """Run the interceptors from ``place`` on; returns a call object."""
        if place == len(self._interceptors):
            return self._begin(details, request)
        step = _Continuation(self, place + 1)
        result = await self._interceptors[place](step, details, request)
        if isinstance(result, self._kind.call):
            return result
        return self._kind.answered(step.call, result)


class _Continuation:
    """The continuation of an interceptor; it may be called several times. ``call`` is its last result."""

    __slots__ = ("_chain", "_place", "call")

    def __init__(self, chain: Chain, place: int) -> None:
        self._chain = chain
        self._place = place
        self.call: Any = None

    async def __call__(self, details: Any, request: Any) -> Any:
        self.call = await self._chain.run(details, request, self._place)
        return self.call
