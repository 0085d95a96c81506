"""ChannelStream: the end and the attributes of streams over a byte channel."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio import TypedAttributeProvider
from anyio.abc import AsyncResource
from anyio.lowlevel import checkpoint

from aiofabric._core import ChannelCore, GuardCore, ResourceCore, StreamPath
from aiofabric.channel.base import ByteChannel
from aiofabric.resource import leave_block
from aiofabric.streams.attributes import address_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from aiofabric.channel.base import StreamStatistics

__all__ = ["LINGER", "ChannelStream", "broken"]

LINGER = 5.0
"""Seconds that ``aclose`` waits for the peer to confirm the end."""


def broken(error: ConnectionError) -> anyio.BrokenResourceError:
    """The anyio exception for the end of a connection; raised from ``error``, which stays as the cause.

    The channel keeps ``error``. Its traceback would refer to the caller's memory, in a cycle with the channel.
    """
    error.__traceback__ = None
    return anyio.BrokenResourceError(str(error))


class Guard(GuardCore):
    """As `anyio.ResourceGuard`; C checks it, too."""

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        if self.busy:
            raise anyio.BusyResourceError(self._action)
        self.busy = True

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.busy = False


class ChannelStream(ResourceCore, AsyncResource, TypedAttributeProvider):
    """One task may send and one may receive; a second gets :exc:`anyio.BusyResourceError`.

    An orderly end (:meth:`send_eof`, :meth:`aclose`) is :exc:`anyio.EndOfStream` at the peer. If a peer is killed,
    aborts the connection or violates the protocol, calls raise :exc:`anyio.BrokenResourceError`, whose cause has the
    details.
    """

    def __init__(self, channel: ByteChannel) -> None:
        if not isinstance(channel, ByteChannel):
            raise TypeError(
                f"a {type(self).__name__} is made by a function such as connect_stream(), not of {channel!r:.100}"
            )
        self._channel = channel
        self._closed = False
        self._eof_sent = False
        self._sending = Guard("sending to")
        self._receiving = Guard("receiving from")
        if isinstance(channel, ChannelCore):
            self._calls_go_by(self._path_in_c(channel))

    def _path_in_c(self, channel: Any) -> StreamPath:
        """The target of those calls that run in C."""
        return StreamPath(channel, self._sending, self._receiving)

    @property
    def channel(self) -> ByteChannel:
        """The byte channel below, for integrations: it can expose memory to the peer."""
        return self._channel

    async def wait_send_might_not_block(self) -> None:
        """Wait until data could be sent at once.

        Raises: the errors that sending would raise now.
        """
        self._channel.check_usable()
        with self._sending:
            self._check_sendable()
            try:
                await self._channel.wait_writable()
            except ConnectionError as error:
                raise broken(error) from error

    async def send_eof(self) -> None:
        """Tell the peer that no more data comes; receiving continues. A second call has no effect.

        Raises: ClosedResourceError, BusyResourceError; WrongThreadError, WrongLoopError, ForkedError.
        """
        self._channel.check_usable()
        with self._sending:
            await checkpoint()
            if self._closed:
                raise anyio.ClosedResourceError
            self._eof_sent = True
            self._channel.shutdown_write()

    async def aclose(self) -> None:
        """Close: the peer receives all sent data and then the end of the stream.

        Waits until the peer has confirmed the end, at most :data:`LINGER` seconds. If it is cancelled, or another task
        is sending, it closes at once, and the peer may see a broken stream.

        Raises: WrongThreadError, ForkedError; the stream is as it was.
        """
        if self._closed:
            await checkpoint()
            return
        self._channel.check_caller()
        self._closed = True
        confirmed = anyio.Event()
        try:
            with suppress(anyio.BusyResourceError), self._sending:
                self._channel.close(confirmed.set)
                with anyio.move_on_after(LINGER):
                    await confirmed.wait()
        finally:
            self._channel.abort()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await leave_block(exc, self.aclose)

    def abort(self) -> None:
        """Close at once: unsent data is dropped, and the peer may see a broken stream.

        For code that cannot await; otherwise use :meth:`aclose`. Tasks that wait, and later calls, get
        ClosedResourceError.

        Raises: WrongThreadError, ForkedError; the stream is as it was.
        """
        if not self._closed:
            self._channel.check_caller()
        self._closed = True
        self._channel.abort()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):  # absent when the stream was not made
            self._channel.dropped(self)

    def _check_sendable(self) -> None:
        if self._closed or self._eof_sent:
            raise anyio.ClosedResourceError

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        channel = self._channel
        return address_attributes(channel.info, channel.local_address, channel.peer_address)

    def statistics(self) -> StreamStatistics:
        """Counters: bytes and frames each way, bytes that wait, credits on both sides; see `StreamStatistics`."""
        return self._channel.statistics()
