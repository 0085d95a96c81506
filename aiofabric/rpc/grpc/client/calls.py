"""The call objects that programs hold, of the four kinds.

A streaming call is cancelled when the program drops its call object. So the runtime's tables refer to the `ClientRpc`,
and not to the call object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...._core import ResponseCore
from ..errors import COLLECTED
from ..grpcio import aio
from .call import Call
from .requests import Requests
from .responses import Responses

if TYPE_CHECKING:
    from .rpc import ClientRpc

__all__ = ["StreamStreamCall", "StreamUnaryCall", "UnaryStreamCall", "UnaryUnaryCall"]

Deserializer = Callable[[bytes], Any]


def forget(rpc: ClientRpc) -> None:
    """Cancel a call whose object was collected: soon, because the collector may run anywhere, in any thread."""
    if rpc.final is None and not rpc._loop.is_closed():
        with suppress(RuntimeError):  # the loop was closed meanwhile
            rpc._loop.call_soon_threadsafe(rpc.cancel_locally, COLLECTED)


class OneResponse(ResponseCore, Call):
    """A call with one response, which is awaited. If the waiting task is cancelled, so is the call.

    `ResponseCore` polls, and waits as the call's receiver on asyncio. It leaves every other wait to `_wait`.
    """

    __slots__ = ()

    def _wait(self) -> Generator[Any, None, Any]:
        """Wait for the response."""
        rpc = self._rpc
        try:
            while rpc.final is None:
                yield from rpc.arrival().__await__()
        except asyncio.CancelledError:
            rpc.cancel_locally()
            raise
        return self._outcome()

    def _outcome_later(self) -> Generator[Any, None, Any]:
        """The response is there, after many awaits in a row that did not wait: let other tasks run first."""
        yield from self._rpc.yield_to_loop().__await__()
        return self._outcome()


class UnaryUnaryCall(OneResponse):
    """One request, one response."""

    __slots__ = ()


class UnaryStreamCall(Responses):
    """One request, many responses."""

    __slots__ = ()

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None) -> None:
        super().__init__(rpc, deserializer)
        self._style = ""

    def __del__(self) -> None:
        forget(self._rpc)


class StreamUnaryCall(Requests, OneResponse):
    """Many requests, one response."""

    __slots__ = ()

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None, serializer: Any, requests: Any) -> None:
        super().__init__(rpc, deserializer)
        self._feed(serializer, requests)


class StreamStreamCall(Requests, Responses):
    """Many requests, many responses."""

    __slots__ = ()

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None, serializer: Any, requests: Any) -> None:
        super().__init__(rpc, deserializer)
        self._style = ""
        self._feed(serializer, requests)

    def __del__(self) -> None:
        forget(self._rpc)


# Interceptors and programs ask with isinstance().
aio.UnaryUnaryCall.register(UnaryUnaryCall)
aio.UnaryStreamCall.register(UnaryStreamCall)
aio.StreamUnaryCall.register(StreamUnaryCall)
aio.StreamStreamCall.register(StreamStreamCall)
