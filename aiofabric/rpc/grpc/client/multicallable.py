"""The four multi-callables: the attributes of a stub. Calling one begins a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from ...._core import StubCore
from ..grpcio import aio
from ..messages import serialized
from ..metadata import mutable, wire, with_compression
from .calls import StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from .intercepted import (
    InterceptedStreamStreamCall,
    InterceptedStreamUnaryCall,
    InterceptedUnaryStreamCall,
    InterceptedUnaryUnaryCall,
)
from .interception import KINDS, Chain
from .pipe import Pipe
from .request_type import checked_serializer
from .rpc import ClientRpc, StreamRpc

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ...channel.channel import ChannelCore


__all__ = [
    "StreamStreamMultiCallable",
    "StreamUnaryMultiCallable",
    "UnaryStreamMultiCallable",
    "UnaryUnaryMultiCallable",
]


LEAST_TIMEOUT: Final = 0.001
"""Seconds. gRPC rounds deadlines up to milliseconds, so that a call without any time, too, is sent."""


class Opener(Protocol):
    """The channel of a multi-callable."""

    compression: Any

    @property
    def core(self) -> ChannelCore:
        """The runtime's channel on the running loop; UsageError after the channel's end."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the channel, when it has been used."""

    def refuse(self, credentials: object) -> ChannelCore:
        """Raise UsageError: credentials of a call need a secure channel."""


class MultiCallable(StubCore, ABC):
    """The parts that all four kinds share."""

    __slots__ = ()

    _channel: Opener
    kind = ""
    rpc: ClassVar[type[ClientRpc]] = ClientRpc
    call_type: ClassVar[type[UnaryUnaryCall] | None] = None
    """The type of call objects that `StubCore` makes, for calls with one message each way."""

    def __init__(
        self,
        channel: Opener,
        method: str | bytes,
        serializer: Callable[[Any], bytes] | None,
        deserializer: Callable[[bytes], Any] | None,
        interceptors: tuple[Any, ...],
    ) -> None:
        method = method.decode() if isinstance(method, bytes) else method
        super().__init__(
            channel, method, checked_serializer(method, serializer), deserializer, self.rpc, self.call_type
        )
        if interceptors:
            self._chain = Chain(KINDS[self.kind], interceptors, self._begin)

    def _loop(self) -> asyncio.AbstractEventLoop:
        self._channel.core  # noqa: B018 - an open channel has a loop
        return self._channel.loop

    def _rpc(
        self,
        method: str,
        timeout: float | None,
        metadata: Any,
        credentials: Any,
        wait_for_ready: bool | None,
        compression: Any,
        request: Any,
        with_request: bool,
    ) -> ClientRpc:
        """Begin a call; with its request, if ``with_request``."""
        channel = self._channel
        core = channel.core if credentials is None else channel.refuse(credentials)
        pairs = wire(metadata) if metadata else ()
        if self._direct is None and not channel.compression:
            self._core, self._direct = core, core.direct
        if compression is None:
            compression = channel.compression
        if compression:
            pairs = with_compression(pairs, compression)
        if isinstance(timeout, int | float) and 0 <= timeout < LEAST_TIMEOUT:
            timeout = LEAST_TIMEOUT
        rpc = self.rpc(channel.loop)
        message = None
        if with_request:
            try:
                message = serialized(request, self._serializer)
            except Exception as error:
                rpc.refuse(error)
                return rpc
        rpc.begin(
            core, method, pairs, timeout=timeout, message=message, end=with_request, wait_for_ready=wait_for_ready
        )
        return rpc

    @abstractmethod
    def _begin(self, details: Any, request: Any) -> Any:
        """Make the call object at the end of the chain of interceptors."""

    def _details(self, timeout: Any, metadata: Any, credentials: Any, wait_for_ready: Any, compression: Any) -> Any:
        """The details of a call for interceptors: the method is bytes there, as in grpc.aio."""
        if credentials is not None:
            self._channel.refuse(credentials)
        metadata = mutable(metadata)
        for key, value in with_compression((), self._channel.compression if compression is None else compression):
            metadata.add(key, value)
        return aio.ClientCallDetails(self._method.encode(), timeout, metadata, credentials, wait_for_ready)

    def _rpc_of_details(self, details: Any, request: Any, with_request: bool) -> ClientRpc:
        """Begin a call with the details that interceptors may have changed."""
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        return self._rpc(
            method,
            details.timeout,
            details.metadata,
            details.credentials,
            details.wait_for_ready,
            0,  # it is in the metadata already
            request,
            with_request,
        )


