"""Responses: the stream of responses of a call."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from ..errors import MIXED_STYLES
from ..grpcio import EOF, aio
from .call import StreamingCall

__all__ = ["Responses"]


class Responses(StreamingCall):
    """A call with many responses: they are read with `read`, or by iterating."""

    __slots__ = ()

    def _choose(self, style: str) -> None:
        if not self._style:
            self._style = style
        elif self._style != style:
            raise aio.UsageError(MIXED_STYLES)

    async def _next(self) -> Any:
        """The next response; EOF after the last one of a call that ended with OK."""
        rpc = self._rpc
        while (message := rpc.take()) is EOF:
            if rpc.final is not None:
                if rpc.final.code or rpc.failure is not None:
                    rpc.check()
                return EOF
            try:
                await rpc.arrival()
            except asyncio.CancelledError:
                rpc.cancel_locally()
                raise
        return message if self._deserializer is None else self._deserializer(message)

    def __aiter__(self) -> Self:
        """Iterate over the responses. If the waiting task is cancelled, so is the call."""
        self._choose("iterator")
        return self

    async def __anext__(self) -> Any:
        response = await self._next()
        if response is EOF:
            raise StopAsyncIteration
        return response

    async def read(self) -> Any:
        """The next response; EOF after the last one. If the waiting task is cancelled, so is the call."""
        if self._rpc.final is None:
            self._choose("read")
        return await self._next()
