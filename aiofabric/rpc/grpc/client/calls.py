"""The call objects that programs hold. Each has a `ClientRpc`, which does not know it.

A call object that the program forgets cancels its call. So the runtime's tables hold the `ClientRpc` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from ..errors import COLLECTED
from ..grpcio import CODES, aio, grpc
from .requests import Requests
from .responses import Responses
from .rpc import ClientRpc

__all__ = ["Call", "StreamStreamCall", "StreamUnaryCall", "UnaryStreamCall", "UnaryUnaryCall"]

Deserializer = Callable[[bytes], Any]
_MISSING: Any = object()


class Call:
    """What all four kinds of calls can."""

    __slots__ = ("__weakref__", "_deserializer", "_rpc")

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None) -> None:
        self._rpc = rpc
        self._deserializer = deserializer

    def cancel(self) -> bool:
        """End the call here at once, and tell the server; False if it has ended."""
        return self._rpc.cancel_locally()

    def cancelled(self) -> bool:
        """Whether the call ended with the status CANCELLED."""
        final = self._rpc.final
        return final is not None and final.code == 1

    def done(self) -> bool:
        """Whether the call has ended, and all its messages were read."""
        return self._rpc.final is not None

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        deadline = self._rpc.deadline
        return None if deadline is None else max(0.0, deadline - monotonic())

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` with this object when the call has ended."""
        self._rpc.when_done(partial(callback, self))

    async def initial_metadata(self) -> Any:
        """Wait for the metadata that the server sends first."""
        return aio.Metadata(*await self._rpc.headers())

    async def trailing_metadata(self) -> Any:
        """Wait for the metadata that goes with the status."""
        return aio.Metadata(*(await self._rpc.end()).metadata)

    async def code(self) -> Any:
        """Wait for the status code."""
        return CODES.get((await self._rpc.end()).code, grpc.StatusCode.UNKNOWN)

    async def details(self) -> str:
        """Wait for the status text."""
        return (await self._rpc.end()).details

    async def debug_error_string(self) -> str:
        """Wait for the end. gRPC's C core gives a text of its own here; this is the empty string."""
        await self._rpc.end()
        return ""

    async def wait_for_connection(self) -> None:
        """Wait until the call has a connection; raises the error of a call that has ended with one."""
        rpc = self._rpc
        await rpc.connected()
        if rpc.final is not None:
            rpc.check()

    def __repr__(self) -> str:
        name, final = type(self).__name__, self._rpc.final
        if final is None:
            return f"<{name} object>"
        status = f"\tstatus = {CODES.get(final.code)}\n\tdetails = {final.details!r}"
        return f"<{name} of RPC that terminated with:\n{status}\n>"


def forget(rpc: ClientRpc) -> None:
    """Cancel a call whose object was collected: soon, because the collector may run anywhere, in any thread."""
    if rpc.final is None and not rpc._loop.is_closed():
        with suppress(RuntimeError):  # the loop was closed meanwhile
            rpc._loop.call_soon_threadsafe(rpc.cancel_locally, COLLECTED)


class UnaryUnaryCall(Call):
    """One request, one response."""

    __slots__ = ("_response",)

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None) -> None:
        self._rpc = rpc
        self._deserializer = deserializer
        self._response = _MISSING

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for the response. If the waiting task is cancelled, so is the call."""
        rpc = self._rpc
        if rpc.final is None:
            try:
                while rpc.final is None:
                    yield from rpc.arrival()
            except asyncio.CancelledError:
                rpc.cancel_locally()
                raise
        if rpc.final.code or rpc.failure is not None:
            rpc.check()
        response = self._response
        if response is _MISSING:
            response = rpc.received
            if self._deserializer is not None:
                response = self._deserializer(response)  # type: ignore[arg-type]
            self._response = response
        return response


class UnaryStreamCall(Responses, Call):
    """One request, many responses."""

    __slots__ = ("_style",)

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None) -> None:
        super().__init__(rpc, deserializer)
        self._style = ""

    def __del__(self) -> None:
        forget(self._rpc)


class StreamUnaryCall(Requests, UnaryUnaryCall):
    """Many requests, one response."""

    __slots__ = ("_half_closed", "_iterates", "_serializer")

    def __init__(self, rpc: ClientRpc, deserializer: Deserializer | None, serializer: Any, requests: Any) -> None:
        super().__init__(rpc, deserializer)
        self._feed(serializer, requests)


class StreamStreamCall(Requests, Responses, Call):
    """Many requests, many responses."""

    __slots__ = ("_half_closed", "_iterates", "_serializer", "_style")

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