class UnaryUnaryMultiCallable(MultiCallable):
    """One request, one response.

    `StubCore` begins calls without options, and `_begin_call` begins the others.
    """

    __slots__ = ()
    kind = "unary_unary"
    call_type = UnaryUnaryCall

    def _begin_call(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        """Begin a call, and return its call object."""
        if self._chain is not None:
            details = self._details(timeout, metadata, credentials, wait_for_ready, compression)
            return InterceptedUnaryUnaryCall(self._loop(), self._chain.run(details, request))
        rpc = self._rpc(self._method, timeout, metadata, credentials, wait_for_ready, compression, request, True)
        return UnaryUnaryCall(rpc, self._deserializer)

    def _refused(self, error: BaseException) -> UnaryUnaryCall:
        """The call object of a call whose serializer raised ``error``."""
        rpc = self.rpc(self._channel.loop)
        rpc.refuse(error)
        return UnaryUnaryCall(rpc, self._deserializer)

    def _begin(self, details: Any, request: Any) -> Any:
        return UnaryUnaryCall(self._rpc_of_details(details, request, True), self._deserializer)


class UnaryStreamMultiCallable(MultiCallable):
    """One request, many responses."""

    __slots__ = ()
    kind = "unary_stream"
    rpc = StreamRpc

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        """Begin a call, and return its call object."""
        if self._chain is not None:
            details = self._details(timeout, metadata, credentials, wait_for_ready, compression)
            return InterceptedUnaryStreamCall(self._loop(), self._chain.run(details, request))
        rpc = self._rpc(self._method, timeout, metadata, credentials, wait_for_ready, compression, request, True)
        return UnaryStreamCall(rpc, self._deserializer)

    def _begin(self, details: Any, request: Any) -> Any:
        return UnaryStreamCall(self._rpc_of_details(details, request, True), self._deserializer)


class StreamUnaryMultiCallable(MultiCallable):
    """Many requests, one response."""

    __slots__ = ()
    kind = "stream_unary"

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        """Begin a call, and return its call object. Requests come from the iterator, or from its `write`."""
        if self._chain is not None:
            loop = self._loop()
            details = self._details(timeout, metadata, credentials, wait_for_ready, compression)
            pipe = Pipe(loop) if request_iterator is None else None
            run = self._chain.run(details, request_iterator if pipe is None else pipe)
            return InterceptedStreamUnaryCall(loop, run, pipe)
        rpc = self._rpc(self._method, timeout, metadata, credentials, wait_for_ready, compression, None, False)
        return StreamUnaryCall(rpc, self._deserializer, self._serializer, request_iterator)

    def _begin(self, details: Any, request: Any) -> Any:
        rpc = self._rpc_of_details(details, None, False)
        return StreamUnaryCall(rpc, self._deserializer, self._serializer, request)


class StreamStreamMultiCallable(MultiCallable):
    """Many requests, many responses."""

    __slots__ = ()
    kind = "stream_stream"
    rpc = StreamRpc

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: bool | None = None,
        compression: Any = None,
    ) -> Any:
        """Begin a call, and return its call object. Requests come from the iterator, or from its `write`."""
        if self._chain is not None:
            loop = self._loop()
            details = self._details(timeout, metadata, credentials, wait_for_ready, compression)
            pipe = Pipe(loop) if request_iterator is None else None
            run = self._chain.run(details, request_iterator if pipe is None else pipe)
            return InterceptedStreamStreamCall(loop, run, pipe)
        rpc = self._rpc(self._method, timeout, metadata, credentials, wait_for_ready, compression, None, False)
        return StreamStreamCall(rpc, self._deserializer, self._serializer, request_iterator)

    def _begin(self, details: Any, request: Any) -> Any:
        rpc = self._rpc_of_details(details, None, False)
        return StreamStreamCall(rpc, self._deserializer, self._serializer, request)


aio.UnaryUnaryMultiCallable.register(UnaryUnaryMultiCallable)
aio.UnaryStreamMultiCallable.register(UnaryStreamMultiCallable)
aio.StreamUnaryMultiCallable.register(StreamUnaryMultiCallable)
aio.StreamStreamMultiCallable.register(StreamStreamMultiCallable)
