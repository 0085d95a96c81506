"""Requests: the stream of requests of a call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import ALREADY_FINISHED, HALF_CLOSED, MIXED_STYLES
from ..grpcio import aio

if TYPE_CHECKING:
    from .rpc import ClientRpc

__all__ = ["Requests", "serialized"]

_log = logging.getLogger(__name__)


def serialized(message: Any, serializer: Callable[[Any], bytes] | None) -> bytes:
    """The bytes of a message."""
    if isinstance(message, str):
        message = message.encode()
    data = message if serializer is None else serializer(message)
    if not isinstance(data, bytes):
        raise TypeError(f"A message must be bytes when it is sent, not {type(data).__name__}: give a serializer")
    return data


class Requests:
    """Part of the call objects with many requests: they come from an iterator, or from `write`."""

    __slots__ = ()

    _rpc: ClientRpc
    _half_closed: bool
    _iterates: bool
    _serializer: Callable[[Any], bytes] | None

    def _feed(self, serializer: Callable[[Any], bytes] | None, requests: Any) -> None:
        self._serializer = serializer
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
        await send(self._rpc, request, self._serializer)

    async def done_writing(self) -> None:
        """Tell the server that no more requests follow; it can be repeated."""
        if self._iterates:
            raise aio.UsageError(MIXED_STYLES)
        if not self._half_closed and self._rpc.final is None:
            self._half_closed = True
            self._rpc.half_close()


async def send(rpc: ClientRpc, request: Any, serializer: Callable[[Any], bytes] | None) -> None:
    """Send one request, when the call has a connection and the peer has room."""
    try:
        if not rpc.attached:
            await rpc.connected()
        if not rpc.over and not rpc.post(serialized(request, serializer)):
            await rpc.room()
    except asyncio.CancelledError:
        rpc.cancel_locally()
        raise
    if rpc.final is not None:
        rpc.check()


async def feed(rpc: ClientRpc, serializer: Callable[[Any], bytes] | None, requests: Any) -> None:
    """Send all requests of an iterator; its own errors cancel the call, and are logged."""
    try:
        if isinstance(requests, AsyncIterable):
            async for request in requests:
                await send(rpc, request, serializer)
                if rpc.over:
                    return
        else:
            for request in requests:
                await send(rpc, request, serializer)
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
