"""Channel: connections to a target, and the multi-callables of its stubs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from ....errors import WrongLoopError
from ...channel.channel import ChannelCore
from ...channel.subchannel import Connectivity
from ..grpcio import aio, grpc
from ..names import resolve_name
from ..options import channel_arguments, checked, limits_of
from .interception import sorted_by_kind
from .multicallable import (
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
)

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Channel", "insecure_channel", "secure_channel"]

Serializer = Callable[[Any], bytes] | None
Deserializer = Callable[[bytes], Any] | None


_STATES = {state.value[0]: state for state in grpc.ChannelConnectivity}
_CLOSED = "Channel is closed."


class Channel(aio.Channel):
    """A channel as grpc.aio's. It belongs to the loop in which it is first used."""

    def __init__(self, target: str | bytes, options: Any, compression: Any, interceptors: Any) -> None:
        if not isinstance(target, str | bytes):
            raise TypeError(f"The target of a channel must be str, not {target!r}")
        self._target = target.decode() if isinstance(target, bytes) else target
        self._options = checked(options)
        self._arguments = channel_arguments(self._options)
        self._interceptors = sorted_by_kind(interceptors)
        self.compression = compression or self._options.get("grpc.default_compression_algorithm")
        """The compression of calls that name none."""
        self._core: ChannelCore | None = None
        self._closing = False
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    # -- the runtime

    @property
    def core(self) -> ChannelCore:
        """The runtime's channel. UsageError after `close`; WrongLoopError in another loop than the first one."""
        if self._closing:
            raise aio.UsageError(_CLOSED)
        loop = asyncio.get_running_loop()
        if self._core is None:
            self._core = self._open()
            self._core.bind()
            self._loop = self._core.direct.loop = loop
        elif loop is not self._loop:
            raise WrongLoopError(f"the channel to {self._target} belongs to another event loop: make one for each loop")
        return self._core

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the channel, when it has been used."""
        assert self._loop is not None
        return self._loop

    def _open(self) -> ChannelCore:
        return ChannelCore(self._target, limits_of(self._options), resolver=resolve_name, **self._arguments)

    def refuse(self, credentials: object) -> ChannelCore:
        """Raise UsageError: credentials of a call need a secure channel."""
        if self._closing:
            raise aio.UsageError(_CLOSED)
        raise aio.UsageError("Call credentials are only valid on secure channels")

    # -- connectivity

    def get_state(self, try_to_connect: bool = False) -> Any:
        """The connectivity. With ``try_to_connect``, an idle channel begins to connect."""
        if self._closing:
            return grpc.ChannelConnectivity.SHUTDOWN
        if self._core is None and not try_to_connect:
            return grpc.ChannelConnectivity.IDLE
        return _STATES[self.core.get_state(try_to_connect)]

    async def wait_for_state_change(self, last_observed_state: Any) -> None:
        """Wait until the connectivity is another one; `close` ends the wait."""
        if self._closing:
            raise aio.UsageError(_CLOSED)
        await self.core.wait_for_state_change(Connectivity(last_observed_state.value[0]))

    async def channel_ready(self) -> None:
        """Connect, and wait for the connection, however long it takes."""
        while (state := self.get_state(try_to_connect=True)) != grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    # -- the end

    async def close(self, grace: float | None = None) -> None:
        """Begin no more calls, let those that run end within ``grace`` seconds, and cancel the rest."""
        if self._closing:
            return
        if grace is not None and grace < 0:
            raise ValueError(f"grace must not be negative: {grace}")
        self._closing = True
        if self._core is not None:
            await self._core.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()

    # -- multi-callables

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UnaryUnaryMultiCallable:
        """The multi-callable of a method with one request and one response."""
        interceptors = self._interceptors["unary_unary"]
        return UnaryUnaryMultiCallable(self, method, request_serializer, response_deserializer, interceptors)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> UnaryStreamMultiCallable:
        """The multi-callable of a method with one request and many responses."""
        interceptors = self._interceptors["unary_stream"]
        return UnaryStreamMultiCallable(self, method, request_serializer, response_deserializer, interceptors)

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> StreamUnaryMultiCallable:
        """The multi-callable of a method with many requests and one response."""
        interceptors = self._interceptors["stream_unary"]
        return StreamUnaryMultiCallable(self, method, request_serializer, response_deserializer, interceptors)

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: bool | None = False,
    ) -> StreamStreamMultiCallable:
        """The multi-callable of a method with many requests and many responses."""
        interceptors = self._interceptors["stream_stream"]
        return StreamStreamMultiCallable(self, method, request_serializer, response_deserializer, interceptors)


def insecure_channel(
    target: str,
    options: Any = None,
    compression: Any = None,
    interceptors: Any = None,
) -> Channel:
    """A channel to ``target``, without encryption."""
    return Channel(target, options, compression, interceptors)


def secure_channel(
    target: str,
    credentials: Any,
    options: Any = None,
    compression: Any = None,
    interceptors: Any = None,
) -> Channel:
    """A channel with credentials. It can be made, as in grpc.aio; its calls are refused, because TLS is not bound."""
    return SecureChannel(target, options, compression, interceptors)


class SecureChannel(Channel):
    """Stands for a channel with TLS, which cannot be opened yet."""

    def _open(self) -> ChannelCore:
        raise NotImplementedError(
            "aiofabric's RPC does not support TLS yet: use insecure_channel() on a network that you trust"
        )
