"""Calls that an interceptor has answered itself: with a response, or with an iterator of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..callbacks import check_callback
from ..grpcio import EOF, aio, grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

__all__ = ["AnsweredCall", "AnsweredStream", "AnsweredStreamStreamCall", "AnsweredUnaryStreamCall"]


class AnsweredCall:
    """A call with one response that an interceptor gave: it has ended with OK, and was not sent to a server."""

    __slots__ = ("__weakref__", "_response")

    def __init__(self, response: Any) -> None:
        self._response = response

    def cancel(self) -> bool:
        """False: the call has ended."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    def done(self) -> bool:
        """True."""
        return True

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` with this object now."""
        check_callback(callback)
        callback(self)

    def time_remaining(self) -> float | None:
        """There is no deadline: None."""
        return None

    async def initial_metadata(self) -> None:
        """There is none."""

    async def trailing_metadata(self) -> None:
        """There is none."""

    async def code(self) -> Any:
        """OK."""
        return grpc.StatusCode.OK

    async def details(self) -> str:
        """The empty text."""
        return ""

    async def debug_error_string(self) -> None:
        """There is none."""

    async def wait_for_connection(self) -> None:
        """Nothing to wait for."""

    def __await__(self) -> Generator[Any, None, Any]:
        """The response, at once."""
        return self._response
        yield  # makes this a generator


class AnsweredStream:
    """Responses from an interceptor's iterator. The rest is that of ``call``, if the interceptor began one."""

    __slots__ = ("__weakref__", "_call", "_iterator", "_responses")

    def __init__(self, call: Any, responses: Any) -> None:
        self._call = AnsweredCall(None) if call is None else call
        self._responses = responses
        self._iterator: AsyncIterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the interceptor's responses."""
        if self._iterator is None:
            self._iterator = aiter(self._responses)
        return self._iterator

    async def read(self) -> Any:
        """The interceptor's next response; EOF after the last one."""
        return await anext(aiter(self), EOF)


class AnsweredUnaryStreamCall(AnsweredStream):
    """One request, and responses of an interceptor."""

    __slots__ = ()


class AnsweredStreamStreamCall(AnsweredStream):
    """Many requests, and responses of an interceptor."""

    __slots__ = ()


aio.UnaryUnaryCall.register(AnsweredCall)
aio.StreamUnaryCall.register(AnsweredCall)
aio.UnaryStreamCall.register(AnsweredUnaryStreamCall)
aio.StreamStreamCall.register(AnsweredStreamStreamCall)
