"""Requests: the stream of requests of a call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from typing import TYPE_CHECKING, Any

from ...runtime.bursts import Burst
from ..errors import ALREADY_FINISHED, HALF_CLOSED, MIXED_STYLES
from ..grpcio import aio
from ..messages import serialized
from .call import StreamingCall

if TYPE_CHECKING:
    from .rpc import ClientRpc

__all__ = ["Requests"]

_log = logging.getLogger(__name__)


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
        await send(self._rpc, request, self._serializer, self._burst)

    async def done_writing(self) -> None:
        """Tell the server that no more requests follow; it can be repeated."""
        if self._iterates:
            raise aio.UsageError(MIXED_STYLES)
        if not self._half_closed and self._rpc.final is None:
            self._half_closed = True
            self._rpc.half_close()


async def send(rpc: ClientRpc, request: Any, serializer: Callable[[Any], bytes] | None, burst: Burst) -> None:
    """Send one request, when the call has a connection and the peer has room."""
    try:
        if not rpc.attached:
            await rpc.connected()
        if not rpc.over and not rpc.post(serialized(request, serializer)):
            await rpc.room()
            burst.waited()
        elif burst.ended():
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        rpc.cancel_locally()
        raise
    if rpc.final is not None:
        rpc.check()


async def feed(rpc: ClientRpc, serializer: Callable[[Any], bytes] | None, requests: Any) -> None:
    """Send all requests of an iterator; its own errors cancel the call, and are logged."""
    try:
        burst = Burst()
        if isinstance(requests, AsyncIterable):
            async for request in requests:
                await send(rpc, request, serializer, burst)
                if rpc.over:
                    return
        else:
            for request in requests:
                await send(rpc, request, serializer, burst)
                if rpc.over:
                    return
        if not rpc.over:
            rpc.half_close()
    except aio.AioRpcError:
        return  # the program sees it where it reads
    except asyncio.CancelledError:
        rpc.cancel_locally()
    except Exception:
        _log.debug("The iterator of a call's requests raised; the call is cancelled", exc_info=True)
        rpc.cancel_locally()
