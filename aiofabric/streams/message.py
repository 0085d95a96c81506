"""MessageStream: whole messages over a fabric, with anyio's interface.

Each message goes into the byte channel behind its length, four bytes little-endian. So the channel handles credits,
ends and large messages. If both sides have agreed to packing, small messages of one loop iteration share a frame, as
other small data of a channel does.
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, SupportsIndex

import anyio
from anyio.abc import ObjectStream

from aiofabric._core import MessageReader, StreamPath, fast_message_receive, fast_stream_send, refuse_pointers
from aiofabric.channel.connect import HELLO
from aiofabric.channel.frames import MESSAGES, Hello, protocol_error
from aiofabric.errors import MessageTooLongError
from aiofabric.memory import bytes_of
from aiofabric.streams.base import ChannelStream, broken

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aiofabric.channel.endpoint import EndpointChannel

__all__ = ["MAX_MESSAGE_SIZE", "MessageStream", "message_hello"]

MAX_MESSAGE_SIZE = 64 << 20
"""Default for the bytes of the longest message that a stream receives."""

_LENGTH = struct.Struct("<I")
_COPIED = 8192
"""Bytes of the longest message that is copied behind its length."""


def message_hello(*, packing: bool, max_message_size: int) -> Hello:
    """The hello of one side of a message stream."""
    if isinstance(max_message_size, bool) or not isinstance(max_message_size, SupportsIndex):
        raise TypeError(f"max_message_size must be a number of bytes, not {max_message_size!r}")
    if not 0 < max_message_size < 1 << 32:
        raise ValueError("max_message_size must be at least 1 byte and less than 4 GiB")
    return replace(HELLO, kind=MESSAGES, packing=packing, max_message_size=max_message_size)


class MessageStream(ChannelStream, ObjectStream[bytes]):
    """A stream of messages whose boundaries are kept.

    From :func:`connect_messages` or :func:`listen_messages`. With packing, a send or receive that does not wait takes a
    checkpoint only occasionally on asyncio; on trio each one is a checkpoint.
    """

    _channel: EndpointChannel

    def __init__(self, channel: EndpointChannel) -> None:
        super().__init__(channel)
        if not (channel.ours.packing and channel.theirs.packing):
            channel.longest_gather = 0

    @fast_stream_send
    async def send(self, item: Buffer) -> None:
        """Send one message: any contiguous buffer of at most the peer's ``max_message_size``, also an empty one.

        Returns when the caller may change the memory. A peer that reads slowly delays the return. If the call is
        cancelled while it waits, there are two cases: the message was sent, and then it arrives; or the stream is
        broken. As for `FabricStream.send`, it waits for at most 0.1 s until the memory may be changed.

        Raises: MessageTooLongError (nothing was sent), BrokenResourceError, ClosedResourceError (also after
        :meth:`send_eof`), BusyResourceError.
        """
        await self._send(item)

    async def _send(self, item: Buffer) -> None:
        """`send`, where C does not serve the call."""
        refuse_pointers(item)
        view = bytes_of(item)
        self._channel.check_usable()
        with self._sending:
            self._check_sendable()
            longest = self._channel.theirs.max_message_size
            if len(view) > longest:
                detail = f"The message has {len(view)} bytes; the peer accepts at most {longest}"
                raise MessageTooLongError(errno.EMSGSIZE, "send", peer=self._channel.peer_address, detail=detail)
            length = _LENGTH.pack(len(view))
            try:
                if len(view) <= _COPIED:
                    await self._channel.send(length + view)
                else:
                    self._put(length)
                    await self._channel.send(item)
            except ConnectionError as error:
                raise broken(error) from error

    def _path_in_c(self, channel: EndpointChannel) -> StreamPath:
        self._reader = MessageReader(channel, channel.ours.max_message_size)
        longest = min(_COPIED, channel.theirs.max_message_size)
        return StreamPath(channel, self._sending, self._receiving, self._reader, longest)

    def _put(self, data: bytes) -> None:
        with suppress(ConnectionError, anyio.ClosedResourceError):  # the next call raises it
            if self._channel.try_send(data) < len(data):
                self._channel.post(memoryview(data), _nobody_waits)

    @fast_message_receive
    async def receive(self) -> bytes:
        """Receive the next message. Cancelling loses nothing.

        Raises: EndOfStream, BrokenResourceError (also when the peer ended within a message),
        ClosedResourceError, BusyResourceError.
        """
        return await self._receive()

    async def _receive(self) -> bytes:
        """`receive`, where C does not serve the call."""
        self._channel.check_usable()
        with self._receiving:
            try:
                return await self._channel.recv_by(self._take)
            except ConnectionError as error:
                raise broken(error) from error

    def _take(self) -> bytes | None:
        try:
            return self._reader.take()
        except EOFError:
            if self._reader.within_message:
                raise anyio.BrokenResourceError("the peer ended the stream within a message") from None
            raise anyio.EndOfStream from None
        except OverflowError as too_long:
            self._channel.abort(error := protocol_error(str(too_long)))
            raise error from None

    def abort(self) -> None:
        super().abort()
        self._reader.drop()

    async def aclose(self) -> None:
        await super().aclose()
        self._reader.drop()


def _nobody_waits(_: BaseException | None) -> None:
    pass
