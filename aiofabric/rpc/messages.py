"""Arguments of programs, checked before they reach the protocol; and iteration over the messages of a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from anyio import EndOfStream

from .._core import refuse_pointers

__all__ = ["MessageIterator", "check_grace", "message_bytes", "method_name"]


def message_bytes(message: Any) -> bytes:
    """The bytes of a message; TypeError if it is not a buffer."""
    if type(message) is bytes:
        return message
    refuse_pointers(message)
    try:
        return bytes(memoryview(message))
    except TypeError:
        raise TypeError(f"A message must be bytes, or another buffer, not {type(message).__name__}") from None


def method_name(method: Any) -> str:
    """The name of a method; TypeError if it is not a str."""
    if not isinstance(method, str):
        raise TypeError(f"The name of a method must be a str such as '/service/method', not {method!r}")
    return method


def check_grace(grace: Any) -> float | None:
    """A grace period in seconds, or None; TypeError or ValueError if it is neither."""
    if grace is None:
        return None
    if not isinstance(grace, int | float):
        raise TypeError(f"The grace period must be a number of seconds, or None, not {grace!r}")
    if not grace >= 0:
        raise ValueError(f"The grace period must not be negative, but it is {grace!r}")
    return grace


class MessageIterator(ABC):
    """Base of `Call` and `ServerContext`: ``async for`` over the messages of the peer. ``_call`` has the inbox."""

    __slots__ = ()

    _call: Any

    @abstractmethod
    async def recv(self) -> bytes:
        """The next message; raises EndOfStream after the last one."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        call = self._call
        if call.inbox:  # without a second coroutine
            message: bytes = call.inbox.popleft()
            call.consumed()
            return message
        try:
            return await self.recv()
        except EndOfStream:
            raise StopAsyncIteration from None
