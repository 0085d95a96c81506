"""Requests: the stream of requests of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ....cq.loops.bursts import Burst
from ..errors import ALREADY_FINISHED, HALF_CLOSED, MIXED_STYLES
from ..grpcio import aio
from ..messages import serialized
from .call import StreamingCall

if TYPE_CHECKING:
    from .rpc import ClientRpc

__all__ = ["Requests"]


class Requests(StreamingCall):
    """A call with many requests: they come from an iterator, or from `write`."""

    __slots__ = ()

    def _feed(self, serializer: Callable[[Any], bytes] | None, requests: Any) -> None:
        self._serializer = serializer
        self._burst = Burst()
        self._half_closed = False
        self._iterates = requests is not None
        if requests is not None and self._rpc.final is None:
            rpc = self._rpc
            rpc._feeder = rpc._loop.create_task(feed(rpc, serializer, requests))

    async def write(self, request: Any) -> None:
        """Send a request. If the waiting task is cancelled, so is the call."""
        if self._iterates:
            raise aio.UsageError(MIXED_STYLES)
        if self._rpc.final is not None:
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        if self._half_closed:
            raise asyncio.InvalidStateError(HALF_CLOSED)
        rpc = self._rpc
        try:
            await send(rpc, request, self._serializer, self._burst)
        except asyncio.CancelledError:
            rpc.cancel_locally()
            raise
        if rpc.final is not None:
            rpc.check()

    async def done_writing(self) -> None:
        """Tell the server that no more requests follow; it can be repeated."""
        if self._iterates:
            raise aio.UsageError(MIXED_STYLES)
        if not self._half_closed and self._rpc.final is None:
            self._half_closed = True
            self._rpc.half_close()


async def send(rpc: ClientRpc, request: Any, serializer: Callable[[Any], bytes] | None, burst: Burst) -> bool:
    """Send one request, when the call has a connection and the peer has room; False if the call is over."""
    if not rpc.attached:
        await rpc.connected()
    if not rpc.over and not rpc.post(serialized(request, serializer)):
        await rpc.room()
        burst.waited()
    elif burst.ended():
        await asyncio.sleep(0)
    return not rpc.over


async def feed(rpc: ClientRpc, serializer: Callable[[Any], bytes] | None, requests: Any) -> None:
    """Send all requests of an iterator. Its exception, or the serializer's, ends the call; the program gets it."""
    try:
        burst = Burst()
        if isinstance(requests, AsyncIterable):
            async for request in requests:
                if not await send(rpc, request, serializer, burst):
                    return
        else:
            if not isinstance(requests, Iterable) and not hasattr(requests, "__getitem__"):
                raise TypeError(f"The requests of a call must be an iterable, or an async one, not {requests!r}")
            for request in requests:
                if not await send(rpc, request, serializer, burst):
                    return
        rpc.half_close()
    except asyncio.CancelledError:
        if not rpc.over:  # else the end of the call was the reason, and its responses can still be read
            rpc.cancel_locally()
    except GeneratorExit:  # the loop has ended
        raise
    except BaseException as error:
        rpc.give_up(error)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
